package access

import (
	"errors"
	"time"
)

// OnChange says how long a speed holds that a source sends only when it changes, while other readings
// of the car arrive. The zero value leaves it to the rules, which recognize such sources. [ParseOnChange]
// gives the valid values.
type OnChange struct {
	given bool
	hold  time.Duration
}

// ParseOnChange parses a duration of whole seconds, from 0 to a day. With 0, no speed holds. The empty
// string and "auto" are the zero value. Any other text is an error.
func ParseOnChange(s string) (OnChange, error) {
	if s == "" || s == "auto" {
		return OnChange{}, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || d > 24*time.Hour || d%time.Second != 0 {
		return OnChange{}, errors.New("how long an unchanged speed holds is auto, or a time of whole seconds up to 24h, " +
			"such as 15m, or 0 for never")
	}
	return OnChange{true, d}, nil
}

// Hold returns how long a speed holds; ok is false if the rules decide.
func (o OnChange) Hold() (d time.Duration, ok bool) { return o.hold, o.given }

// String returns the value in the format of [ParseOnChange], such as 15m0s, or "" for the zero value.
func (o OnChange) String() string {
	if !o.given {
		return ""
	}
	return o.hold.String()
}
