package access

import (
	"errors"
	"sync/atomic"
	"time"
)

// Sighting is what a node has seen of a source since the node started. It is
// stored nowhere.
type Sighting struct {
	LastSeen    time.Time // when its key last counted, to the second; zero: not yet
	LastRefused time.Time // when its key last did not; zero: not yet
	Reason      Outcome   // of that: [Expired], [Revoked] or [Replaced]
}

// sighting is a [Sighting] that many senders note in at once.
type sighting struct {
	lastSeen    atomic.Int64 // Unix seconds
	lastRefused atomic.Int64 // see packRefusal
}

// note records that the source's key was shown at now; err is why it did not
// count.
func (s *sighting) note(err error, now time.Time) {
	at := now.Unix()
	switch {
	case err != nil:
		noteRefusal(&s.lastRefused, at, outcomeOf(err))
	case s.lastSeen.Load() != at: // one write a second at most
		s.lastSeen.Store(at)
	}
}

func (s *sighting) seen() (all Sighting) {
	if at := s.lastSeen.Load(); at != 0 {
		all.LastSeen = time.Unix(at, 0).UTC()
	}
	all.LastRefused, all.Reason = unpackRefusal(s.lastRefused.Load())
	return all
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
