package telemetry

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"sync"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/format"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

// Origin is what the samples of a body or message are checked with.
type Origin struct {
	Source    *access.Grant
	Vehicle   vehicle.ID // of an MQTT topic, or empty
	Now       signal.UnixMilli
	Forgotten func(vehicle.ID) bool
	Admit     func(vehicle.ID) bool
	Verdicts  func(vehicle.ID) (vehicle.DrivingVerdict, vehicle.ThrottleVerdict)
	Lines     bool // a body is NDJSON; otherwise one object, or an array as lines
	Events    bool // lines are CloudEvents
	// Reserve reports whether a batch may have this size in all. If nil, Growth bytes for each
	// byte of the message are reserved already.
	Reserve func(bytes int) bool
}

var ErrNoMemory = errors.New("not enough memory for this batch")

// DecodeBody returns a [*Refusal] of the whole body, ErrNoMemory, or an error of r; then the batch
// has the lines so far.
func DecodeBody(r *bufio.Reader, o Origin) (*Batch, error) {
	return decode(o, func(rd *reader) error {
		if o.Lines {
			return rd.readLines(r)
		}
		if start, _ := r.Peek(64); isArray(start) {
			return rd.readLines(&elements{in: r})
		}
		return rd.readObject(r)
	})
}

// DecodeMessage decodes an MQTT message, by the source's mapping if it has one. Of a mapped HTTP
// request, payload is the body or the query, and topic is empty.
func DecodeMessage(topic, payload []byte, o Origin) (*Batch, error) {
	return decode(o, func(rd *reader) error {
		if o.Source.Format != nil {
			return rd.readMapped(format.Message{Body: payload, Topic: string(topic)})
		}
		return rd.readMessage(payload)
	})
}

type reader struct {
	Origin
	batch  *Batch
	latest signal.UnixMilli
	dec    *decoder
	mapped *format.Decoder
	lines  *bufio.Reader
	known  [2]signal.UnixMilli // times of the last vehicle's verdicts: driving, throttle
}

var readers = sync.Pool{New: func() any {
	return &reader{dec: newDecoder(), mapped: format.NewDecoder(), lines: bufio.NewReaderSize(nil, MaxSample+len("\r\n"))}
}}

func decode(o Origin, read func(*reader) error) (*Batch, error) {
	rd, b := readers.Get().(*reader), batches.Get().(*Batch)
	b.Source = o.Source
	rd.Origin, rd.batch, rd.latest = o, b, o.Now.Add(maxAhead)
	defer func() {
		rd.Origin, rd.batch = Origin{}, nil
		rd.lines.Reset(nil) // so that the pool does not keep the message
		readers.Put(rd)
	}()
	err := read(rd)
	slices.Sort(b.Ignored)
	b.Bytes += (len(b.Ignored) + len(b.Unused)) * ignoredBytes
	return b, err
}

func (rd *reader) readLines(r io.Reader) error {
	rd.lines.Reset(r)
	for n := 1; ; n++ {
		line, err := rd.lines.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			return errSampleTooLarge
		case err != nil && err != io.EOF:
			return err
		case len(bytes.TrimRight(line, "\r\n")) > MaxSample:
			return errSampleTooLarge
		case n > MaxSamples && len(line) > 0:
			return errTooManySamples
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			rd.add(n, line)
			if rd.batch.hopeless(n) {
				return nil
			}
			if rd.Reserve != nil && !rd.Reserve(rd.batch.Bytes) {
				return ErrNoMemory
			}
		}
		if err == io.EOF {
			rd.batch.Sort()
			return nil
		}
	}
}

func (rd *reader) readObject(r io.Reader) error {
	rd.lines.Reset(r)
	object, err := rd.lines.Peek(MaxSample + 1)
	switch {
	case err == nil:
		return errSampleTooLarge
	case err != io.EOF:
		return err
	}
	if object = bytes.TrimSpace(object); len(object) > 0 {
		rd.add(1, object)
	}
	return nil
}

