package telemetry

import (
	"encoding/json/jsontext"
	"slices"

	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

// maxUnknown is how many ignored names of an object usual compares.
const maxUnknown = 16

// usual reads what programs write: plain ASCII without escapes, each member once, no nesting in
// what is ignored, and numbers of at most 15 digits. It returns false for any other line, and for a
// refused one, whose reason general finds.
func (d *decoder) usual(line []byte, topic vehicle.ID, latest signal.UnixMilli) (x vehicle.Sample, ok bool) {
	d.begin()
	p := scanner{line}
	var hasVID, hasTime, hasSignals bool
	var why *Refusal
	x.Vehicle = topic
	for more := p.open('{', '}'); more && why == nil; more = p.more('}') {
		name := p.name()
		switch string(name) {
		case "vid":
			p.once(&hasVID)
			x.Vehicle, why = d.vid(p.value(), topic)
		case "time":
			p.once(&hasTime)
			x.Time, why = timeOf(p.value(), latest)
		case "signals":
			p.once(&hasSignals)
			d.usualSignals(&p, &x.Readings)
		default:
			d.members = p.ignore(d.members, name)
		}
	}
	p.space()
	return x, why == nil && p.rest != nil && len(p.rest) == 0 && missing(&x, hasSignals) == nil
}

func (d *decoder) usualSignals(p *scanner, r *signal.Readings) {
	var seen [signal.Num]bool
	for more := p.open('{', '}'); more; more = p.more('}') {
		name := p.name()
		s, ok := signal.ByName(name)
		switch {
		case !ok:
			d.unknown = p.ignore(d.unknown, name)
			continue
		case s == signal.DTCList && p.space() != 'n':
			d.note(name, s, d.usualCodes(p, r))
		default:
			d.note(name, s, set(s, p.value(), r))
		}
		p.once(&seen[s])
	}
	d.dropHalf(r)
}

func (d *decoder) usualCodes(p *scanner, r *signal.Readings) *Refusal {
	c := d.codesOf(r)
	if p.space() == '"' {
		c.entry(c.add(p.text()))
		return c.set(r)
	}
	for more := p.open('[', ']'); more; more = p.more(']') {
		c.entry(c.add(p.text()))
	}
	return c.set(r)
}

// rest is nil after a failure, so every loop ends.
type scanner struct{ rest []byte }

func (p *scanner) once(seen *bool) {
	if *seen {
		p.rest = nil
	}
	*seen = true
}

func (p *scanner) space() byte {
	for i, c := range p.rest {
		if c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			p.rest = p.rest[i:]
			return c
		}
	}
	if p.rest != nil {
		p.rest = p.rest[len(p.rest):]
	}
	return 0
}

func (p *scanner) take(c byte) {
	if p.space() != c {
		p.rest = nil
		return
	}
	p.rest = p.rest[1:]
}

// open reads begin, and end if nothing is between them.
func (p *scanner) open(begin, end byte) bool {
	p.take(begin)
	if p.space() == end {
		p.rest = p.rest[1:]
		return false
	}
	return p.rest != nil
}

func (p *scanner) more(end byte) bool {
	c := p.space()
	if c != ',' && c != end {
		p.rest = nil
		return false
	}
	p.rest = p.rest[1:]
	return c == ','
}

func (p *scanner) name() []byte {
	name := p.text()
	p.take(':')
	return name
}

func (p *scanner) text() []byte {
	if p.space() == '"' {
		for i := 1; i < len(p.rest); i++ {
			c := p.rest[i]
			if c == '"' {
				s := p.rest[1:i]
				p.rest = p.rest[i+1:]
				return s
			}
			if c < ' ' || c == '\\' || c > '~' {
				break
			}
		}
	}
	p.rest = nil
	return nil
}

func (p *scanner) value() value {
	switch c := p.space(); c {
	case '"':
		return value{kind: jsontext.KindString, text: p.text()}
	case 't':
		return p.word("true")
	case 'f':
		return p.word("false")
	case 'n':
		return p.word("null")
	}
	return value{kind: jsontext.KindNumber, number: p.number()}
}

func (p *scanner) word(w string) value {
	if len(p.rest) < len(w) || string(p.rest[:len(w)]) != w {
		p.rest = nil
		return value{}
	}
	p.rest = p.rest[len(w):]
	return value{kind: jsontext.Kind(w[0])}
}

func (p *scanner) number() float64 {
	b, i := p.rest, 0
	negative := i < len(b) && b[i] == '-'
	if negative {
		i++
	}
	var digits uint64 // without the point
	first := i
	for ; i < len(b) && isDigit(b[i]); i++ {
		digits = 10*digits + uint64(b[i]-'0')
	}
	n, places := i-first, 0
	if i < len(b) && b[i] == '.' {
		for i++; i < len(b) && isDigit(b[i]); i++ {
			digits = 10*digits + uint64(b[i]-'0')
			places++
		}
		if places == 0 {
			n = 0
		}
	}
	// Numbers of up to 15 digits and powers of ten are exact as float64, so only their quotient is
	// rounded, as by ParseFloat.
	if n == 0 || n > 1 && b[first] == '0' || n+places > 15 || i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		p.rest = nil
		return 0
	}
	p.rest = b[i:]
	v := float64(digits) / powersOfTen[places]
	if negative {
		return -v
	}
	return v
}

var powersOfTen = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func (p *scanner) ignore(names [][]byte, name []byte) [][]byte {
	if len(names) == maxUnknown ||
		slices.ContainsFunc(names, func(other []byte) bool { return string(other) == string(name) }) {
		p.rest = nil
	}
	p.value()
	return append(names, name)
}
