package vehicle

import (
	"fmt"
	"strings"
)

// TroubleCode is a diagnostic trouble code in the five characters of SAE J2012,
// such as P0120.
type TroubleCode [5]byte

// String returns the five characters, or "" for the zero code.
func (c TroubleCode) String() string {
	if c == (TroubleCode{}) {
		return ""
	}
	return string(c[:])
}

// ParseTroubleCode parses a code. It accepts lower case, and it accepts and drops the failure type
// that SAE J2012-DA appends (P0120-13, P012013), which the rules do not need. For other text it
// returns an error that wraps [ErrImpossible].
func ParseTroubleCode(s string) (TroubleCode, error) {
	var c TroubleCode
	if len(s) < len(c) || !validFailureType(s[len(c):]) {
		return TroubleCode{}, errTroubleCode
	}
	copy(c[:], strings.ToUpper(s[:len(c)]))
	ok := strings.IndexByte("PCBU", c[0]) >= 0 && c[1] >= '0' && c[1] <= '3' &&
		isHex(c[2]) && isHex(c[3]) && isHex(c[4])
	if !ok {
		return TroubleCode{}, errTroubleCode
	}
	return c, nil
}

var errTroubleCode = fmt.Errorf("%w: an entry of %s is not a trouble code such as P0120", ErrImpossible, DTCList)

func validFailureType(s string) bool {
	if s == "" {
		return true
	}
	if s[0] == '-' || s[0] == ':' {
		s = s[1:]
	}
	return len(s) == 2 && isHex(s[0]) && isHex(s[1])
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'A' && c <= 'F' || c >= 'a' && c <= 'f'
}

// throttleCodes are the families of SAE J2012 codes that concern the throttle plate, its
// actuator, its position sensors, or the pedal's sensors.
var throttleCodes = []struct {
	first, last int // the digits after the P
	about       string
}{
	{120, 124, "throttle/pedal position sensor A circuit"},
	{220, 229, "throttle/pedal position sensor B and C circuit"},
	{638, 639, "throttle actuator control range/performance"},
	{2100, 2119, "throttle actuator control motor, plate and system"},
	{2120, 2140, "throttle/pedal position sensor D, E, F circuit and correlation"},
	{2172, 2176, "throttle actuator control: airflow and idle position"},
}

// IsThrottle reports whether the code concerns the throttle system: its plate, its actuator or its
// sensors, or the pedal's sensors. Such codes have decimal digits only, so P210A is none of them.
func (c TroubleCode) IsThrottle() bool {
	if c[0] != 'P' {
		return false
	}
	n := 0
	for _, d := range c[1:] {
		if d < '0' || d > '9' {
			return false
		}
		n = 10*n + int(d-'0')
	}
	for i := range throttleCodes {
		if f := &throttleCodes[i]; n >= f.first && n <= f.last {
			return true
		}
	}
	return false
}
