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

	"carstate/internal/access"
	"carstate/internal/vehicle"
)

// maxRejections is how many refused lines a batch lists; beyond it they are
// only counted.
const maxRejections = 1000

// rejection is one refused line.
type rejection struct {
	Line   int    `json:"line"` // from 1; empty lines count
	Reason string `json:"reason"`
}

// batch is what came out of one request or message.
type batch struct {
	samples  []vehicle.Sample // those that say something, by time
	accepted int              // samples, those that say nothing included
	rejected []rejection      // the first maxRejections
	refused  [access.SampleRefusals]int
	ignored  ignored
	source   *access.Grant // of all of it; nil: nothing is counted for one
	bytes    int           // of memory, about; rather more than less
}

// What a batch costs in memory.
const (
	messageBytes = 512 // a message of MQTT that waits, samples aside
	// A slice that grows has room to spare, and what several messages hold is
	// copied into one.
	sampleBytes = 3 * int(unsafe.Sizeof(vehicle.Sample{}))
	codeBytes   = int(unsafe.Sizeof(vehicle.TroubleCode{})) + 1
	// A refused line in the list, its text, and both in the answer.
	rejectionBytes = 500
	// The name of an unknown signal, and the one that is suggested for it.
	ignoredBytes = 128
	// A request in work: its connection, the first headBytes of its body, what becomes of
	// them, and the answer.
	requestBytes = 64 << 10
	headBytes    = 4 << 10
	// The buffers that read a request which is long or compressed.
	readerBytes = 128 << 10
)

// size is how many samples there were, good or bad.
func (b *batch) size() int { return b.accepted + b.rejectedTotal() }

func (b *batch) rejectedTotal() int {
	n := 0
	for _, k := range b.refused {
		n += k
	}
	return n
}

// reader reads batches. It holds buffers that are used again and must not be
// shared between goroutines.
type reader struct {
	dec   *Decoder
	lines *bufio.Reader
}

// readers keeps the buffers, 64 KiB each, of those at work.
var readers = sync.Pool{New: func() any {
	return &reader{dec: NewDecoder(), lines: bufio.NewReaderSize(nil, MaxSample+len("\r\n"))}
}}

// origin is what is known of a batch before it is read.
type origin struct {
	source    *access.Grant         // the sender
	vehicles  access.Vehicles       // whom its source speaks for
	topic     vehicle.ID            // the vehicle that an MQTT topic names, or empty
	forgotten func(vehicle.ID) bool // whom nothing is taken in of; nil: nobody
	admit     func(vehicle.ID) bool // whether a vehicle is known or may become so; nil: all
	latest    vehicle.UnixMilli     // the latest time a sample may have
	room      *hold                 // pays for the memory, or nil: it is paid for
	base      int                   // bytes that room pays for besides the batch
}

// errNoRoom means that a batch needs more memory than there is now.
var errNoRoom = errors.New("there is no memory left for this batch")

// begin begins a batch that r holds.
func (rd *reader) begin(r io.Reader, o origin) *batch {
	rd.lines.Reset(r)
	rd.dec.ignored.begin()
	return &batch{source: o.source}
}

// end gives the batch the names of its unknown signals.
func (rd *reader) end(b *batch) {
	if len(rd.dec.ignored.names) > 0 {
		b.ignored.take(&rd.dec.ignored)
		b.bytes += len(b.ignored.names) * ignoredBytes
	}
}

// lineBatch reads NDJSON. An error means that the whole batch is refused (a
// *refusal), cannot be held (errNoRoom) or could not be read (any other); the batch then
// holds the lines before.
func (rd *reader) lineBatch(r io.Reader, o origin) (*batch, error) {
	b := rd.begin(r, o)
	defer rd.end(b)
	for n, count := 1, 0; ; n++ {
		line, err := rd.lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			return b, errSampleTooLarge
		}
		if err != nil && err != io.EOF {
			return b, err
		}
		// The line break may be the buffer's last two bytes or none.
		if len(bytes.TrimRight(line, "\r\n")) > MaxSample {
			return b, errSampleTooLarge
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			if count++; count > MaxSamples {
				return b, errTooManySamples
			}
			rd.add(b, n, line, o)
			if o.room != nil && !o.room.cover(o.base+b.bytes) {
				return b, errNoRoom
			}
		}
		if err == io.EOF {
			b.sort()
			return b, nil
		}
	}
}

