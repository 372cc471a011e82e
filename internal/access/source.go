package access

import (
	"errors"
	"fmt"
	"time"
)

// Source is the record of who may write: a car, or a gateway that speaks for
// many. It holds no secret.
type Source struct {
	Name     string    // also its MQTT user name
	Hash     Hash      // of the key
	Earlier  []Earlier // keys that rotation replaced, oldest first
	Vehicles Vehicles
	Created  time.Time
	Expires  time.Time // zero: never; set for the short-lived sources of replay and simulate
	Removed  time.Time // zero: not removed
}

// maxPlainName bounds the names of sources and operators, in bytes.
const maxPlainName = 64

// AddSource makes a source and the key to be shown once. A name has 1 to 64
// letters, digits, '-' and '_', so that it can stand in a subject, a user name
// and a log line as it is.
func AddSource(name string, v Vehicles, expires, now time.Time) (Source, string, error) {
	if err := CheckSourceName(name); err != nil {
		return Source{}, "", err
	}
	if !v.All() && v.Len() == 0 {
		return Source{}, "", errors.New("a source needs vehicles to speak for: all, or a list")
	}
	if !expires.IsZero() && !expires.After(now) {
		return Source{}, "", errors.New("a source cannot expire before it is added")
	}
	key, hash := NewSecret(SourceKind)
	return Source{
		Name:     name,
		Hash:     hash,
		Vehicles: v,
		Created:  now.UTC().Truncate(time.Millisecond),
		Expires:  expires.UTC().Truncate(time.Millisecond),
	}, key, nil
}

// CheckSourceName says whether a text can name a source.
func CheckSourceName(name string) error {
	switch {
	case !isPlainName(name):
		return errors.New("a source's name has 1 to 64 letters, digits, '-' and '_'")
	case holdsSecret(name):
		return errNameIsSecret
	}
	return nil
}

// isPlainName reports whether a name can stand in a subject, a user name and a
// log line as it is.
func isPlainName(name string) bool {
	ok := name != "" && len(name) <= maxPlainName
	for i := range len(name) {
		c := name[i]
		ok = ok && (c-'0' <= 9 || c-'A' <= 25 || c-'a' <= 25 || c == '-' || c == '_')
	}
	return ok
}

// Usable says why the source does not count at now: [ErrRevoked] (removed),
// [ErrExpired], or nil.
func (s *Source) Usable(now time.Time) error {
	switch {
	case !s.Removed.IsZero():
		return ErrRevoked
	case !s.Expires.IsZero() && !now.Before(s.Expires):
		return ErrExpired
	}
	return nil
}

// Rotate replaces the key by the one of hash. See [rotate] for what becomes of
// the old one.
func (s *Source) Rotate(hash Hash, overlap time.Duration, now time.Time) (err error) {
	if err := s.Usable(now); err != nil {
		return fmt.Errorf("the source cannot be rotated: %w", err)
	}
	s.Hash, s.Earlier, err = rotate(s.Hash, s.Earlier, hash, overlap, now)
	return err
}
