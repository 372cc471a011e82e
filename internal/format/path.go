package format

import (
	"encoding/json/jsontext"
	"errors"
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

// capture reads the next JSON value, and sets the slots of n and of the nodes below it.
func (d *Decoder) capture(n *node) error {
	kind := d.json.PeekKind()
	isObject := kind == jsontext.KindBeginObject
	if n == nil || len(n.next) == 0 || !isObject && kind != jsontext.KindBeginArray {
		v, err := d.json.ReadValue()
		if n != nil && err == nil {
			d.set(n, int(d.json.InputOffset())-len(v))
		}
		return err
	}
	if _, err := d.json.ReadToken(); err != nil {
		return err
	}
	begin := int(d.json.InputOffset()) - 1
	for i := 0; ; i++ {
		switch d.json.PeekKind() {
		case jsontext.KindEndObject, jsontext.KindEndArray:
			_, err := d.json.ReadToken()
			if err == nil {
				d.set(n, begin)
			}
			return err
		}
		at := step{index: i}
		if isObject {
			name, err := d.json.ReadToken()
			if err != nil {
				return err
			}
			at = step{name.String(), -1}
		}
		if err := d.capture(n.next[at]); err != nil {
			return err
		}
	}
}

// set stores the value that begins at the offset, and ends where the decoder is, in the slots of n.
func (d *Decoder) set(n *node, begin int) {
	for _, slot := range n.slots {
		d.values[slot] = value{raw: d.body[d.base:][begin:d.json.InputOffset()]}
	}
}
