package ingest

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/signal"
)

// Limits of what a response tells of unknown signals.
const (
	maxIgnored     = 10 // distinct names of a batch
	maxIgnoredName = 80 // bytes; few VSS names have more than 64
)

type ignored struct {
	count   int
	unnamed int      // not in names
	names   []string // distinct
}

// note allocates only if the name is new.
func (g *ignored) note(name []byte) {
	g.count++
	switch {
	case slices.ContainsFunc(g.names, func(n string) bool { return n == string(name) }):
	case len(g.names) < maxIgnored && isShown(name):
		g.names = append(g.names, string(name))
	default:
		g.unnamed++
	}
}

// A name is like those of VSS, and not like a secret, because responses may be logged.
func isShown(name []byte) bool {
	const spelling = "-.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
	return len(name) > 0 && len(name) <= maxIgnoredName && len(bytes.Trim(name, spelling)) == 0 &&
		!access.HoldsSecret(string(name))
}

func (g *ignored) join(other *ignored) {
	g.count += other.count
	g.unnamed += other.unnamed
	for _, n := range other.names {
		if !slices.Contains(g.names, n) && len(g.names) < maxIgnored {
			g.names = append(g.names, n)
		}
	}
}

type report struct {
	Ignored    []string          `json:"ignored,omitempty"`
	DidYouMean map[string]string `json:"did_you_mean,omitempty"` // from an unknown name to a known one
	Unnamed    int               `json:"ignored_unnamed,omitempty"`
	Unused     []unusedCount     `json:"unused,omitempty"`
	Late       int               `json:"late,omitempty"`
}

func (b *batch) report() report {
	r := report{
		Ignored: b.ignored.names, DidYouMean: make(map[string]string), Unnamed: b.ignored.unnamed,
		Unused: b.unused.listed, Late: b.late,
	}
	for _, n := range b.ignored.names {
		if s, ok := similarSignal(n); ok {
			r.DidYouMean[n] = s
		}
	}
	return r
}

func (b *batch) inWords() string {
	parts := []string{b.ignored.inWords(), b.unused.inWords(), ""}
	if b.late > 0 {
		parts[2] = fmt.Sprintf("late samples: %d", b.late)
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "; ")
}

func (g *ignored) inWords() string {
	if g.count == 0 {
		return ""
	}
	var list []string
	for _, n := range g.names {
		list = append(list, n+suggestion(n))
	}
	if g.unnamed > 0 && len(list) > 0 {
		list = append(list, fmt.Sprintf("and %d more", g.unnamed))
	} else if g.unnamed > 0 {
		list = append(list, strconv.Itoa(g.unnamed))
	}
	return "unknown signals: " + strings.Join(list, ", ")
}

func suggestion(name string) string {
	if s, ok := similarSignal(name); ok {
		return " (did you mean " + s + "?)"
	}
	return ""
}

// Operators do not see the name, which may really be a value, such as a vid.
func refuseUnknown(name []byte) *refusal {
	const unknown = " is unknown, and this source is strict: it may send only known signals"
	if !isShown(name) {
		return refuse(access.UnknownSignal, "a signal"+unknown)
	}
	meant := suggestion(string(name)) + unknown
	r := refuse(access.UnknownSignal, string(name)+meant)
	r.shown = "a signal" + meant
	return r
}

func refuseUnused(v unusedValue) *refusal {
	return refuse(v.why.kind, string(v.name)+" "+v.why.text+", and this source is strict")
}

// maxEdits is in letters of a misspelt name.
const maxEdits = 2

// otherSignals resemble known names but mean something else.
var otherSignals = []string{
	"vehicle.currentlocation.altitude",
	"vehicle.obd.throttlepositionc",
	"vehicle.obd.acceleratorpositionf",
}

var (
	knownNames = signal.Names()
	lowerNames = strings.Fields(strings.ToLower(strings.Join(knownNames, " ")))
)

// similarSignal's known name ends with the unknown one, has a part less, as in VSS 2, differs in
// the fewest letters, or begins so.
func similarSignal(name string) (known string, ok bool) {
	name = strings.ToLower(name)
	switch {
	case slices.Contains(otherSignals, name):
		return "", false
	case name == "rpm":
		name = "enginespeed"
	}
	for i, lower := range lowerNames {
		if prefix, ok := strings.CutSuffix(lower, name); ok && strings.HasSuffix(prefix, ".") {
			return knownNames[i], true
		}
	}
	parts := strings.Split(name, ".")
	for i := 1; i < len(parts); i++ {
		shorter := strings.Join(slices.Delete(slices.Clone(parts), i, i+1), ".")
		if at := slices.Index(lowerNames, shorter); at >= 0 {
			return knownNames[at], true
		}
	}
	for edits := range maxEdits + 1 {
		for i, lower := range lowerNames {
			if withinEdits(name, lower, edits) {
				return knownNames[i], true
			}
		}
	}
	for i, lower := range lowerNames {
		last := lower[strings.LastIndexByte(lower, '.')+1:]
		if len(name) > 2 && (strings.HasPrefix(lower, name) || strings.HasPrefix(last, name)) {
			return knownNames[i], true
		}
	}
	return "", false
}

// The recursion mostly ends early.
func withinEdits(a, b string, edits int) bool {
	if max(len(a)-len(b), len(b)-len(a)) > edits {
		return false
	}
	for a != "" && b != "" && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	switch {
	case a == "" || b == "":
		return true
	case edits == 0:
		return false
	}
	return withinEdits(a[1:], b[1:], edits-1) || withinEdits(a[1:], b, edits-1) || withinEdits(a, b[1:], edits-1)
}
