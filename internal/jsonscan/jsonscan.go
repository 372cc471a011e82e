// Package jsonscan reads the JSON of senders, mostly without copies. It must know no sample.
package jsonscan

import (
	"bytes"
	"encoding/json/jsontext"
	"strconv"
)

// Scanner reads any valid JSON, and some that is not valid.
type Scanner struct {
	Rest []byte // nil after a failure, so every loop ends
	// Unusual is false after what programs mostly write, which is valid: plain ASCII without escapes,
	// each name once, no nesting in what is ignored, and numbers of at most 15 digits.
	Unusual bool
}

func (p *Scanner) Once(seen *bool) {
	p.Unusual = p.Unusual || *seen
	*seen = true
}

func (p *Scanner) Space() byte {
	for i, c := range p.Rest {
		if c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			p.Rest = p.Rest[i:]
			return c
		}
	}
	if p.Rest != nil {
		p.Rest = p.Rest[len(p.Rest):]
	}
	return 0
}

func (p *Scanner) take(c byte) {
	if p.Space() != c {
		p.Rest = nil
		return
	}
	p.Rest = p.Rest[1:]
}

// Open reads begin, and end if nothing is between them.
func (p *Scanner) Open(begin, end byte) bool {
	p.take(begin)
	if p.Space() == end {
		p.Rest = p.Rest[1:]
		return false
	}
	return p.Rest != nil
}

func (p *Scanner) More(end byte) bool {
	c := p.Space()
	if c != ',' && c != end {
		p.Rest = nil
		return false
	}
	p.Rest = p.Rest[1:]
	return c == ','
}

func (p *Scanner) Name() []byte {
	name := p.text()
	p.take(':')
	return name
}

func (p *Scanner) text() []byte {
	if p.Space() == '"' {
		for i := 1; i < len(p.Rest); i++ {
			c := p.Rest[i]
			if c == '"' {
				s := p.Rest[1:i]
				p.Rest = p.Rest[i+1:]
				return s
			}
			if c < ' ' || c == '\\' || c > '~' {
				return p.unusualText()
			}
		}
	}
	p.Rest = nil
	return nil
}

func (p *Scanner) unusualText() []byte {
	p.Unusual = true
	for i := 1; i < len(p.Rest); i++ {
		switch p.Rest[i] {
		case '\\':
			i++
		case '"':
			text, _ := jsontext.AppendUnquote(nil, p.Rest[:i+1])
			p.Rest = p.Rest[i+1:]
			return text
		}
	}
	p.Rest = nil
	return nil
}

// Texts yields all strings in a value, the names of members included.
func (p *Scanner) Texts(yield func([]byte) bool) {
	p.Unusual = p.Unusual || p.Space() != '"'
	for depth := 0; p.Rest != nil; {
		switch p.Space() {
		case '"':
			if !yield(p.text()) {
				return
			}
		case '{', '[':
			depth++
			p.Rest = p.Rest[1:]
		case '}', ']':
			depth--
			p.Rest = p.Rest[1:]
		case ',', ':':
			p.Rest = p.Rest[1:]
		default:
			p.Value()
		}
		if depth <= 0 {
			return
		}
	}
}

type Value struct {
	Kind   jsontext.Kind
	Text   []byte  // mostly a part of the input
	Number float64 // beyond float64, an infinity
}

func (p *Scanner) Value() Value {
	switch c := p.Space(); c {
	case '"':
		return Value{Kind: jsontext.KindString, Text: p.text()}
	case 't':
		return p.word("true")
	case 'f':
		return p.word("false")
	case 'n':
		return p.word("null")
	case '{', '[':
		p.skip()
		return Value{Kind: jsontext.Kind(c)}
	}
	return Value{Kind: jsontext.KindNumber, Number: p.number()}
}

// skip passes over an object or array: senders with a mapping send much that is not used.
func (p *Scanner) skip() {
	p.Unusual = true
	depth, inText := 0, false
	for i := 0; i < len(p.Rest); i++ {
		switch c := p.Rest[i]; {
		case c == '"':
			inText = !inText
		case inText && c == '\\':
			i++
		case inText:
		case c == '{', c == '[':
			depth++
		case c == '}', c == ']':
			if depth--; depth == 0 {
				p.Rest = p.Rest[i+1:]
				return
			}
		}
	}
	p.Rest = nil
}

func (p *Scanner) word(w string) Value {
	if len(p.Rest) < len(w) || string(p.Rest[:len(w)]) != w {
		p.Rest = nil
		return Value{}
	}
	p.Rest = p.Rest[len(w):]
	return Value{Kind: jsontext.Kind(w[0])}
}

func (p *Scanner) number() float64 {
	b, i := p.Rest, 0
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
	p.Rest = b[i:]
	v := float64(digits) / powersOfTen[places]
	if negative {
		return -v
	}
	return v
}

func (p *Scanner) unusualNumber() float64 {
	rest := bytes.TrimLeft(p.Rest, "+-.0123456789Ee")
	text := p.Rest[:len(p.Rest)-len(rest)]
	if p.Rest, p.Unusual = rest, true; len(text) == 0 {
		p.Rest = nil
	}
	v, _ := strconv.ParseFloat(string(text), 64)
	return v
}

var powersOfTen = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
