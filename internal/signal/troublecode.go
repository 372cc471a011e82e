package signal

import (
	"regexp"
	"strings"
	"unicode"
)

type TroubleCode [5]byte

func (c TroubleCode) String() string { return string(c[:]) }

// TroubleCodes finds the codes in text. It accepts lower case, and drops the failure type of SAE
// J2012-DA (P0120-13, P012013). If text has none and does not say so, ok is false: a query may have
// failed.
func TroubleCodes(text string) (codes []TroubleCode, ok bool) {
	inWord := func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return !inWord(r) }) {
		if troubleCode.MatchString(word) {
			codes = append(codes, TroubleCode([]byte(strings.ToUpper(word[:5]))))
		}
	}
	return codes, len(codes) > 0 || noTroubleCodes.MatchString(text)
}

var noTroubleCodes = regexp.MustCompile(`^(?i:\s*(none|no (dtcs?|((trouble|fault) )?codes?))\s*)$`)

var troubleCode = regexp.MustCompile(`^(?i:[PCBU][0-3][0-9A-F]{3}([0-9A-F]{2})?)$`)

// throttleCodes has no maker's own codes (P1xxx, P30xx to P33xx): one code means different faults
// with different makers.
var throttleCodes = [...]codes{
	between("P0120", "P0124"), // position sensor A
	between("P0220", "P0229"), // position sensors B and C
	between("P0510", "P0510"), // closed position switch
	between("P060D", "P060E"), // engine computer: positions
	between("P061F", "P061F"), // engine computer: actuator controller
	between("P0638", "P0639"), // actuator range/performance
	between("P2100", "P210D"), // actuator motor A and B
	between("P2110", "P2119"), // actuator system and plate
	between("P2120", "P2129"), // position sensors D and E
	between("P212A", "P212F"), // position sensor G, correlation
	between("P2130", "P2139"), // position sensor F, correlation
	between("P2140", "P2140"), // correlation E/F
	between("P2163", "P2168"), // position sensor maximum stop
	between("P2172", "P2176"), // actuator: airflow and idle position
	between("U0107", "U0107"), // no communication with the actuator
}

type codes struct{ first, last uint64 }

func between(first, last string) codes {
	return codes{TroubleCode([]byte(first)).number(), TroubleCode([]byte(last)).number()}
}

func (c TroubleCode) IsThrottle() bool {
	n := c.number()
	for i := range throttleCodes {
		if r := &throttleCodes[i]; r.first <= n && n <= r.last {
			return true
		}
	}
	return false
}

// number orders codes as text, in which A to F follow 9.
func (c TroubleCode) number() uint64 {
	return uint64(c[0])<<32 | uint64(c[1])<<24 | uint64(c[2])<<16 | uint64(c[3])<<8 | uint64(c[4])
}
