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
	index int // -1: a member
}

var errPath = errors.New("a path is $ or @ (an item of each) and then .name, ['name'] or [0], at most 16 of these")

// parsePath parses singular queries of RFC 9535; other texts are names of members. A relative one
// begins at an item of the list.
func parsePath(text string) (steps []step, relative bool, _ error) {
	if text == "" {
		return nil, false, errPath
	}
	if text[0] != '$' && text[0] != '@' {
		return []step{{text, -1}}, false, nil
	}
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
				return nil, false, errPath
			}
		case len(rest) > 1 && rest[0] == '[' && (rest[1] == '\'' || rest[1] == '"'):
			name, after, ok := strings.Cut(rest[2:], rest[1:2]+"]")
			if s.name, rest = name, after; !ok {
				return nil, false, errPath
			}
		default:
			number, after, ok := strings.Cut(rest, "]")
			i, err := strconv.ParseUint(strings.TrimPrefix(number, "["), 10, 16)
			if !ok || err != nil {
				return nil, false, errPath
			}
			s.index, rest = int(i), after
		}
		if steps = append(steps, s); len(steps) > maxSteps {
			return nil, false, errPath
		}
	}
	return steps, text[0] == '@', nil
}

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

// capture sets the slots of n and below it from the valid JSON value with which b begins. It fails
// if a name that n looks for appears twice.
func (d *Decoder) capture(n *node, b []byte) (rest []byte, err error) {
	if isObject := b[0] == '{'; len(n.next) == 0 || !isObject && b[0] != '[' {
		_, rest = cutValue(b)
	} else {
		var seen []*node
		rest = skipSpace(b[1:])
		for i := 0; rest[0] != '}' && rest[0] != ']'; i++ {
			next := n.next[step{index: i}]
			if isObject {
				var name []byte
				name, rest = cutValue(rest)
				d.name, _ = jsontext.AppendUnquote(d.name[:0], name)
				next = n.next[step{string(d.name), -1}]
			}
			switch rest = skipSpace(rest); {
			case next == nil:
				_, rest = cutValue(rest)
			case slices.Contains(seen, next):
				return nil, ErrSyntax
			default:
				seen = append(seen, next)
				if rest, err = d.capture(next, rest); err != nil {
					return nil, err
				}
			}
			rest = skipSpace(rest)
		}
		rest = rest[1:]
	}
	for _, slot := range n.slots {
		d.values[slot] = value{raw: b[:len(b)-len(rest)]}
	}
	return rest, nil
}

func elements(raw []byte) iter.Seq[[]byte] {
	return func(yield func(v []byte) bool) {
		for rest := skipSpace(raw[1:]); rest[0] != ']'; rest = skipSpace(rest) {
			var v []byte
			if v, rest = cutValue(rest); !yield(v) {
				return
			}
		}
	}
}

// skipSpace skips commas and colons, too.
func skipSpace(b []byte) []byte {
	for b[0] <= ' ' || b[0] == ',' || b[0] == ':' {
		b = b[1:]
	}
	return b
}

// cutValue needs a valid JSON value at the beginning of b.
func cutValue(b []byte) (v, rest []byte) {
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
			if end = bytes.IndexAny(b, ",]} \t\r\n") - 1; end < 0 {
				end = len(b) - 1
			}
		}
		if depth == 0 {
			return b[: end+1 : end+1], b[end+1:]
		}
	}
}
