package vehicle_test

import (
	"errors"
	"strings"
	"testing"

	"example.org/carstate/internal/vehicle"
)

func TestParseID(t *testing.T) {
	for _, c := range []struct {
		in   string
		want error
	}{
		{"NHeN4UqVsohGS55I7LBdh", nil},
		{"0", nil},
		{strings.Repeat("a", 100_000), nil},
		{"", vehicle.ErrIDEmpty},
		{"\xc0\xb0", vehicle.ErrIDCharacter}, // overlong "0"
		{"４", vehicle.ErrIDCharacter},        // a full-width digit
	} {
		id, err := vehicle.ParseID(c.in)
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("ParseID(%.20q): %v, want %v", c.in, err, c.want)
		}
		if want := vehicle.ID(c.in); err == nil && id != want || err != nil && id != "" {
			t.Errorf("ParseID(%.20q): got %.20q, want it, or nothing with an error", c.in, id)
		}
		if byBytes := vehicle.CheckID([]byte(c.in)); !errors.Is(byBytes, c.want) {
			t.Errorf("CheckID(%.20q): %v, want %v", c.in, byBytes, c.want)
		}
	}
}

func TestParseIDEveryByte(t *testing.T) {
	const allowed = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	for b := range 256 {
		in := string([]byte{'a', byte(b), 'z'})
		want := strings.IndexByte(allowed, byte(b)) >= 0
		if _, err := vehicle.ParseID(in); (err == nil) != want {
			t.Errorf("ParseID(%q): %v, want accepted = %v", in, err, want)
		}
	}
}
