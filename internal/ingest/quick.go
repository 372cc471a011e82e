package ingest

import (
	"slices"

	"carstate/internal/vehicle"
)

// Most lines have the form that a program writes: plain ASCII without escapes, each member once,
// and no nesting in members that are ignored. quick decodes such a line in a third of the time that
// a general parser takes. It gives up on every other line, above all on an invalid one. The general
// parser (decode.go) then decodes the line, and determines what is wrong with an invalid line. If
// quick does not give up on a line, the general parser must accept this line, too, with the same
// result. FuzzQuick verifies this.

// maxUnknown is the maximum number of ignored members of an object whose names the fast parser
// (quick) remembers, to find duplicates. If an object has more, the general parser decodes the
// line.
const maxUnknown = 16

// quick is a fast parser for lines as most programs write them: ASCII without escapes, each member
// once, and no nesting in ignored members. It gives up on any other line, which the general parser
// then decodes. Its methods give up by calling fail.
type quick struct {
	rest    []byte
	members [][]byte // names of the line's ignored members
	unknown [][]byte // names of the line's unknown signals
}

// sample does what [Decoder.Sample] does, for the decoder d. If ok is false, quick gave up: x is
// then meaningless, and the general parser must decode the line.
func (q *quick) sample(d *Decoder, line []byte, topic vehicle.ID, latest vehicle.UnixMilli) (
	x vehicle.Sample, ok bool,
) {
	q.rest, q.members, q.unknown = line, q.members[:0], q.unknown[:0]
	var hasVID, hasTime, hasSignals bool
	x.Vehicle = topic
	for more := q.begin('{', '}'); more; more = q.more('}') {
		name := q.text()
		q.take(':')
		switch string(name) {
		case "vid":
			q.once(&hasVID)
			x.Vehicle = q.vid(d, topic)
		case "time":
			q.once(&hasTime)
			x.Time = q.time(latest)
		case "signals":
			q.once(&hasSignals)
			q.signals(d, &x.Readings)
		default:
			q.skip(&q.members, name)
		}
	}
	q.space()
	if q.rest == nil || len(q.rest) > 0 || x.Vehicle == "" || x.Time == 0 || !hasSignals {
		return x, false
	}
	for _, name := range q.unknown {
		d.ignored.note(name)
	}
	return x, true
}

// once notes that a member was seen. If it was seen before, quick gives up on the line.
func (q *quick) once(seen *bool) {
	if *seen {
		q.fail()
	}
	*seen = true
}

// fail gives up on the line. It discards the rest of the line, so that nothing more is read and
// every loop ends.
func (q *quick) fail() { q.rest = nil }

// space skips white space and returns the next byte without reading it, or 0 at the end.
func (q *quick) space() byte {
	for i, c := range q.rest {
		if c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			q.rest = q.rest[i:]
			return c
		}
	}
	if q.rest != nil {
		q.rest = q.rest[len(q.rest):]
	}
	return 0
}

// take skips white space and reads the byte c. If the next byte is another one, quick gives up, and
// the general parser decodes the line instead.
func (q *quick) take(c byte) {
	if q.space() != c {
		q.fail()
		return
	}
	q.rest = q.rest[1:]
}

// begin reads open, the opening byte of an object or array, and reports whether a member or element
// follows. If the object or array is empty, begin also reads end, its closing byte. If another byte
// than open follows, quick gives up on the line, and begin returns false.
func (q *quick) begin(open, end byte) bool {
	q.take(open)
	if q.space() == end {
		q.rest = q.rest[1:]
		return false
	}
	return q.rest != nil
}

// more reports whether another member or element follows. It is called after a member or element.
// If a comma follows, more reads the comma and returns true. If end follows, the closing byte of
// the object or array, more reads this byte and returns false. If another byte follows, quick gives
// up on the line, and more returns false.
func (q *quick) more(end byte) bool {
	switch q.space() {
	case ',':
		q.rest = q.rest[1:]
		return true
	case end:
		q.rest = q.rest[1:]
		return false
	}
	q.fail()
	return false
}

// text reads a JSON string and returns its content, a part of the line. If no string follows, or
// the string has an escape or a character outside ASCII, quick gives up on the line, and text
// returns nil.
func (q *quick) text() []byte {
	if q.space() != '"' {
		q.fail()
		return nil
	}
	for i := 1; i < len(q.rest); i++ {
		switch c := q.rest[i]; {
		case c == '"':
			s := q.rest[1:i]
			q.rest = q.rest[i+1:]
			return s
		case c < ' ' || c == '\\' || c > '~':
			q.fail()
			return nil
		}
	}
	q.fail()
	return nil
}

