package telemetry

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

// Batch is what was decoded from a body or message.
type Batch struct {
	Samples  []vehicle.Sample // with a reading; each vehicle's in order of time
	Accepted int              // samples, also without a reading
	Rejected []Rejection      // the first maxRejections
	Refused  [access.SampleRefusals]int
	First    *Refusal                   // if nil, no sample was refused
	Ignored  int                        // unknown signals
	Unused   [access.SampleRefusals]int // values, by one of UnusedKinds
	Late     int                        // accepted samples
	Source   *access.Grant
	Bytes    int // estimated memory, rather too high

	// For the report.
	names   []string      // distinct unknown signals
	unnamed int           // the other unknown signals
	unused  []unusedCount // at most maxUnused
}

// Limits of a batch.
const (
	MaxSamples = access.MaxBatch
	MaxSample  = 64 << 10 // bytes
	MaxMapped  = 1 << 20  // bytes that a mapping reads
)

// Growth is how many bytes of memory, at most, a batch has for each byte of a message.
const Growth = 9

// Estimated memory, in bytes.
const (
	// A growing slice has spare capacity, and joined messages are copied.
	sampleBytes    = 3 * int(unsafe.Sizeof(vehicle.Sample{}))
	codeBytes      = int(unsafe.Sizeof(signal.TroubleCode{})) + 1
	rejectionBytes = 500
	// ignoredBytes includes the suggested name.
	ignoredBytes = 128
)

// Most messages need less than a batch has.
var batches = sync.Pool{New: func() any { return new(Batch) }}

func newBatch(source *access.Grant) *Batch {
	b := batches.Get().(*Batch)
	b.Source = source
	return b
}

// Free allows that the batch, but not its samples, is used again.
func (b *Batch) Free() {
	*b = Batch{}
	batches.Put(b)
}

// Size is the number of samples, refused ones included.
func (b *Batch) Size() int { return b.Accepted + b.RefusedTotal() }

func (b *Batch) RefusedTotal() int {
	n := 0
	for _, k := range b.Refused {
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

// Origin is where a body or message comes from, and what its samples are checked with.
type Origin struct {
	Source    *access.Grant
	Vehicle   vehicle.ID // that an MQTT topic names; "" if none
	Now       signal.UnixMilli
	Forgotten func(vehicle.ID) bool
	Admit     func(vehicle.ID) bool // whether a vehicle is known, or may be added
	Verdicts  func(vehicle.ID) (vehicle.DrivingVerdict, vehicle.ThrottleVerdict)
	Events    bool   // each sample is the data of a CloudEvent
	Memory    Memory // if nil, Growth bytes for each byte of the message are reserved already
}

// Memory limits what is decoded.
type Memory interface {
	// Reserve makes sure that there is room for a batch of so many bytes.
	Reserve(bytes int) bool
}

// ErrNoMemory is of a batch that [Memory] had no room for.
var ErrNoMemory = errors.New("not enough memory for this batch")

func (o *Origin) latest() signal.UnixMilli { return o.Now.Add(maxAhead) }

func (b *Batch) end() {
	slices.Sort(b.names)
	b.Bytes += (len(b.names) + len(b.unused)) * ignoredBytes
}

// DecodeLines decodes NDJSON. An error is a [*Refusal] of the whole, ErrNoMemory, or of r; the batch
// has what came before.
func DecodeLines(r io.Reader, o Origin) (*Batch, error) {
	rd := readers.Get().(*reader)
	defer readers.Put(rd)
	return rd.lineBatch(r, o)
}

// DecodeJSON decodes one object, or an array of objects, as DecodeLines does lines.
func DecodeJSON(r *bufio.Reader, o Origin) (*Batch, error) {
	rd := readers.Get().(*reader)
	defer readers.Put(rd)
	if start, _ := r.Peek(64); isArray(start) {
		return rd.lineBatch(&elements{in: r}, o)
	}
	return rd.objectBatch(r, o)
}

// DecodeMapped decodes what the mapping of the source reads: a body of at most MaxMapped bytes, or
// a query.
func DecodeMapped(body []byte, o Origin) (*Batch, error) {
	rd := readers.Get().(*reader)
	defer readers.Put(rd)
	return rd.mappedBatch(o.Source.Format, format.Message{Body: body}, o)
}

// DecodeMessage decodes an MQTT message of at most MaxMapped bytes, by the mapping of the source if
// there is one.
func DecodeMessage(topic, payload []byte, o Origin) (*Batch, error) {
	rd := readers.Get().(*reader)
	defer readers.Put(rd)
	if o.Source.Format != nil {
		return rd.mappedBatch(o.Source.Format, format.Message{Body: payload, Topic: string(topic)}, o)
	}
	return rd.messageBatch(payload, o)
}

// lineBatch refuses a line or batch over a limit as a whole. With an error, it returns the lines so
// far.
func (rd *reader) lineBatch(r io.Reader, o Origin) (*Batch, error) {
	rd.lines.Reset(r)
	b := newBatch(o.Source)
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
			if o.Memory != nil && !o.Memory.Reserve(b.Bytes) {
				return b, ErrNoMemory
			}
		}
		if err == io.EOF {
			b.Sort()
			return b, nil
		}
	}
}

