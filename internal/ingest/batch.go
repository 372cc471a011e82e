package ingest

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"io"
	"slices"
	"sync"
	"unsafe"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/format"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

const maxRejections = 1000

type rejection struct {
	Line   int    `json:"line"` // from 1, empty lines included
	Reason string `json:"reason"`
}

type batch struct {
	samples  []vehicle.Sample // with a reading
	accepted int              // also without a reading
	rejected []rejection      // the first maxRejections
	refused  [access.SampleRefusals]int
	first    *refusal
	ignored  ignored
	unused   unused
	late     int
	source   *access.Grant // if nil, no source's counters change
	bytes    int           // estimated memory, rather too high
	length   int           // bytes of an HTTP body, decompressed
}

// Estimated memory, in bytes.
const (
	messageBytes = 512 // without its samples
	// A growing slice has spare capacity, and joined messages are copied.
	sampleBytes    = 3 * int(unsafe.Sizeof(vehicle.Sample{}))
	codeBytes      = int(unsafe.Sizeof(signal.TroubleCode{})) + 1
	rejectionBytes = 500
	// ignoredBytes includes the suggested name.
	ignoredBytes = 128
	// requestBytes are reserved when a request begins.
	requestBytes = 64 << 10
	headBytes    = 4 << 10
	// readerBytes are for a body that is compressed or longer than headBytes.
	readerBytes = 128 << 10
)

// Most messages need less than a batch has.
var batches = sync.Pool{New: func() any { return new(batch) }}

func newBatch(source *access.Grant) *batch {
	b := batches.Get().(*batch)
	b.source = source
	return b
}

func (b *batch) free() {
	*b = batch{}
	batches.Put(b)
}

func (b *batch) size() int { return b.accepted + b.rejectedTotal() }

func (b *batch) rejectedTotal() int {
	n := 0
	for _, k := range b.refused {
		n += k
	}
	return n
}

// reader is used by one goroutine at a time.
type reader struct {
	dec    *decoder
	mapped *format.Decoder
	lines  *bufio.Reader
	text   bytes.Reader
	// known has the times of the last vehicle's verdicts.
	known [2]signal.UnixMilli
}

var readers = sync.Pool{New: func() any {
	return &reader{dec: newDecoder(), mapped: format.NewDecoder(), lines: bufio.NewReaderSize(nil, MaxSample+len("\r\n"))}
}}

type origin struct {
	source    *access.Grant
	topic     vehicle.ID // of an MQTT topic, or empty
	forgotten func(vehicle.ID) bool
	admit     func(vehicle.ID) bool
	verdicts  func(vehicle.ID) (vehicle.DrivingVerdict, vehicle.ThrottleVerdict)
	latest    signal.UnixMilli
	events    bool         // CloudEvents
	memory    *reservation // if nil, reserved already
	base      int          // bytes of memory for receiving
}

var errNoMemory = errors.New("not enough memory for this batch")

func (b *batch) end() {
	slices.Sort(b.ignored.names)
	b.bytes += (len(b.ignored.names) + len(b.unused.listed)) * ignoredBytes
}

// lineBatch refuses a line or batch over a limit as a whole. With an error, it returns the lines so
// far.
func (rd *reader) lineBatch(r io.Reader, o origin) (*batch, error) {
	rd.lines.Reset(r)
	b := newBatch(o.source)
	defer b.end()
	for n := 1; ; n++ {
		line, err := rd.lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			return b, errSampleTooLarge
		}
		if err != nil && err != io.EOF {
			return b, err
		}
		if len(bytes.TrimRight(line, "\r\n")) > MaxSample {
			return b, errSampleTooLarge
		}
		if n > MaxSamples && len(line) > 0 {
			return b, errTooManySamples
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			rd.add(b, n, line, o)
			if b.hopeless(n) {
				return b, nil
			}
			if o.memory != nil && !o.memory.reserve(o.base+b.bytes) {
				return b, errNoMemory
			}
		}
		if err == io.EOF {
			b.sort()
			return b, nil
		}
	}
}

// hopeless ends a batch after a thousand refused lines and no other.
func (b *batch) hopeless(n int) bool {
	if b.accepted > 0 || len(b.rejected) != maxRejections-1 {
		return false
	}
	b.reject(n+1, refuse(b.first.kind, "all lines before this one were refused, so no more are read"))
	return true
}

func (rd *reader) objectBatch(r io.Reader, o origin) (*batch, error) {
	rd.lines.Reset(r)
	b := newBatch(o.source)
	defer b.end()
	object, err := rd.lines.Peek(MaxSample + 1)
	switch {
	case err == nil:
		return b, errSampleTooLarge
	case err != io.EOF:
		return b, err
	}
	if object = bytes.TrimSpace(object); len(object) > 0 {
		rd.add(b, 1, object, o)
	}
	return b, nil
}

