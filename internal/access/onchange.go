package access

import (
	"errors"
	"time"
)

// OnChange says how long a speed holds that is sent only when it changes. With the zero value, the
// rules decide.
type OnChange struct {
	given bool
	hold  time.Duration
}

// ParseOnChange parses whole seconds, from 0 to a day; "" and "auto" are the zero value.
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

func (o OnChange) Hold() (d time.Duration, ok bool) { return o.hold, o.given }

func (o OnChange) String() string {
	if !o.given {
		return ""
	}
	return o.hold.String()
}