// readMessage finds out whether p is NDJSON, an array, or one object that spans lines.
func (rd *reader) readMessage(p []byte) error {
	if isArray(p) {
		return rd.readLines(&elements{in: bytes.NewReader(p)})
	}
	object := bytes.TrimSpace(p)
	first, rest, _ := bytes.Cut(object, []byte{'\n'})
	switch {
	case len(first) == 0 || len(p) > MaxSample:
	case len(rest) == 0: // most messages: they need no buffer
		rd.add(1, object)
		return nil
	default:
		if _, why := rd.dec.sample(first, rd.Vehicle, rd.latest); why != errTruncated {
			break
		}
		rd.add(1, object)
		if rd.batch.Refused[access.Malformed]+rd.batch.Refused[access.Truncated] == 0 {
			return nil
		}
		*rd.batch = Batch{Source: rd.Source}
	}
	return rd.readLines(bytes.NewReader(p))
}

func (rd *reader) add(n int, line []byte) {
	if rd.Events {
		line = eventData(line)
	}
	x, why := rd.dec.sample(line, rd.Vehicle, rd.latest)
	rd.accept(n, &x, why)
}

func (rd *reader) accept(n int, x *vehicle.Sample, why *Refusal) {
	b, strict := rd.batch, rd.Source.Strict
	for _, name := range rd.dec.unknown {
		b.ignore(name)
	}
	other := len(b.Samples) == 0 || b.Samples[len(b.Samples)-1].Vehicle != x.Vehicle
	switch {
	case why != nil:
	case !rd.Source.Vehicles.Include(x.Vehicle):
		why = ErrNotAllowed
	case rd.Forgotten(x.Vehicle):
		why = errForgotten
	case strict && len(rd.dec.unknown) > 0:
		why = errUnknown(rd.dec.unknown[0])
	case strict && len(rd.dec.unused) > 0:
		why = errUnused(rd.dec.unused[0])
	case other && !x.Empty() && !rd.Admit(x.Vehicle):
		why = errFull
	}
	if why != nil {
		b.reject(n, why)
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
		driving, throttle := rd.Verdicts(x.Vehicle)
		rd.known = [2]signal.UnixMilli{driving.Time, throttle.Time}
	}
	if isLate(x, rd.known) {
		b.Late++
	}
	if hold, ok := rd.Source.OnChange.Hold(); ok {
		if _, read := x.Speed(); read {
			_ = x.Set(signal.SpeedHolds, hold.Seconds()) // no error: at most a day
		}
	}
	x.Source, x.Crowd = rd.Source.Number, rd.Source.Crowd()
	b.Bytes += sampleBytes + codeBytes*len(x.Codes)
	b.Samples = append(b.Samples, *x)
}

// isLate reports whether a sample is older than the verdicts on all its groups, motion and throttle.
// A position alone is never late: the time of the vehicle's last position is not known.
func isLate(x *vehicle.Sample, known [2]signal.UnixMilli) bool {
	motion, throttle := x.Groups()
	news := motion && x.Time >= known[0] || throttle && x.Time >= known[1]
	return (motion || throttle) && !news
}

func eventData(event []byte) []byte {
	var e struct {
		Data json.RawMessage `json:"data"`
	}
	if json.Unmarshal(event, &e) != nil {
		return event
	}
	return e.Data
}

// elements turns a JSON array into lines. What follows the array is a line of its own. A missing end
// becomes the line "{", which is refused as incomplete.
type elements struct {
	in               io.ByteReader
	begun, ended     bool
	inString, escape bool
	depth            int
	rest             string
}

func (e *elements) Read(p []byte) (n int, err error) {
	for ; n < len(p); n++ {
		c, err := e.in.ReadByte()
		if err == io.EOF && !e.ended && e.depth == 0 && !e.inString {
			e.ended, e.rest = true, "\n{"
		}
		if err != nil && e.rest == "" {
			return n, err
		}
		if err != nil {
			c, e.rest = e.rest[0], e.rest[1:]
		}
		p[n] = e.translate(c)
	}
	return n, nil
}

func (e *elements) translate(c byte) byte {
	switch {
	case e.ended:
	case e.escape:
		e.escape = false
	case e.inString:
		e.escape, e.inString = c == '\\', c != '"'
	case !e.begun:
		e.begun = c == '['
		return ' '
	case c == '"':
		e.inString = true
	case c == '{', c == '[':
		e.depth++
	case e.depth > 0 && (c == '}' || c == ']'):
		e.depth--
	case c == ']':
		e.ended = true
		return '\n'
	case c == ',' && e.depth == 0:
		return '\n'
	case c == '\n', c == '\r':
		return ' '
	}
	return c
}

func isArray(b []byte) bool { return bytes.HasPrefix(bytes.TrimSpace(b), []byte("[")) }
