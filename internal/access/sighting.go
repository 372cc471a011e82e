package access

import (
	"errors"
	"time"
)

// Sighting is what a node has seen of a source since the node started. It is
// stored nowhere.
type Sighting struct {
	LastSeen    time.Time // when its key last counted, to the second; zero: not yet
	LastRefused time.Time // when its key last did not; zero: not yet
	Reason      Outcome   // of that: [Expired], [Revoked] or [Replaced]
}

// note records that the source's key was shown at now; err is why it did not
// count.
func (u *usage) note(err error, now time.Time) {
	at := now.Unix()
	switch {
	case err != nil:
		noteRefusal(&u.lastRefused, at, outcomeOf(err))
	case u.lastUsed.Load() != at: // one write a second at most
		u.lastUsed.Store(at)
	}
}

// Seen is what this node has seen of a source.
func (u *usage) Seen() Sighting {
	s := Sighting{LastSeen: u.latestUse()}
	s.LastRefused, s.Reason = unpackRefusal(u.lastRefused.Load())
	return s
}

// outcomeOf is how a call ended whose secret did not count.
func outcomeOf(err error) Outcome {
	switch {
	case errors.Is(err, ErrExpired):
		return Expired
	case errors.Is(err, ErrReplaced):
		return Replaced
	}
	return Revoked
}
