package access

import (
	"errors"
	"testing"
	"time"
)

// TestNamesHoldNoSecret checks that a secret in the field of a name is refused, so that it is not
// stored, listed or audited.
func TestNamesHoldNoSecret(t *testing.T) {
	now := time.Unix(1e9, 0)
	add := map[string]func(name string) error{
		"developer": func(name string) error {
			_, _, err := New(Request{Kind: TokenKind, Developer: name, Operations: AllOperations}, now)
			return err
		},
		"source": func(name string) error {
			_, _, err := New(Request{Kind: SourceKind, Name: name, Vehicles: AllVehicles()}, now)
			return err
		},
		"operator": func(name string) error {
			_, _, err := New(Request{Kind: OperatorKind, Name: name}, now)
			return err
		},
	}
	for what, add := range add {
		for _, kind := range kinds {
			secret, _ := NewSecret(kind)
			for _, name := range []string{secret, "x" + secret, secret[:len(secret)-9], "css_" + secret} {
				if err := add(name); !errors.Is(err, errNameIsSecret) {
					t.Errorf("%s: a name with a secret of kind %s: %v", what, kind, err)
				}
			}
		}
		for _, name := range []string{"css_gateway", "cst_", "fleet_cst_team1", "Ada"} {
			if err := add(name); err != nil {
				t.Errorf("%s %q: %v", what, name, err)
			}
		}
	}
}
