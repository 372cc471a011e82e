package access

import (
	"errors"
	"slices"
	"strings"
	"time"

	"example.org/carstate/internal/speedcheck"
	"example.org/carstate/internal/vehicle"
)

// Refusal is why the service refused telemetry or the key of a source. The set is fixed, so a
// sender cannot cause new counters or labels.
type Refusal uint8

// A sample is refused for a reason from Malformed to Empty; one that is refused before it is parsed
// counts as one sample. A key is refused for a reason from KeyExpired on.
const (
	Malformed Refusal = iota // not one JSON object
	Truncated                // JSON that ends early
	Duplicate                // a name twice in one object
	WrongType                // also a value, from a strict source
	BadVID
	OtherVID // the vid in the sample differs from the one in the topic
	BadTime
	FutureTime
	NoSignals
	Impossible   // from a strict source: no sensor can measure it
	NotAvailable // from a strict source: it means that there is no value
	NotAllowed   // not in the source's grant
	OverLimit    // too large, too many, too deep
	WasForgotten
	BadTopic      // MQTT: not vehicles/VID/telemetry
	BadQoS        // MQTT: QoS 2
	VehicleLimit  // a new vehicle beyond the maximum
	UnknownSignal // from a strict source
	NotStored     // the sample itself is valid
	NoRoom        // the memory quota of the node or of the source is used up
	TooSlow       // the body or packet came too slowly
	OverRate
	Backlog     // too many samples are not folded yet
	ContentType // HTTP, or Content-Encoding
	Method      // HTTP: not POST
	Unreadable  // HTTP: incomplete, or cannot be decompressed
	Empty       // without a sample

	KeyExpired
	KeyRevoked
	KeyReplaced
	WrongKey // MQTT: the password for the source's name is not its key

	Refusals = iota
)

const SampleRefusals = Empty + 1

func (r Refusal) String() string {
	return [...]string{
		"malformed", "truncated", "duplicate", "wrong_type", "vid", "vid_differs", "time", "time_ahead",
		"no_signals", "impossible", "not_available", "not_allowed", "over_limit", "forgotten", "topic", "qos", "vehicle_limit",
		"unknown_signal", "not_stored", "no_room", "too_slow", "rate", "backlog", "content_type", "method", "unreadable",
		"empty", "expired", "revoked", "replaced", "wrong_key",
	}[r]
}

// SourceActivity is what one node has noted about a source since the node started.
type SourceActivity struct {
	LastSeen    time.Time      // in whole seconds; zero: never
	LastRefused time.Time      // in whole seconds; zero: never
	Reason      Refusal        // of the last refusal
	Text        string         // in words; at most MaxRefusalText bytes
	Noted       []NotedRefusal // newest first; at most MaxNoted

	SampleCounts
	Refused [Refusals]int64 // samples and, from KeyExpired on, uses of keys

	Speeds speedcheck.Check

	logged   time.Time // when Unlogged last returned true
	unlogged int       // since then
}

// NotedRefusal is safe to show to operators.
type NotedRefusal struct {
	At     time.Time // in whole seconds
	Reason Refusal
	Text   string
}

// MaxNoted is how many refusals of each source a node keeps.
const MaxNoted = 20

// SampleCounts counts samples of a source, and signals and values that are not used.
type SampleCounts struct {
	Accepted int64
	Late     int64 // accepted, but older than what is known of their vehicle
	Ignored  int64 // signals that no rule uses
	Unused   int64 // values of other signals, in accepted samples
}

// MaxRefusalText is in bytes. A longer text is cut.
const MaxRefusalText = 200

// update calls change under mu, and creates the activity: a token, which has the same type, needs
// no memory for one.
func (u *usage) update(change func(*SourceActivity)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.activity == nil {
		u.activity = new(SourceActivity)
	}
	change(u.activity)
}

func (u *usage) CountSamples(c SampleCounts) {
	u.update(func(a *SourceActivity) {
		a.Accepted += c.Accepted
		a.Late += c.Late
		a.Ignored += c.Ignored
		a.Unused += c.Unused
	})
}

// CompareSpeeds returns the factor between speeds and positions; first if it was found now.
func (u *usage) CompareSpeeds(samples []vehicle.Sample) (found speedcheck.Finding, first bool) {
	u.update(func(a *SourceActivity) {
		first = a.Speeds.Add(samples)
		found = a.Speeds.Found
	})
	return found, first
}

