package telemetry

import (
	"bytes"
	"encoding/json"
	"io"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/format"
)

var (
	errDense   = Refuse(access.OverLimit, "there are too many samples for the size of the message: send them by HTTP")
	errSameVID = Refuse(access.BadVID, "another vehicle of this source already has this vid without its other "+
		"characters: the operator can give the mapping a table, or clean: hash")
)

// Other errors are of a wrong vid.
var mappedKinds = map[error]access.Refusal{
	format.ErrSyntax: access.Malformed, format.ErrForm: access.Malformed, format.ErrTopic: access.BadTopic,
	format.ErrNoTime: access.BadTime, format.ErrTime: access.BadTime, format.ErrWork: access.OverLimit,
}

func (rd *reader) mappedBatch(f *format.Format, m format.Message, o Origin) (b *Batch, err error) {
	b = newBatch(o.Source)
	defer b.end()
	m.Now, m.Vehicle = o.Now, o.Vehicle
	if v := o.Source.Vehicles; m.Vehicle == "" && !v.All() && v.Len() == 1 {
		for m.Vehicle = range v.Sorted() {
		}
	}
	n := 0
	rd.mapped.Decode(f, m, func(s *format.Sample) bool {
		if n++; n > MaxSamples {
			err = errTooManySamples
			return false
		}
		if s.Skipped {
			b.Accepted++
			return true
		}
		rd.accept(b, n, &s.Sample, rd.checkMapped(s, o), o)
		switch {
		case b.hopeless(n):
			return false
		case o.Memory != nil && !o.Memory.Reserve(b.Bytes):
			err = ErrNoMemory
		case o.Memory == nil && len(b.Samples) > 1 && len(b.Samples)*sampleBytes > Growth*len(m.Body):
			err = errDense
		}
		return err == nil
	})
	b.Sort()
	return b, err
}

func (rd *reader) checkMapped(s *format.Sample, o Origin) error {
	rd.dec.unknown, rd.dec.unused = rd.dec.unknown[:0], rd.dec.unused[:0]
	for _, u := range s.Unused {
		why := whyUnused(u.Signal, u.Err)
		switch u.Err {
		case format.ErrNotNumber:
			why = errNumberType
		case format.ErrNotCodes:
			why = errNotCodes
		case format.ErrNotBool:
			why = errMILType
		}
		rd.dec.unused = append(rd.dec.unused, unusedValue{[]byte(u.Signal.String()), why})
	}
	switch {
	case s.Err != nil:
		kind, ok := mappedKinds[s.Err]
		if !ok {
			kind = access.BadVID
		}
		return Refuse(kind, s.Err.Error())
	case o.Vehicle != "" && s.Vehicle != o.Vehicle:
		return errOtherVID
	}
	if why := checkTime(s.Time, o.latest()); why != nil {
		return why
	}
	if s.External != "" && o.Source.Vehicles.Include(s.Vehicle) && o.Admit(s.Vehicle) &&
		!o.Source.Claim(s.Vehicle, s.External) {
		return errSameVID
	}
	return nil
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

// elements turns a JSON array into lines. What follows the array is a line of its own, and so is a
// missing end.
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
