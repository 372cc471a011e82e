package vehicle

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// TroubleCode is a diagnostic trouble code in the five characters of SAE J2012, such as P0120.
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
func ParseTroubleCode(s string) (c TroubleCode, err error) {
	if !troubleCode.MatchString(s) {
		return c, errTroubleCode
	}
	copy(c[:], strings.ToUpper(s))
	return c, nil
}

// troubleCode matches a code in upper or lower case, with or without a failure type.
var troubleCode = regexp.MustCompile(`^(?i:[PCBU][0-3][0-9A-F]{3}([-:]?[0-9A-F]{2})?)$`)

var errTroubleCode = fmt.Errorf("%w: an entry of %s is not a trouble code such as P0120", ErrImpossible, DTCList)

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
	// The families of SAE J2012.
	return n >= 120 && n <= 124 || // throttle/pedal position sensor A circuit
		n >= 220 && n <= 229 || // throttle/pedal position sensor B and C circuit
		n >= 638 && n <= 639 || // throttle actuator control range/performance
		n >= 2100 && n <= 2119 || // throttle actuator control motor, plate and system
		n >= 2120 && n <= 2140 || // throttle/pedal position sensor D, E, F circuit and correlation
		n >= 2172 && n <= 2176 // throttle actuator control: airflow and idle position
}

// observeCodes folds the list of trouble codes in r, if there is one, into the state. A code that
// was cleared may return, so the anomaly ends only after codeGoneFor.
func (s *State) observeCodes(r *Readings) {
	gone := &s.ThrottleMemory.CodeGone
	if r.Has(DTCList) {
		if i := slices.IndexFunc(r.Codes, TroubleCode.IsThrottle); i >= 0 {
			s.FaultCode, *gone = r.Codes[i], 0
		} else if s.FaultCode != (TroubleCode{}) && *gone == 0 {
			*gone = s.Time
		}
	}
	if *gone != 0 && s.Time-*gone >= UnixMilli(codeGoneFor.Milliseconds()) {
		s.FaultCode, *gone = TroubleCode{}, 0
	}
}