// WrongSpeeds counts the sources whose speeds differ from their positions by a factor that the unit
// explains, or by another one if unit is empty.
func (t *Sources) WrongSpeeds(unit string) (n int) {
	t.lock()
	defer t.mu.Unlock()
	for _, g := range t.byName {
		g.usage.mu.Lock()
		if a := g.activity; a != nil && g.Ended.IsZero() && a.Speeds.Found.Factor != 0 && a.Speeds.Found.Unit == unit {
			n++
		}
		g.usage.mu.Unlock()
	}
	return n
}

// Claims maps vids to the names of their senders, both as hashes.
type Claims map[Hash]Hash

const maxClaims = 1 << 20

// Claim reports whether name is the first that became this vid. After maxClaims vids, it begins
// again.
func (c *Claims) Claim(id vehicle.ID, name string) bool {
	if *c == nil || len(*c) >= maxClaims {
		*c = make(Claims)
	}
	vid, h := HashOf(string(id)), HashOf(name)
	if first, ok := (*c)[vid]; ok {
		return first == h
	}
	(*c)[vid] = h
	return true
}

// Claim is [Claims.Claim], since the node started.
func (u *usage) Claim(id vehicle.ID, name string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.claimed.Claim(id, name)
}

// CountRefused counts n samples, or n uses of the key.
func (u *usage) CountRefused(r Refusal, n int) {
	u.update(func(a *SourceActivity) { a.Refused[r] += int64(n) })
}

// NoteRefused keeps the newest [MaxNoted] refusals. text must be safe to show: without a vehicle, a
// key or a value. Strangers can cause [WrongKey], so it must hide no other reason: it is not noted
// within strangersWait of another one, and it replaces its like.
func (u *usage) NoteRefused(r Refusal, text string, now time.Time) {
	if len(text) > MaxRefusalText {
		const mark = "…"
		text = strings.ToValidUTF8(text[:MaxRefusalText-len(mark)], "") + mark
	}
	noted := NotedRefusal{time.Unix(now.Unix(), 0).UTC(), r, text}
	u.update(func(a *SourceActivity) {
		switch {
		case r != WrongKey:
		case a.Reason == WrongKey:
			a.Noted = a.Noted[1:]
		case noted.At.Sub(a.LastRefused).Abs() <= strangersWait:
			return
		}
		a.LastRefused, a.Reason, a.Text = noted.At, r, text
		a.Noted = slices.Insert(a.Noted[:min(len(a.Noted), MaxNoted-1)], 0, noted)
		a.unlogged++
	})
}

const logInterval = time.Minute

// Unlogged returns the last refusal and the number of others since it last returned true, which it
// does at most once a minute.
func (u *usage) Unlogged(now time.Time) (last NotedRefusal, others int, due bool) {
	u.update(func(a *SourceActivity) {
		if due = a.unlogged > 0 && now.Sub(a.logged) >= logInterval; due {
			last, others = a.Noted[0], a.unlogged-1
			a.logged, a.unlogged = now, 0
		}
	})
	return last, others, due
}

// A stranger causes [WrongKey] by a login with the source's name and a wrong password.
const strangersWait = 10 * time.Minute

func (u *usage) refuseKey(r Refusal, text string, now time.Time) {
	u.CountRefused(r, 1)
	u.NoteRefused(r, text, now)
}

// KeyRefused begins the text of an answer to a source whose key is refused. The reason follows.
const KeyRefused = "the source key is refused: "

// note records a use of the source's key; err is nil if it was accepted.
func (u *usage) note(err error, now time.Time) {
	if err == nil {
		if at := now.Unix(); u.lastUsed.Load() != at { // at most one write a second
			u.lastUsed.Store(at)
		}
		return
	}
	why := KeyRevoked
	switch {
	case errors.Is(err, ErrExpired):
		why = KeyExpired
	case errors.Is(err, ErrReplaced):
		why = KeyReplaced
	}
	u.refuseKey(why, KeyRefused+err.Error(), now)
}

func (u *usage) Seen() (s SourceActivity) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.activity != nil {
		s = *u.activity
		s.Noted = slices.Clone(s.Noted)
	}
	s.LastSeen = u.latestUse()
	return s
}
