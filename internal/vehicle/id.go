package vehicle

import (
	"errors"
	"fmt"
)

// ID identifies one vehicle: a non-empty string of ASCII letters and digits of
// any length, compared byte for byte. Obtain one with [ParseID].
type ID string

// MaxReportingID is the greatest length, in bytes, of the ID of a vehicle that sends
// telemetry. A query may name a longer ID; such a vehicle is unknown.
const MaxReportingID = 256

// Errors of [ParseID].
var (
	ErrIDEmpty     = errors.New("a vid must not be empty")
	ErrIDCharacter = errors.New("a vid consists of ASCII letters and digits only")
)

// ParseID parses untrusted text. It returns [ErrIDEmpty] or [ErrIDCharacter] if the text is
// not an ID.
func ParseID(s string) (ID, error) {
	if err := CheckID(s); err != nil {
		return "", err
	}
	return ID(s), nil
}

// ParseReportingID is like ParseID, for the ID of a vehicle that sends telemetry: it
// rejects an ID longer than [MaxReportingID].
func ParseReportingID(s string) (ID, error) {
	id, err := ParseID(s)
	if err == nil && len(id) > MaxReportingID {
		return "", fmt.Errorf("a vid has at most %d characters", MaxReportingID)
	}
	return id, err
}

// CheckID returns nil if s is an ID, and otherwise the error of ParseID. It is for callers that
// hold bytes and must not allocate.
func CheckID[T string | []byte](s T) error {
	if len(s) == 0 {
		return ErrIDEmpty
	}
	for i := range len(s) {
		c := s[i]
		if c-'0' > 9 && c-'A' > 25 && c-'a' > 25 {
			return ErrIDCharacter
		}
	}
	return nil
}