// hopeless ends a batch after a thousand refused lines and no other.
func (b *Batch) hopeless(n int) bool {
	if b.Accepted > 0 || len(b.Rejected) != maxRejections-1 {
		return false
	}
	b.reject(n+1, Refuse(b.First.Kind, "all lines before this one were refused, so no more are read"))
	return true
}

func (rd *reader) objectBatch(r io.Reader, o Origin) (*Batch, error) {
	rd.lines.Reset(r)
	b := newBatch(o.Source)
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
func (rd *reader) messageBatch(p []byte, o Origin) (*Batch, error) {
	if isArray(p) {
		return rd.lineBatch(&elements{in: bytes.NewReader(p)}, o)
	}
	first, rest, _ := bytes.Cut(bytes.TrimSpace(p), []byte{'\n'})
	if len(first) > 0 && len(rest) == 0 && len(p) <= MaxSample { // as most messages, which need no buffer
		b := newBatch(o.Source)
		defer b.end()
		rd.add(b, 1, first, o)
		return b, nil
	}
	defer rd.text.Reset(nil) // so that the pool does not keep the message
	if len(rest) > 0 && len(p) <= MaxSample {
		if _, err := rd.dec.sample(first, o.Vehicle, o.latest()); err == errTruncated {
			rd.text.Reset(p)
			b, err := rd.objectBatch(&rd.text, o)
			if err != nil || b.Refused[access.Malformed]+b.Refused[access.Truncated] == 0 {
				return b, err
			}
		}
	}
	rd.text.Reset(p)
	return rd.lineBatch(&rd.text, o)
}

func (rd *reader) add(b *Batch, n int, line []byte, o Origin) {
	if o.Events {
		line = eventData(line)
	}
	x, err := rd.dec.sample(line, o.Vehicle, o.latest())
	rd.accept(b, n, &x, err, o)
}

func (rd *reader) accept(b *Batch, n int, x *vehicle.Sample, err error, o Origin) {
	if err == nil && !o.Source.Vehicles.Include(x.Vehicle) {
		err = ErrNotAllowed
	}
	if err == nil && o.Forgotten(x.Vehicle) {
		err = errForgotten
	}
	if err == nil && len(rd.dec.unknown) > 0 && o.Source.Strict {
		err = refuseUnknown(rd.dec.unknown[0])
	}
	if err == nil && len(rd.dec.unused) > 0 && o.Source.Strict {
		err = refuseUnused(rd.dec.unused[0])
	}
	for _, name := range rd.dec.unknown {
		b.ignore(name)
	}
	other := len(b.Samples) == 0 || b.Samples[len(b.Samples)-1].Vehicle != x.Vehicle
	if err == nil && other && !x.Empty() && !o.Admit(x.Vehicle) {
		err = errFull
	}
	if err != nil {
		b.reject(n, err)
		return
	}
	b.Accepted++
	for _, v := range rd.dec.unused {
		b.noteUnused(v)
	}
	if x.Empty() {
		return
	}
	if other {
		b.Bytes += len(x.Vehicle)
		driving, throttle := o.Verdicts(x.Vehicle)
		rd.known = [2]signal.UnixMilli{driving.Time, throttle.Time}
	}
	if isLate(x, rd.known) {
		b.Late++
	}
	if hold, ok := o.Source.OnChange.Hold(); ok {
		if _, read := x.Speed(); read {
			_ = x.Set(signal.SpeedHolds, hold.Seconds()) // at most a day
		}
	}
	x.Source, x.Crowd = o.Source.Number, o.Source.Crowd()
	b.Bytes += sampleBytes + codeBytes*len(x.Codes)
	b.Samples = append(b.Samples, *x)
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

func (b *Batch) reject(line int, err error) {
	r, ok := errors.AsType[*Refusal](err)
	if !ok {
		r = Refuse(access.Malformed, err.Error())
	}
	b.Refused[r.Kind]++
	if b.First == nil {
		b.First = r
	}
	if len(b.Rejected) < maxRejections {
		b.Rejected = append(b.Rejected, Rejection{line, r.Text})
		b.Bytes += rejectionBytes
	}
}

// Join adds what is stored and counted of other, but not its report, and frees it. Sort must follow
// the last Join.
func (b *Batch) Join(other *Batch) {
	if b.Samples == nil {
		b.Samples, b.Source = other.Samples, other.Source
	} else {
		b.Samples = append(b.Samples, other.Samples...)
	}
	b.Accepted += other.Accepted
	b.Late += other.Late
	b.Ignored += other.Ignored
	for kind, n := range other.Unused {
		b.Unused[kind] += n
	}
	if other.First != nil {
		b.First = other.First
	}
	for k, n := range other.Refused {
		b.Refused[k] += n
	}
	other.Free()
}

// Sort is needed because the fold ignores an older sample.
func (b *Batch) Sort() {
	byTime := func(x, y vehicle.Sample) int { return cmp.Compare(x.Time, y.Time) }
	if !slices.IsSortedFunc(b.Samples, byTime) && !b.sortedByVehicle() {
		slices.SortStableFunc(b.Samples, byTime)
	}
}

// Sorting took a quarter of decoding, and a gateway often sends one car after the other.
func (b *Batch) sortedByVehicle() bool {
	last := make(map[vehicle.ID]signal.UnixMilli) // where each vehicle's run ended
	for i := 1; i < len(b.Samples); i++ {
		x, y := &b.Samples[i-1], &b.Samples[i]
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
