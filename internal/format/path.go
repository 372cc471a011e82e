package format

import (
	"errors"
	"regexp"
	"slices"
	"strconv"

	"example.org/carstate/internal/jsonscan"
)

const maxSteps = 16

type step struct {
	name  string
	index int // -1: a member
}

var errPath = errors.New("a path is $ or @ (an item of each) and then .name, ['name'] or [0], at most 16 of these")

// Groups: three names and a number. Stored mappings may have $5].
var stepForm = regexp.MustCompile(`(?s)^(?:\.([^.[]+)|\['(.*?)'\]|\["(.*?)"\]|\[?([0-9]+)\])`)

// parsePath parses singular queries of RFC 9535; other texts are names of members. A relative path
// begins at an item of the list.
func parsePath(text string) (steps []step, relative bool, _ error) {
	if text == "" {
		return nil, false, errPath
	}
	if text[0] != '$' && text[0] != '@' {
		return []step{{text, -1}}, false, nil
	}
	for rest := text[1:]; rest != ""; {
		m := stepForm.FindStringSubmatch(rest)
		if m == nil || m[1] == "*" || len(steps) == maxSteps {
			return nil, false, errPath
		}
		s := step{m[1] + m[2] + m[3], -1}
		if m[4] != "" {
			i, err := strconv.ParseUint(m[4], 10, 16)
			if err != nil {
				return nil, false, errPath
			}
			s.index = int(i)
		}
		steps, rest = append(steps, s), rest[len(m[0]):]
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

// capture sets the slots of n and below it from the valid JSON value with which p begins. It reports
// whether a name that n looks for appears twice.
func (d *Decoder) capture(n *node, p *jsonscan.Scanner) (twice bool) {
	begin := p.Space()
	whole := p.Rest
	if len(n.next) == 0 || begin != '{' && begin != '[' {
		p.Value()
	} else {
		var seen []*node
		end := begin + 2 // } or ], in ASCII
		for i, more := 0, p.Open(begin, end); more; i, more = i+1, p.More(end) {
			var next *node
			if begin == '{' {
				next = n.next[step{string(p.Name()), -1}]
			} else {
				next = n.next[step{index: i}]
			}
			switch {
			case next == nil:
				p.Value()
			case slices.Contains(seen, next):
				twice = true
				p.Value()
			default:
				seen = append(seen, next)
				twice = d.capture(next, p) || twice
			}
		}
	}
	for _, slot := range n.slots {
		d.values[slot] = value{raw: whole[:len(whole)-len(p.Rest)]}
	}
	return twice
}
