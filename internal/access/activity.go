package access

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"example.org/carstate/internal/speedcheck"
	"example.org/carstate/internal/vehicle"
)

// Refusal is why telemetry or a source's key was refused. The set is fixed, so no sender can
// add labels to the metrics.
type Refusal uint8

// The reasons up to Empty are for samples (input that cannot be parsed counts as one sample), those
// from KeyExpired on for keys.
const (
	Malformed Refusal = iota
	Truncated
	Duplicate
	WrongType // of a member; from a strict source, also of a value
	BadVID
	OtherVID // another vid than that of the topic
	BadTime
	FutureTime
	NoSignals
	Impossible // from a strict source: a value that no sensor can measure
	NotAvailable
	NotAllowed // a vehicle outside the source's grant
	OverLimit  // too large, too many samples, nested too deep
	WasForgotten
	BadTopic      // MQTT: not vehicles/VID/telemetry
	BadQoS        // MQTT: QoS 2
	VehicleLimit  // a new vehicle beyond the maximum
	UnknownSignal // from a strict source
	NotStored     // the sample is valid; the store failed
	NoRoom        // the memory quota of the node or of the source is used up
	TooSlow
	OverRate
	Backlog     // too many samples are not folded yet
	ContentType // HTTP: Content-Type or Content-Encoding
	Method      // HTTP: not POST
	Unreadable  // HTTP: incomplete, or cannot be decompressed
	Empty       // a message without a sample

	KeyExpired
	KeyRevoked
	KeyReplaced
	WrongKey // a wrong password for the source's name

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

type SourceActivity struct {
	LastSeen    time.Time // in whole seconds; zero: never
	LastRefused time.Time // in whole seconds; zero: never
	Reason      Refusal   // of the last refusal
	Text        string
	Noted       []NotedRefusal // newest first; at most MaxNoted

	SampleCounts
	Refused [Refusals]int64 // samples and, from KeyExpired on, uses of keys

	Speeds speedcheck.Check

	logged   time.Time // when Unlogged last returned true
	unlogged int       // refusals since then
}

// NotedRefusal is safe to show to operators.
type NotedRefusal struct {
	At     time.Time // in whole seconds
	Reason Refusal
	Text   string
}

const MaxNoted = 20

type SampleCounts struct {
	Accepted int64
	Late     int64 // accepted, but older than what is known of their vehicle
	Ignored  int64 // signals that no rule uses
	Unused   int64 // values that cannot be used, in accepted samples
}

// in bytes; a longer text is cut
const MaxRefusalText = 200

// update calls change under mu. Tokens have a usage, too, but no activity.
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

func (u *usage) CompareSpeeds(samples []vehicle.Sample) (found speedcheck.Finding, first bool) {
	u.update(func(a *SourceActivity) {
		first = a.Speeds.Add(samples)
		found = a.Speeds.Found
	})
	return found, first
}

// WrongSpeeds counts sources whose speeds are off by a factor, by the unit that explains the factor,
// or "other".
func (t *Sources) WrongSpeeds() map[string]int {
	n := map[string]int{"other": 0}
	for _, u := range speedcheck.Units {
		n[u.Name] = 0
	}
	for _, g := range t.All() {
		if f := g.Seen().Speeds.Found; g.Ended.IsZero() && f.Factor != 0 {
			n[cmp.Or(f.Unit, "other")]++
		}
	}
	return n
}

type Claims map[Hash]Hash

const maxClaims = 1 << 20

// Claim reports whether name is the first from which a format made this vid: two names may differ
// only in what the format strips. After maxClaims vids, it forgets all of them.
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

func (u *usage) Claim(id vehicle.ID, name string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.claimed.Claim(id, name)
}

func (u *usage) CountRefused(r Refusal, n int) {
	u.update(func(a *SourceActivity) { a.Refused[r] += int64(n) })
}

// NoteRefused notes a refusal. text must be safe to show: no vehicle, key or value. Strangers can
// cause [WrongKey]. So that it hides no other reason, it replaces an earlier WrongKey, and is not
// noted within 10 minutes of another reason.
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
		case noted.At.Sub(a.LastRefused).Abs() <= 10*time.Minute:
			return
		}
		a.LastRefused, a.Reason, a.Text = noted.At, r, text
		a.Noted = slices.Insert(a.Noted[:min(len(a.Noted), MaxNoted-1)], 0, noted)
		a.unlogged++
	})
}

// Unlogged returns refusals to log, at most once a minute.
func (u *usage) Unlogged(now time.Time) (last NotedRefusal, others int, due bool) {
	u.update(func(a *SourceActivity) {
		if due = a.unlogged > 0 && now.Sub(a.logged) >= time.Minute; due {
			last, others = a.Noted[0], a.unlogged-1
			a.logged, a.unlogged = now, 0
		}
	})
	return last, others, due
}

func (u *usage) countKey(r Refusal, text string, now time.Time) {
	u.CountRefused(r, 1)
	u.NoteRefused(r, text, now)
}

// keyRefusals has the errors that verify returns together with a source.
var keyRefusals = map[error]Refusal{ErrExpired: KeyExpired, ErrRevoked: KeyRevoked, ErrReplaced: KeyReplaced}

const KeyRefused = "the source key is refused: "

func (u *usage) note(err error, now time.Time) {
	if err == nil {
		if at := now.Unix(); u.lastUsed.Load() != at { // at most one write a second
			u.lastUsed.Store(at)
		}
		return
	}
	u.countKey(keyRefusals[err], KeyRefused+err.Error(), now)
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
