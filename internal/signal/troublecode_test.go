package signal_test

import (
	"fmt"
	"testing"

	"example.org/carstate/internal/signal"
)

func TestIsThrottleBoundaries(t *testing.T) {
	for code, want := range map[string]bool{
		"P0119": false, "P0120": true, "P0122": true, "P0124": true, "P0125": false,
		"P0219": false, "P0220": true, "P0225": true, "P0229": true, "P0230": false,
		"P050F": false, "P0510": true, "P0511": false,
		"P060C": false, "P060D": true, "P060E": true, "P060F": false, "P061E": false, "P061F": true, "P0620": false,
		"P0637": false, "P0638": true, "P0639": true, "P063A": false, "P0640": false,
		"P2099": false, "P2100": true, "P210A": true, "P210D": true, "P210E": false, "P2110": true, "P2119": true,
		"P211A": false, "P2120": true, "P2129": true, "P212A": true, "P212F": true, "P2130": true, "P2139": true,
		"P213A": false, "P2140": true, "P2141": false,
		"P2162": false, "P2163": true, "P2168": true, "P2169": false,
		"P2171": false, "P2172": true, "P2176": true, "P2177": false,
		"U0106": false, "U0107": true, "U0108": false,
		// A sensor of the engine's air or its idle speed, or the output for other computers.
		"P0068": false, "P012A": false, "P022F": false, "P0506": false, "P0507": false, "P2621": false,
		// The same digits in another system mean something else, and makers give them any meaning.
		"C0120": false, "B0120": false, "U0120": false, "P0107": false, "P1120": false, "P1125": false, "P3120": false,
		"P0000": false, "P0300": false, "P0420": false,
	} {
		codes, _ := signal.TroubleCodes(code)
		if len(codes) != 1 || codes[0].String() != code {
			t.Fatalf("%s: got %s, want it back", code, codes)
		}
		if got := codes[0].IsThrottle(); got != want {
			t.Errorf("%s: throttle = %v, want %v", code, got, want)
		}
	}
	if (signal.TroubleCode{}).IsThrottle() {
		t.Error("no code at all: got a throttle code, want none")
	}
}

func TestTroubleCodes(t *testing.T) {
	for in, want := range map[string]string{
		"P0120":                "[P0120] true",
		"p0120":                "[P0120] true",
		"p210a":                "[P210A] true",
		"U3FFF":                "[U3FFF] true",
		"P0120-13":             "[P0120] true",
		"P0120:1a":             "[P0120] true",
		"P012013":              "[P0120] true",
		"P P012 P01200":        "[] false",
		"P0120133 P012013G":    "[] false",
		"P4120 X0120 P012G":    "[] false",
		"0120P P01\x000":       "[] false",
		"Pſ120 PO120 P０120":    "[] false",
		" P2135":               "[P2135] true",
		"p2135-62 (pending)":   "[P2135] true",
		"stored:P2135;P0300":   "[P2135 P0300] true",
		"P2135/17951 Throttle": "[P2135] true",
		"P01200 XP0120 ÄP0120": "[] false",
		"":                     "[] false",
		"n/a":                  "[] false",
		"17951":                "[] false",
		"None":                 "[] true",
		" no trouble codes\n":  "[] true",
		"no data":              "[] false",
		"none (timeout)":       "[] false",
	} {
		codes, ok := signal.TroubleCodes(in)
		if got := fmt.Sprint(codes, ok); got != want {
			t.Errorf("TroubleCodes(%q) = %s, want %s", in, got, want)
		}
	}
}
