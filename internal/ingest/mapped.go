package ingest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/format"
)

// MaxMapped is the maximum size, in bytes, of a mapping's input.
const MaxMapped = 1 << 20

var (
	errMappedTooLarge = refuse(access.OverLimit, "a body in the format of this source is larger than 1 MiB")
	errDense          = refuse(access.OverLimit, "there are too many samples for the size of the message: send them by HTTP")
	errSameVID        = refuse(access.BadVID, "another vehicle of this source already has this vid without its other "+
		"characters: the operator can give the mapping a table, or clean: hash")
	errKeyInAddress = errors.New("a key in the address is accepted only for a source of a format such as torque: " +
		"send it as Authorization: Bearer KEY")
)

// Other errors are of a wrong vid.
var mappedKinds = map[error]access.Refusal{
	format.ErrSyntax: access.Malformed, format.ErrForm: access.Malformed, format.ErrTopic: access.BadTopic,
	format.ErrNoTime: access.BadTime, format.ErrTime: access.BadTime, format.ErrWork: access.OverLimit,
}

func (rd *reader) mappedBatch(f *format.Format, m format.Message, o origin) (b *batch, err error) {
	b = newBatch(o.source)
	b.length = len(m.Body)
	defer b.end()
	m.Now, m.Vehicle = o.latest.Add(-maxAhead), o.topic
	if v := o.source.Vehicles; m.Vehicle == "" && !v.All() && v.Len() == 1 {
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
			b.accepted++
			return true
		}
		rd.accept(b, n, &s.Sample, rd.checkMapped(s, o), o)
		switch {
		case b.hopeless(n):
			return false
		case o.memory != nil && !o.memory.reserve(o.base+b.bytes):
			err = errNoMemory
		case o.memory == nil && len(b.samples) > 1 && len(b.samples)*sampleBytes > 9*len(m.Body):
			err = errDense
		}
		return err == nil
	})
	b.sort()
	return b, err
}

func (rd *reader) checkMapped(s *format.Sample, o origin) error {
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
		return refuse(kind, s.Err.Error())
	case o.topic != "" && s.Vehicle != o.topic:
		return errOtherVID
	}
	if why := checkTime(s.Time, o.latest); why != nil {
		return why
	}
	if s.External != "" && o.source.Vehicles.Include(s.Vehicle) && o.admit(s.Vehicle) &&
		!o.source.Claim(s.Vehicle, s.External) {
		return errSameVID
	}
	return nil
}

// Torque appends its fields with a question mark even after another.
func queryOf(r *http.Request) string { return strings.ReplaceAll(r.URL.RawQuery, "?", "&") }

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
// missing end. Elements are not checked.
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
