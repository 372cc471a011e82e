package vehicle

import (
	"errors"
	"fmt"

	"example.org/carstate/internal/signal"
)

// ID is a non-empty string of ASCII letters and digits.
type ID string

// MaxReportingID is the greatest length of a sending vehicle's ID. A query may name a longer one,
// which is unknown.
const MaxReportingID = 256

var (
	ErrIDEmpty     = errors.New("a vid must not be empty")
	ErrIDCharacter = errors.New("a vid consists of ASCII letters and digits only")
)

func ParseID(s string) (ID, error) {
	if err := CheckID(s); err != nil {
		return "", err
	}
	return ID(s), nil
}

func ParseReportingID(s string) (ID, error) {
	id, err := ParseID(s)
	if err == nil && len(id) > MaxReportingID {
		return "", fmt.Errorf("a vid has at most %d characters", MaxReportingID)
	}
	return id, err
}

// CheckID is ParseID for bytes, without an allocation.
func CheckID[T string | []byte](s T) error {
	if len(s) == 0 {
		return ErrIDEmpty
	}
	for i := range len(s) {
		if c := s[i]; !('0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z') {
			return ErrIDCharacter
		}
	}
	return nil
}

type Sample struct {
	Vehicle ID
	Time    signal.UnixMilli
	Source  uint32           // number of the source; 0 if none
	Crowd   bool             // the source is trusted not to invent cars, so on roads, each counts
	Stored  signal.UnixMilli // when the telemetry log stored the sample, or 0
	signal.Readings
}

// Relearn returns a sample that makes [State.Fold] forget all of the throttle, even a fault, by the
// zero code, which no sender can name.
func Relearn(id ID, at signal.UnixMilli) Sample {
	x := Sample{Vehicle: id, Time: at, Codes: []signal.TroubleCode{{}}}
	_ = x.Set(signal.DTCList, 0) // 0 is in its range
	return x
}
