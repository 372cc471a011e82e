package telemetry

import (
	"slices"
	"strings"

	"example.org/carstate/internal/signal"
)

const maxEdits = 2 // wrong letters of a misspelt name

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

// similarSignal returns a known name that ends with name, or is name without one part (names of VSS
// 2 have more parts), or differs in the fewest letters, or begins with name.
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