// objectBatch reads one JSON object, which may span lines.
func (rd *reader) objectBatch(r io.Reader, o origin) (*batch, error) {
	b := rd.begin(r, o)
	defer rd.end(b)
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

// messageBatch reads NDJSON or one JSON object that may span lines: MQTT does
// not say which. It is NDJSON unless its first line is the beginning of
// something that the whole message completes.
func (rd *reader) messageBatch(p []byte, o origin) (*batch, error) {
	first, rest, _ := bytes.Cut(bytes.TrimSpace(p), []byte{'\n'})
	if len(rest) > 0 && len(p) <= MaxSample {
		if _, err := rd.dec.Sample(first, o.topic, o.latest); err == errTruncated {
			b, err := rd.objectBatch(bytes.NewReader(p), o)
			if err != nil || b.refused[access.Malformed]+b.refused[access.Truncated] == 0 {
				return b, err
			}
		}
	}
	return rd.lineBatch(bytes.NewReader(p), o)
}

// add reads the sample in line number n into b.
func (rd *reader) add(b *batch, n int, line []byte, o origin) {
	rd.dec.ignored.forget()
	x, err := rd.dec.Sample(line, o.topic, o.latest)
	if err == nil && !o.vehicles.Include(x.Vehicle) {
		err = errNotAllowed
	}
	if err == nil && o.forgotten != nil && o.forgotten(x.Vehicle) {
		err = errForgotten
	}
	if err == nil && rd.dec.ignored.count > 0 && o.source != nil && o.source.Strict {
		err = rd.dec.ignored.refusal()
	}
	b.ignored.add(&rd.dec.ignored)
	other := len(b.samples) == 0 || b.samples[len(b.samples)-1].Vehicle != x.Vehicle
	if err == nil && other && !x.Empty() && o.admit != nil && !o.admit(x.Vehicle) {
		err = errFull
	}
	if err != nil {
		b.reject(n, err)
		return
	}
	b.accepted++
	// What says nothing would change nothing: it need not be stored.
	if x.Empty() {
		return
	}
	if other {
		b.bytes += len(x.Vehicle)
	}
	b.bytes += sampleBytes + codeBytes*len(x.Codes)
	b.samples = append(b.samples, x)
}

func (b *batch) reject(line int, err error) {
	k := access.Malformed
	if r, ok := errors.AsType[*refusal](err); ok {
		k = r.kind
	}
	b.refused[k]++
	if len(b.rejected) < maxRejections {
		b.rejected = append(b.rejected, rejection{line, err.Error()})
		b.bytes += rejectionBytes
	}
}

// join adds what another batch holds, but for its list of refused lines. The
// caller sorts when it has joined all.
func (b *batch) join(other *batch) {
	if b.samples == nil {
		b.samples, b.source = other.samples, other.source
	} else {
		b.samples = append(b.samples, other.samples...)
	}
	b.accepted += other.accepted
	b.ignored.join(&other.ignored)
	for k, n := range other.refused {
		b.refused[k] += n
	}
}

// sort puts each vehicle's samples in the order of their times, those of the
// same time as they came. Whoever folds them ignores what is older than what it
// knows, so a vehicle's samples out of order would be lost. Between vehicles the
// order means nothing.
func (b *batch) sort() {
	byTime := func(x, y vehicle.Sample) int { return cmp.Compare(x.Time, y.Time) }
	if !slices.IsSortedFunc(b.samples, byTime) && !b.sortedByVehicle() {
		slices.SortStableFunc(b.samples, byTime)
	}
}

// sortedByVehicle reports whether each vehicle's samples are in the order of
// their times already, as a gateway sends them that empties one car after the
// other. It looks each run of one vehicle up, not each sample.
func (b *batch) sortedByVehicle() bool {
	last := make(map[vehicle.ID]vehicle.UnixMilli) // of the runs that ended
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
