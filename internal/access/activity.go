package access

import (
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// Refusal is why telemetry of a source was refused. The set is bounded: nothing that a
// sender chooses becomes a counter or a label.
type Refusal uint8

// The reasons. Up to OverRate they are of samples, and metrics count them; a message that
// was refused before it was read counts as one sample.
const (
	Malformed Refusal = iota // not one JSON object
	Truncated                // JSON that ends early
	Duplicate                // a name twice in one object
	WrongType                // a member that is not what it must be
	BadVID
	OtherVID // differs from the topic's
	BadTime
	FutureTime
	NoSignals
	Impossible    // a value that no sensor can give
	NotAllowed    // a vehicle that the source does not speak for
	OverLimit     // too large, too many, too deep
	WasForgotten  // a vehicle that the operator has had forgotten
	BadTopic      // MQTT: not vehicles/VID/telemetry
	BadQoS        // MQTT: QoS 2
	VehicleLimit  // a new vehicle, and there are as many as there may be
	UnknownSignal // a signal whose name is not known, of a strict source
	NotStored     // the store did not take it: nothing wrong with the sample
	NoRoom        // there was no memory for it, of all or of its source's share
	TooSlow       // the body or packet came too slowly
	OverRate      // more than the source's rate allows

	KeyExpired
	KeyRevoked
	KeyReplaced
)

// SampleRefusals is how many reasons samples are refused for.
const SampleRefusals = OverRate + 1

// String names the reason as metrics, the API and the console do.
func (r Refusal) String() string {
	return [...]string{
		"malformed", "truncated", "duplicate", "wrong_type", "vid", "vid_differs", "time", "time_ahead",
		"no_signals", "impossible", "not_allowed", "over_limit", "forgotten", "topic", "qos", "vehicle_limit",
		"unknown_signal", "not_stored", "no_room", "too_slow", "rate", "expired", "revoked", "replaced",
	}[r]
}

// SourceActivity is what a node has seen of a source since the node started. It is
// stored nowhere.
type SourceActivity struct {
	LastSeen    time.Time // when its key last counted, to the second; zero: not yet
	LastRefused time.Time // when its key or a sample last did not, to the second; zero: not yet
	Reason      Refusal   // of that

	Accepted int64 // samples
	Ignored  int64 // signals that no rule uses
	Refused  [SampleRefusals]int64

	IgnoredByName map[string]int64 // at most MaxIgnoredNames of them; the others are in Ignored alone
}

// MaxIgnoredNames is how many names of ignored signals a node keeps of a source: the first that
// come. With names of 80 bytes, they take up less than 2 KB of each source that sends any.
const MaxIgnoredNames = 8

// telemetry is what a node counts of the telemetry of a source.
type telemetry struct {
	accepted, ignored atomic.Int64
	refused           [SampleRefusals]atomic.Int64

	mu     sync.Mutex       // guards what follows
	byName map[string]int64 // ignored signals
}

// counts returns the counters of a source, which a token does not have.
func (u *usage) counts() *telemetry {
	if t := u.telemetry.Load(); t != nil {
		return t
	}
	u.telemetry.CompareAndSwap(nil, new(telemetry))
	return u.telemetry.Load()
}

// CountSamples notes samples of the source that were accepted, and the signals in what it
// sent that no rule uses. It takes no lock.
func (u *usage) CountSamples(accepted, ignored int) {
	t := u.counts()
	t.accepted.Add(int64(accepted))
	if ignored > 0 {
		t.ignored.Add(int64(ignored))
	}
}

// CountIgnored notes n signals of the name that no rule uses; [usage.CountSamples] counts them too.
// The caller bounds the length of names, and vouches for what they hold.
func (u *usage) CountIgnored(name string, n int) {
	t := u.counts()
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.byName[name]; !known && len(t.byName) >= MaxIgnoredNames {
		return
	}
	if t.byName == nil {
		t.byName = make(map[string]int64)
	}
	t.byName[name] += int64(n)
}

// CountRefused notes n samples of the source that were refused at now. It takes no lock.
func (u *usage) CountRefused(r Refusal, n int, now time.Time) {
	u.counts().refused[r].Add(int64(n))
	noteRefusal(&u.lastRefused, now.Unix(), r)
}

// note records that the source's key was shown at now; err is why it did not
// count.
func (u *usage) note(err error, now time.Time) {
	at := now.Unix()
	switch {
	case err != nil:
		noteRefusal(&u.lastRefused, at, refusalOf(err))
	case u.lastUsed.Load() != at: // one write a second at most
		u.lastUsed.Store(at)
	}
}

// Seen is what this node has seen of a source.
func (u *usage) Seen() SourceActivity {
	s := SourceActivity{LastSeen: u.latestUse()}
	s.LastRefused, s.Reason = unpackRefusal[Refusal](u.lastRefused.Load())
	if t := u.telemetry.Load(); t != nil {
		s.Accepted, s.Ignored = t.accepted.Load(), t.ignored.Load()
		for r := range t.refused {
			s.Refused[r] = t.refused[r].Load()
		}
		t.mu.Lock()
		s.IgnoredByName = maps.Clone(t.byName)
		t.mu.Unlock()
	}
	return s
}

// refusalOf is why a key did not count.
func refusalOf(err error) Refusal {
	switch {
	case errors.Is(err, ErrExpired):
		return KeyExpired
	case errors.Is(err, ErrReplaced):
		return KeyReplaced
	}
	return KeyRevoked
}
