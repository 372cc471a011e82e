package format

import (
	"bytes"
	"encoding/json/jsontext"
	"errors"
	"iter"
	"slices"
	"strconv"
	"strings"
)

const maxSteps = 16

type step struct {
	name  string
	index int // of an array; -1: the member name of an object
}

type jsonPath struct {
	relative bool // begins at an item of the list
	steps    []step
}

var errPath = errors.New("a path is $ or @ (an item of each) and then .name, ['name'] or [0], at most 16 of these")

// parsePath parses the singular queries of RFC 9535, such as $.data[0]['Vehicle.Speed']. A text that
// begins with neither $ nor @ is the name of a member.
func parsePath(text string) (p jsonPath, _ error) {
	if text == "" {
		return p, errPath
	}
	if text[0] != '$' && text[0] != '@' {
		p.steps = []step{{text, -1}}
		return p, nil
	}
	p.relative = text[0] == '@'
	for rest := text[1:]; rest != ""; {
		s := step{index: -1}
		switch {
		case rest[0] == '.':
			end := strings.IndexAny(rest[1:], ".[")
			if end < 0 {
				end = len(rest) - 1
			}
			s.name, rest = rest[1:1+end], rest[1+end:]
			if s.name == "" || s.name == "*" {
				return p, errPath
			}
		case len(rest) > 1 && rest[0] == '[' && (rest[1] == '\'' || rest[1] == '"'):
			name, after, ok := strings.Cut(rest[2:], rest[1:2]+"]")
			if s.name, rest = name, after; !ok {
				return p, errPath
			}
		default:
			number, after, ok := strings.Cut(rest, "]")
			i, err := strconv.ParseUint(strings.TrimPrefix(number, "["), 10, 16)
			if !ok || err != nil {
				return p, errPath
			}
			s.index, rest = int(i), after
		}
		if p.steps = append(p.steps, s); len(p.steps) > maxSteps {
			return p, errPath
		}
	}
	return p, nil
}

// node is a position in a message that paths lead through.
type node struct {
	slots []int
	next  map[step]*node
}

func (n *node) add(steps []step, slot int) {
	for _, s := range steps {
		if n.next[s] == nil {
			if n.next == nil {
				n.next = make(map[step]*node)
			}
			n.next[s] = new(node)
		}
		n = n.next[s]
	}
	n.slots = append(n.slots, slot)
}

// capture sets the slots of n and of the nodes below it from a valid JSON value. It fails if an object
// has a name twice that n looks for.
func (d *Decoder) capture(n *node, raw []byte) error {
	for _, slot := range n.slots {
		d.values[slot] = value{raw: raw}
	}
	if len(n.next) == 0 || raw[0] != '{' && raw[0] != '[' {
		return nil
	}
	var seen []*node
	i := 0
	for name, v := range members(raw) {
		next := n.next[step{index: i}]
		if i++; name != nil {
			d.name, _ = jsontext.AppendUnquote(d.name[:0], name) // it is valid
			next = n.next[step{string(d.name), -1}]
		}
		if next == nil {
			continue
		}
		if slices.Contains(seen, next) || d.capture(next, v) != nil {
			return ErrSyntax
		}
		seen = append(seen, next)
	}
	return nil
}

// members returns the quoted names and the values of a valid JSON object, or the elements of an array
// without names.
func members(raw []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, v []byte) bool) {
		for rest := raw[1:]; ; {
			var name, v []byte
			if v, rest = cutValue(rest); v == nil {
				return
			}
			if raw[0] == '{' {
				name = v
				v, rest = cutValue(rest)
			}
			if !yield(name, v) {
				return
			}
		}
	}
}

// cutValue returns the next value in an object or array of valid JSON and what follows it. At the end,
// v is nil.
func cutValue(b []byte) (v, rest []byte) {
	for b[0] <= ' ' || b[0] == ',' || b[0] == ':' {
		b = b[1:]
	}
	for end, depth := 0, 0; ; end++ {
		switch c := b[end]; {
		case c == '"':
			for end++; b[end] != '"'; end++ {
				if b[end] == '\\' {
					end++
				}
			}
		case c == '{', c == '[':
			depth++
		case c == '}', c == ']':
			depth--
		case depth == 0: // a number, true, false or null
			end += bytes.IndexAny(b, ",]} \t\r\n") - 1
		}
		if depth < 0 {
			return nil, nil
		}
		if depth == 0 {
			return b[: end+1 : end+1], b[end+1:]
		}
	}
}
