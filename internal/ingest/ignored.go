package ingest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"carstate/internal/access"
	"carstate/internal/vehicle"
)

// Bounds of what an answer repeats of the names of unknown signals.
const (
	maxIgnored     = 10 // distinct names of a batch
	maxIgnoredName = 80 // characters of a name; few names of VSS have more than 64
)

// ignored describes the signals whose names are unknown.
type ignored struct {
	count   int      // signals
	unnamed int      // those of them whose name is not in names
	names   []string // distinct, sorted once the batch is whole; at most maxIgnored
	first   []byte   // the name of the first one counted; empty if it cannot be shown

	times [maxIgnored]int // how often each of names was counted, in the whole batch
}

// note counts a signal. It allocates only for a name that is new.
func (g *ignored) note(name []byte) {
	at := slices.IndexFunc(g.names, func(s string) bool { return s == string(name) })
	shown := at >= 0 || isShown(name)
	if g.count++; g.count == 1 {
		g.first = g.first[:0]
		if shown {
			g.first = append(g.first, name...)
		}
	}
	switch {
	case at >= 0:
		g.times[at]++
	case shown && len(g.names) < maxIgnored:
		g.times[len(g.names)] = 1
		g.names = append(g.names, string(name))
	default:
		g.unnamed++
	}
}

// isShown reports whether an answer may repeat the name. All names of VSS are of this form.
func isShown(name []byte) bool {
	if len(name) == 0 || len(name) > maxIgnoredName {
		return false
	}
	for _, c := range name {
		if c-'0' > 9 && c-'A' > 25 && c-'a' > 25 && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// forget begins the next sample. The names stay: they are of the whole batch.
func (g *ignored) forget() { g.count, g.unnamed = 0, 0 }

// add counts the signals of one sample. It leaves out their names.
func (g *ignored) add(sample *ignored) {
	g.count += sample.count
	g.unnamed += sample.unnamed
}

// begin begins the next batch.
func (g *ignored) begin() { g.names, g.times = g.names[:0], [maxIgnored]int{} }

// take takes over the names of a batch that was read, sorted.
func (g *ignored) take(read *ignored) {
	g.names = slices.Sorted(slices.Values(read.names))
	for i, name := range read.names {
		at, _ := slices.BinarySearch(g.names, name)
		g.times[at] = read.times[i]
	}
}

// join adds the signals of another batch, and as many of its names as there is room for.
func (g *ignored) join(other *ignored) {
	g.add(other)
	for i, name := range other.names {
		at := slices.Index(g.names, name)
		if at < 0 && len(g.names) < maxIgnored {
			at, g.names = len(g.names), append(g.names, name)
		}
		if at >= 0 {
			g.times[at] += other.times[i]
		}
	}
}

// countFor counts the signals by name for a source.
func (g *ignored) countFor(source *access.Grant) {
	for i, name := range g.names {
		if g.times[i] > 0 && isKept(name) {
			source.CountIgnored(name, g.times[i])
		}
	}
}

// maxDigits is how many digits the name of a signal may have and be kept. Names of VSS have two at
// most; positions and times have more.
const maxDigits = 4

// isKept reports whether a name that is shown to its sender may be kept and shown to operators:
// one of VSS, or one that resembles a known one. Others can be anything that a sender has put in
// the place of a name, such as the id of a vehicle.
func isKept(name string) bool {
	digits := 0
	for _, c := range []byte(name) {
		if c-'0' <= 9 {
			digits++
		}
	}
	if digits > maxDigits || access.HoldsSecret(name) {
		return false
	}
	if strings.HasPrefix(name, "Vehicle.") {
		return true
	}
	_, similar := resembling(name)
	return similar
}

// report is what an answer by HTTP says of the unknown signals of a batch.
type report struct {
	Ignored    []string          `json:"ignored,omitempty"`      // names
	DidYouMean map[string]string `json:"did_you_mean,omitempty"` // known names, by the unknown ones that resemble them
	Unnamed    int               `json:"ignored_unnamed,omitempty"`
}

func (g *ignored) report() report {
	r := report{Ignored: g.names, Unnamed: g.unnamed}
	for _, name := range g.names {
		s, ok := resembling(name)
		if ok && r.DidYouMean == nil {
			r.DidYouMean = make(map[string]string)
		}
		if ok {
			r.DidYouMean[name] = s.String()
		}
	}
	return r
}

// inWords lists the names in one line. It is empty if all signals are known.
func (g *ignored) inWords() string {
	if g.count == 0 {
		return ""
	}
	var list []string
	for _, name := range g.names {
		list = append(list, question(name))
	}
	if g.unnamed > 0 && len(list) > 0 {
		list = append(list, fmt.Sprintf("and %d more", g.unnamed))
	} else if g.unnamed > 0 {
		list = append(list, strconv.Itoa(g.unnamed))
	}
	return "unknown signals: " + strings.Join(list, ", ")
}

// question returns the name, and which known one may be meant.
func question(name string) string {
	if s, ok := resembling(name); ok {
		return name + " (did you mean " + s.String() + "?)"
	}
	return name
}

// refusal refuses a sample of a strict source.
func (g *ignored) refusal() *refusal {
	what := "a signal"
	if len(g.first) > 0 {
		what = question(string(g.first))
	}
	return refuse(access.UnknownSignal, what+" is not known, and this source is strict: it takes known signals only")
}

// maxEdits is how many letters a misspelt name may have wrong, missing or too many.
const maxEdits = 2

// otherSignals are names of VSS that resemble known ones and mean something else, in lower case.
var otherSignals = []string{
	"vehicle.currentlocation.altitude",
	"vehicle.obd.throttlepositionc",
	"vehicle.obd.acceleratorpositionf",
}

// lowerNames are the names of the signals in lower case.
var lowerNames = func() (names [vehicle.NumSignals]string) {
	for s := range names {
		names[s] = strings.ToLower(vehicle.Signal(s).String())
	}
	return names
}()

// resembling returns the known signal whose name is nearest to that of an unknown one, upper and
// lower case being the same. There is none beyond maxEdits.
func resembling(name string) (s vehicle.Signal, ok bool) {
	name = strings.ToLower(name)
	if slices.Contains(otherSignals, name) {
		return 0, false
	}
	for edits := range maxEdits + 1 {
		for s, known := range lowerNames {
			if within(name, known, edits) {
				return vehicle.Signal(s), true
			}
		}
	}
	return 0, false
}

// within reports whether so many edits turn a into b. Most pairs differ soon, or in length.
func within(a, b string, edits int) bool {
	if max(len(a)-len(b), len(b)-len(a)) > edits {
		return false
	}
	for a != "" && b != "" && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	switch {
	case a == "" || b == "":
		return true // the lengths differ by no more than edits
	case edits == 0:
		return false
	}
	return within(a[1:], b[1:], edits-1) || within(a[1:], b, edits-1) || within(a, b[1:], edits-1)
}