// number reads a JSON number and returns its value. If no number follows, or it has an exponent or
// more than 15 digits, quick gives up on the line, and number returns 0.
func (q *quick) number() (v float64) {
	q.space()
	b, i := q.rest, 0
	negative := i < len(b) && b[i] == '-'
	if negative {
		i++
	}
	var digits uint64 // all digits, without the decimal point
	first := i
	for ; i < len(b) && isDigit(b[i]); i++ {
		digits = 10*digits + uint64(b[i]-'0')
	}
	n := i - first
	if n == 0 || n > 1 && b[first] == '0' {
		q.fail()
		return 0
	}
	places := 0
	if i < len(b) && b[i] == '.' {
		for i++; i < len(b) && isDigit(b[i]); i++ {
			digits = 10*digits + uint64(b[i]-'0')
			places++
		}
		if places == 0 {
			q.fail()
			return 0
		}
	}
	// A number of up to 15 digits is exact as a float64, and so is the power of ten. So only their
	// quotient is rounded, and it equals the result of ParseFloat.
	if n+places > 15 || i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		q.fail()
		return 0
	}
	q.rest = b[i:]
	v = float64(digits) / powersOfTen[places]
	if negative {
		return -v
	}
	return v
}

var powersOfTen = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}

// word reads the word w, which is true, false or null. If another text follows, quick gives up on
// the line.
func (q *quick) word(w string) {
	if len(q.rest) < len(w) || string(q.rest[:len(w)]) != w {
		q.fail()
		return
	}
	q.rest = q.rest[len(w):]
}

// skip reads the value of an ignored member with the given name. names has the names of the ignored
// members of the same object; skip adds this name. quick gives up on the line in three cases: the
// object already had an ignored member with this name, the object has more than maxUnknown ignored
// members, or the value is an object or array.
func (q *quick) skip(names *[][]byte, name []byte) {
	for _, other := range *names {
		if string(other) == string(name) {
			q.fail()
			return
		}
	}
	if len(*names) == maxUnknown {
		q.fail()
		return
	}
	*names = append(*names, name)
	switch q.space() {
	case '"':
		q.text()
	case 't':
		q.word("true")
	case 'f':
		q.word("false")
	case 'n':
		q.word("null")
	default:
		q.number() // gives up if the value is nested
	}
}

func (q *quick) vid(d *Decoder, topic vehicle.ID) vehicle.ID {
	b := q.text()
	switch {
	case topic != "":
		if string(b) != string(topic) {
			q.fail()
		}
		return topic
	case len(b) > 0 && string(b) == string(d.lastVID):
		return d.lastVID
	case len(b) > vehicle.MaxReportingID || vehicle.CheckID(b) != nil:
		q.fail()
		return ""
	}
	d.lastVID = vehicle.ID(b)
	return d.lastVID
}

func (q *quick) time(latest vehicle.UnixMilli) vehicle.UnixMilli {
	var at vehicle.UnixMilli
	if q.space() == '"' {
		var ok bool
		if at, ok = parseRFC3339(q.text()); !ok {
			q.fail()
		}
	} else {
		at = vehicle.UnixMilli(q.number())
	}
	if at < earliest || at > latest {
		q.fail()
	}
	return at
}

func (q *quick) signals(d *Decoder, r *vehicle.Readings) {
	var seen [vehicle.NumSignals]bool
	for more := q.begin('{', '}'); more; more = q.more('}') {
		name := q.text()
		q.take(':')
		s, ok := vehicle.SignalByName(name)
		if !ok {
			q.skip(&q.unknown, name)
			continue
		}
		q.once(&seen[s])
		q.space()
		var err error
		switch s {
		case vehicle.DTCList:
			err = r.SetCodes(q.codes(d))
		case vehicle.MILOn:
			v := 0.0
			if len(q.rest) > 0 && q.rest[0] == 't' {
				q.word("true")
				v = 1
			} else {
				q.word("false")
			}
			err = r.Set(s, v)
		case vehicle.LowVoltageSystemState:
			var i vehicle.Ignition
			if i, err = vehicle.ParseIgnition(string(q.text())); err == nil {
				err = r.SetIgnition(i)
			}
		default:
			err = r.Set(s, q.number())
		}
		if err != nil {
			q.fail()
			return
		}
	}
}

func (q *quick) codes(d *Decoder) []vehicle.TroubleCode {
	n := 0
	for more := q.begin('[', ']'); more; more = q.more(']') {
		c, err := vehicle.ParseTroubleCode(string(q.text()))
		if err != nil || n == maxCodes {
			q.fail()
			return nil
		}
		d.codes[n] = c
		n++
	}
	// The clone has no spare capacity, because the sample may wait long to be stored.
	return slices.Clone(d.codes[:n])
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
