package telemetry

import (
	"bytes"
	"encoding/json/jsontext"
	"slices"
	"strconv"
)

const maxUnknown = 16 // ignored names of an object that are searched for duplicates

// scanner reads any valid JSON, and some that is not valid.
type scanner struct {
	rest []byte // nil after a failure, so every loop ends
	// unusual is false after what programs mostly write, which is valid: plain ASCII without escapes,
	// each name once, no nesting in what is ignored, and numbers of at most 15 digits.
	unusual bool
}

func (p *scanner) once(seen *bool) {
	p.unusual = p.unusual || *seen
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
				return p.unusualText()
			}
		}
	}
	p.rest = nil
	return nil
}

func (p *scanner) unusualText() []byte {
	p.unusual = true
	for i := 1; i < len(p.rest); i++ {
		switch p.rest[i] {
		case '\\':
			i++
		case '"':
			text, _ := jsontext.AppendUnquote(nil, p.rest[:i+1])
			p.rest = p.rest[i+1:]
			return text
		}
	}
	p.rest = nil
	return nil
}

// texts yields all strings in a value, the names of members included.
func (p *scanner) texts(yield func([]byte) bool) {
	if p.space() == '"' {
		yield(p.text())
		return
	}
	p.unusual = true
	for depth := 0; p.rest != nil; {
		switch p.space() {
		case '"':
			yield(p.text())
		case '{', '[':
			depth++
			p.rest = p.rest[1:]
		case '}', ']':
			depth--
			p.rest = p.rest[1:]
		case ',', ':':
			p.rest = p.rest[1:]
		default:
			p.value()
		}
		if depth <= 0 {
			return
		}
	}
}

type value struct {
	kind   jsontext.Kind
	text   []byte  // valid until the next line
	number float64 // beyond float64, an infinity
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
	case '{', '[':
		for range p.texts {
		}
		return value{kind: jsontext.Kind(c)}
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
		return p.unusualNumber()
	}
	p.rest = b[i:]
	v := float64(digits) / powersOfTen[places]
	if negative {
		return -v
	}
	return v
}

func (p *scanner) unusualNumber() float64 {
	rest := bytes.TrimLeft(p.rest, "+-.0123456789Ee")
	text := p.rest[:len(p.rest)-len(rest)]
	if p.rest, p.unusual = rest, true; len(text) == 0 {
		p.rest = nil
	}
	v, _ := strconv.ParseFloat(string(text), 64)
	return v
}

var powersOfTen = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func (p *scanner) ignore(names [][]byte, name []byte) [][]byte {
	p.unusual = p.unusual || len(names) >= maxUnknown ||
		slices.ContainsFunc(names, func(other []byte) bool { return string(other) == string(name) })
	p.value()
	return append(names, name)
}
