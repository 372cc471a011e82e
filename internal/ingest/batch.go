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
	"example.org/carstate/internal/vehicle"
)

// maxRejections is how many refused lines a batch lists. Further lines are only counted.
const maxRejections = 1000

// rejection is a refused line of a batch, in the form in which the response lists it.
type rejection struct {
	Line   int    `json:"line"` // from 1; empty lines are counted
	Reason string `json:"reason"`
}

// batch is the decoded content of one HTTP request or MQTT message, or of several messages that are
// stored together.
type batch struct {
	samples  []vehicle.Sample // accepted samples with at least one reading; sort orders those of each vehicle
	accepted int              // accepted samples, those without a reading included
	rejected []rejection      // the first maxRejections
	refused  [access.SampleRefusals]int
	// first is the refusal of the first refused line, or nil if no line was refused. If other
	// batches were joined to this one, it is that of the last batch that had a refused line.
	first   *refusal
	ignored ignored
	unused  unused
	late    int           // samples that are older than what is known of their vehicle
	source  *access.Grant // the sender of all samples; if nil, no source's counters change
	bytes   int           // estimated memory, rather too high than too low
	length  int           // bytes of an HTTP body, after decompression
}

// Estimated memory, in bytes, of the parts of a batch, and of the request or message that carries
// it.
const (
	messageBytes = 512 // a waiting MQTT message, without its samples
	// sampleBytes is the memory of one sample. It is three times the size of the type, for two
	// reasons: a growing slice has spare capacity, and the samples of several messages are copied
	// into one slice.
	sampleBytes = 3 * int(unsafe.Sizeof(vehicle.Sample{}))
	codeBytes   = int(unsafe.Sizeof(vehicle.TroubleCode{})) + 1
	// rejectionBytes is the memory of a refused line: its number and reason, both in the batch and
	// in the encoded response.
	rejectionBytes = 500
	// ignoredBytes is the memory of an unknown signal's name, and of the known name that the
	// response suggests for it. An entry of the unused values has less.
	ignoredBytes = 128
	// requestBytes is the memory that an HTTP request reserves at its beginning: for its
	// connection, the first 4 KiB of its body (headBytes), the samples decoded from them, and the
	// response.
	requestBytes = 64 << 10
	headBytes    = 4 << 10
	// readerBytes is the memory of the buffers that decode a body. They are needed only for a body
	// that is compressed or longer than 4 KiB (headBytes).
	readerBytes = 128 << 10
)

// batches pools the batches of MQTT messages, because a batch is larger than what most messages
// have in it.
var batches = sync.Pool{New: func() any { return new(batch) }}

func newBatch(source *access.Grant) *batch {
	b := batches.Get().(*batch)
	b.source = source
	return b
}

// free returns b, which must not be used any more, to the pool.
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

// reader reads batches, and reuses its buffers, so only one goroutine may use it at a time.
type reader struct {
	dec    *decoder
	mapped *format.Decoder
	lines  *bufio.Reader
	text   bytes.Reader // of messageBatch
	// known has the times of the driving and the throttle verdict of the last sample's vehicle.
	known [2]vehicle.UnixMilli
}

// readers pools readers. Each has a buffer of 64 KiB.
var readers = sync.Pool{New: func() any {
	return &reader{dec: newDecoder(), mapped: format.NewDecoder(), lines: bufio.NewReaderSize(nil, MaxSample+len("\r\n"))}
}}

// origin holds what is known of a batch before it is read: its sender, the rules by which its
// samples are accepted, and the memory that it may use.
type origin struct {
	source    *access.Grant                                                      // the sender
	topic     vehicle.ID                                                         // the vehicle that the MQTT topic names, or empty
	forgotten func(vehicle.ID) bool                                              // whether a vehicle's samples are refused
	admit     func(vehicle.ID) bool                                              // whether a vehicle is known or may be added
	verdicts  func(vehicle.ID) (vehicle.DrivingVerdict, vehicle.ThrottleVerdict) // the newest ones
	latest    vehicle.UnixMilli                                                  // the latest time that a sample may have
	events    bool                                                               // each line is a CloudEvent
	memory    *reservation                                                       // grows with the batch; if nil, the memory is reserved already
	base      int                                                                // bytes of memory that are for receiving, not for the batch
}