// A message does not say what it is: NDJSON, an array, or one object that spans lines.
func (rd *reader) messageBatch(p []byte, o origin) (*batch, error) {
	if isArray(p) {
		return rd.lineBatch(&elements{in: bytes.NewReader(p)}, o)
	}
	first, rest, _ := bytes.Cut(bytes.TrimSpace(p), []byte{'\n'})
	if len(first) > 0 && len(rest) == 0 && len(p) <= MaxSample { // as most messages, which need no buffer
		b := newBatch(o.source)
		defer b.end()
		rd.add(b, 1, first, o)
		return b, nil
	}
	defer rd.text.Reset(nil) // so that the pool does not keep the message
	if len(rest) > 0 && len(p) <= MaxSample {
		if _, err := rd.dec.sample(first, o.topic, o.latest); err == errTruncated {
			rd.text.Reset(p)
			b, err := rd.objectBatch(&rd.text, o)
			if err != nil || b.refused[access.Malformed]+b.refused[access.Truncated] == 0 {
				return b, err
			}
		}
	}
	rd.text.Reset(p)
	return rd.lineBatch(&rd.text, o)
}

func (rd *reader) add(b *batch, n int, line []byte, o origin) {
	if o.events {
		line = eventData(line)
	}
	x, err := rd.dec.sample(line, o.topic, o.latest)
	rd.accept(b, n, &x, err, o)
}

func (rd *reader) accept(b *batch, n int, x *vehicle.Sample, err error, o origin) {
	if err == nil && !o.source.Vehicles.Include(x.Vehicle) {
		err = errNotAllowed
	}
	if err == nil && o.forgotten(x.Vehicle) {
		err = errForgotten
	}
	if err == nil && len(rd.dec.unknown) > 0 && o.source.Strict {
		err = refuseUnknown(rd.dec.unknown[0])
	}
	if err == nil && len(rd.dec.unused) > 0 && o.source.Strict {
		err = refuseUnused(rd.dec.unused[0])
	}
	for _, name := range rd.dec.unknown {
		b.ignored.note(name)
	}
	other := len(b.samples) == 0 || b.samples[len(b.samples)-1].Vehicle != x.Vehicle
	if err == nil && other && !x.Empty() && !o.admit(x.Vehicle) {
		err = errFull
	}
	if err != nil {
		b.reject(n, err)
		return
	}
	b.accepted++
	for _, v := range rd.dec.unused {
		b.unused.note(v)
	}
	if x.Empty() {
		return
	}
	if other {
		b.bytes += len(x.Vehicle)
		driving, throttle := o.verdicts(x.Vehicle)
		rd.known = [2]signal.UnixMilli{driving.Time, throttle.Time}
	}
	if isLate(x, rd.known) {
		b.late++
	}
	if hold, ok := o.source.OnChange.Hold(); ok {
		if _, read := x.Speed(); read {
			_ = x.Set(signal.SpeedHolds, hold.Seconds()) // at most a day
		}
	}
	x.Source, x.Crowd = o.source.Number, o.source.Crowd()
	b.bytes += sampleBytes + codeBytes*len(x.Codes)
	b.samples = append(b.samples, *x)
}

// isLate reports whether a sample is older than the verdicts of all its groups. A position alone
// never is: the time of the last one is not known.
func isLate(x *vehicle.Sample, known [2]signal.UnixMilli) (late bool) {
	if x.Time >= max(known[0], known[1]) {
		return false
	}
	for s := range signal.Signal(signal.Num) {
		group := 0
		switch {
		case !x.Has(s) || s >= signal.CurrentLatitude:
			continue
		case s >= signal.EngineLoad && s <= signal.MILOn:
			group = 1
		}
		if x.Time >= known[group] {
			return false
		}
		late = true
	}
	return late
}

func (b *batch) reject(line int, err error) {
	r, ok := errors.AsType[*refusal](err)
	if !ok {
		r = refuse(access.Malformed, err.Error())
	}
	b.refused[r.kind]++
	if b.first == nil {
		b.first = r
	}
	if len(b.rejected) < maxRejections {
		b.rejected = append(b.rejected, rejection{line, r.text})
		b.bytes += rejectionBytes
	}
}

// The caller must call sort after the last join.
func (b *batch) join(other *batch) {
	if b.samples == nil {
		b.samples, b.source = other.samples, other.source
	} else {
		b.samples = append(b.samples, other.samples...)
	}
	b.accepted += other.accepted
	b.late += other.late
	b.ignored.join(&other.ignored)
	b.unused.join(&other.unused)
	if other.first != nil {
		b.first = other.first
	}
	for k, n := range other.refused {
		b.refused[k] += n
	}
}

// The fold ignores an older sample.
func (b *batch) sort() {
	byTime := func(x, y vehicle.Sample) int { return cmp.Compare(x.Time, y.Time) }
	if !slices.IsSortedFunc(b.samples, byTime) && !b.sortedByVehicle() {
		slices.SortStableFunc(b.samples, byTime)
	}
}

// Sorting took a quarter of decoding, and a gateway often sends one car after the other.
func (b *batch) sortedByVehicle() bool {
	last := make(map[vehicle.ID]signal.UnixMilli) // where each vehicle's run ended
	for i := 1; i < len(b.samples); i++ {
		x, y := &b.samples[i-1], &b.samples[i]
		if x.Vehicle == y.Vehicle {
			if y.Time < x.Time {
				return false
			}
			continue
		}
		last[x.Vehicle] = x.Time
		if before, ok := last[y.Vehicle]; ok && y.Time < before {
			return false
		}
	}
	return true
}