// errNoMemory means that a batch needs more memory than its quota has free.
var errNoMemory = errors.New("not enough memory for this batch")

func (b *batch) end() {
	slices.Sort(b.ignored.names)
	b.bytes += (len(b.ignored.names) + len(b.unused.listed)) * ignoredBytes
}

// lineBatch reads NDJSON from r into a new batch. It skips empty lines, so the batch may be empty.
// If a line is longer than MaxSample or r has more than MaxSamples lines, empty ones included, the
// batch is refused as a whole, and the error is a *refusal. If the quota has too little memory, it is
// errNoMemory. Any other error is one of reading r. After an error, the batch holds the lines decoded
// so far.
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
		// The last two bytes of a full buffer may be a line break, or part of a line that is too
		// long.
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

// hopeless reports whether only refused lines came until line n, and a thousand of them.
func (b *batch) hopeless(n int) bool {
	if b.accepted > 0 || len(b.rejected) != maxRejections-1 {
		return false
	}
	b.reject(n+1, refuse(b.first.kind, "all lines before this one were refused, so no more are read"))
	return true
}

// objectBatch reads one JSON object, which may span lines, from r into a new batch, with the errors of
// lineBatch.
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

// messageBatch decodes p, the payload of an MQTT message: NDJSON, one JSON object that may span
// lines, or an array; the message does not say which. If the first line is incomplete JSON and the
// whole payload is complete JSON, it is read as one object. It returns what objectBatch or lineBatch
// does.
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
	defer rd.text.Reset(nil) // otherwise the pool would keep the message
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

// accept adds a sample of line n, or the reason for its refusal, to b.
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
	// A sample without readings would change no state, so it is counted and not stored.
	if x.Empty() {
		return
	}
	if other {
		b.bytes += len(x.Vehicle)
		driving, throttle := o.verdicts(x.Vehicle)
		rd.known = [2]vehicle.UnixMilli{driving.Time, throttle.Time}
	}
	if isLate(x, rd.known) {
		b.late++
	}
	if hold, ok := o.source.OnChange.Hold(); ok {
		if _, read := x.Speed(); read {
			_ = x.Set(vehicle.SpeedHolds, hold.Seconds()) // at most a day
		}
	}
	x.Source, x.Crowd = o.source.Number, o.source.Crowd()
	b.bytes += sampleBytes + codeBytes*len(x.Codes)
	b.samples = append(b.samples, *x)
}

// isLate reports whether a sample is older than the known readings of every group of signals that it
// has. A verdict is as old as the oldest reading behind it, so no sample is called late that could
// change something. The time of the newest position is not known, so a position alone is never late.
func isLate(x *vehicle.Sample, known [2]vehicle.UnixMilli) (late bool) {
	if x.Time >= max(known[0], known[1]) {
		return false
	}
	for s := range vehicle.Signal(vehicle.NumSignals) {
		group := 0
		switch {
		case !x.Has(s) || s >= vehicle.CurrentLatitude:
			continue
		case s >= vehicle.EngineLoad && s <= vehicle.MILOn:
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

// join adds the content of other to b, except the list of refused lines and the sizes. After the last
// join the caller must call sort.
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

// sort orders each vehicle's samples by time, because the fold ignores an older one.
func (b *batch) sort() {
	byTime := func(x, y vehicle.Sample) int { return cmp.Compare(x.Time, y.Time) }
	if !slices.IsSortedFunc(b.samples, byTime) && !b.sortedByVehicle() {
		slices.SortStableFunc(b.samples, byTime)
	}
}

// sortedByVehicle reports whether each vehicle's samples are already ordered by time, as when a
// gateway sends all samples of one car before those of another.
func (b *batch) sortedByVehicle() bool {
	last := make(map[vehicle.ID]vehicle.UnixMilli) // the time at which each vehicle's run ended
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
