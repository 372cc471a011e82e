package access

import (
	"errors"
	"slices"
	"strings"
	"time"

	"example.org/carstate/internal/speedcheck"
	"example.org/carstate/internal/vehicle"
)

// Refusal is the reason why the service refused telemetry or the key of a source. The set of
// reasons is fixed, so a sender cannot cause new counters or labels with texts of its choice.
type Refusal uint8

// The values of [Refusal]. A sample is refused for one of the reasons from Malformed to Empty, and
// the metrics count refused samples by these reasons. A request or message that is refused before
// it is parsed counts as one sample. A source's key is refused for one of the other reasons, from
// KeyExpired on.
const (
	Malformed Refusal = iota // not one JSON object
	Truncated                // JSON that ends early
	Duplicate                // a name twice in one object
	WrongType                // vid, time or signals of the wrong JSON type; from a strict source also a value
	BadVID
	OtherVID // the vid in the sample differs from the one in the topic
	BadTime
	FutureTime
	NoSignals
	Impossible    // from a strict source: a value that no sensor can measure
	NotAvailable  // from a strict source: a value that means that there is none
	NotAllowed    // a vehicle that the source's grant does not cover
	OverLimit     // too large, too many, too deep
	WasForgotten  // a vehicle that was forgotten
	BadTopic      // MQTT: not vehicles/VID/telemetry
	BadQoS        // MQTT: QoS 2
	VehicleLimit  // a new vehicle, although the maximum number of vehicles is reached
	UnknownSignal // a signal with an unknown name, from a strict source
	NotStored     // the store failed; the sample itself is valid
	NoRoom        // the memory quota of the node or of the source is exhausted
	TooSlow       // the body or packet came too slowly
	OverRate      // the source's rate limit is exceeded
	Backlog       // too many samples of the source are not folded yet
	ContentType   // HTTP: a wrong Content-Type or Content-Encoding
	Method        // HTTP: not POST
	Unreadable    // HTTP: a body that is incomplete or cannot be decompressed
	Empty         // a body or message without a sample

	KeyExpired
	KeyRevoked
	KeyReplaced
	WrongKey // MQTT: the password for the source's name is not its key

	Refusals = iota // number of all reasons
)

// SampleRefusals is the number of reasons for which samples are refused.
const SampleRefusals = Empty + 1

// String returns the reason's name in metrics, in the API and in the console.
func (r Refusal) String() string {
	return [...]string{
		"malformed", "truncated", "duplicate", "wrong_type", "vid", "vid_differs", "time", "time_ahead",
		"no_signals", "impossible", "not_available", "not_allowed", "over_limit", "forgotten", "topic", "qos", "vehicle_limit",
		"unknown_signal", "not_stored", "no_room", "too_slow", "rate", "backlog", "content_type", "method", "unreadable",
		"empty", "expired", "revoked", "replaced", "wrong_key",
	}[r]
}

// SourceActivity holds what one node has noted about a source since the node started. It is not
// stored. Ignored signals are signals that no rule of the service uses.
type SourceActivity struct {
	LastSeen    time.Time      // when its key was last accepted, in whole seconds; zero: never
	LastRefused time.Time      // when its key or a sample was last refused, in whole seconds; zero: never
	Reason      Refusal        // of the last refusal
	Text        string         // of the last refusal, in words; at most MaxRefusalText bytes
	Noted       []NotedRefusal // the newest refusals, the last one included, newest first; at most MaxNoted

	SampleCounts
	Refused [Refusals]int64 // samples and, from KeyExpired on, uses of keys

	// Speeds compares the source's speeds with its positions.
	Speeds speedcheck.Check

	logged   time.Time // when Unlogged last returned true
	unlogged int       // refusals since then
}

// NotedRefusal is one refusal, in words that are safe to show to operators.
type NotedRefusal struct {
	At     time.Time // in whole seconds
	Reason Refusal
	Text   string // at most MaxRefusalText bytes
}

// MaxNoted is how many refusals of each source a node keeps.
const MaxNoted = 20

// SampleCounts counts the samples of a source, and what is not used of them.
type SampleCounts struct {
	Accepted int64 // samples
	Late     int64 // accepted samples that are older than what is known of their vehicle
	Ignored  int64 // signals that no rule uses
	Unused   int64 // values of other signals that are not used, in accepted samples
}

// MaxRefusalText is the maximum size, in bytes, of the text that says why a source's key or sample
// was refused. A longer text is cut.
const MaxRefusalText = 200

// update calls change with a source's activity, whose LastSeen is not set, under mu. The first call
// creates the activity: the usage of a token, which has the same type, needs no memory for one.
func (u *usage) update(change func(*SourceActivity)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.activity == nil {
		u.activity = new(SourceActivity)
	}
	change(u.activity)
}

// CountSamples adds c to the source's numbers.
func (u *usage) CountSamples(c SampleCounts) {
	u.update(func(a *SourceActivity) {
		a.Accepted += c.Accepted
		a.Late += c.Late
		a.Ignored += c.Ignored
		a.Unused += c.Unused
	})
}

// CompareSpeeds adds samples to the comparison of the source's speeds with its positions. The result
// is the factor between them, if it was found now for the first time.
func (u *usage) CompareSpeeds(samples []vehicle.Sample) (found speedcheck.Finding, first bool) {
	u.update(func(a *SourceActivity) {
		first = a.Speeds.Add(samples)
		found = a.Speeds.Found
	})
	return found, first
}

// WrongSpeeds returns the number of sources that were not removed and whose speeds differ from their
// positions by a factor that the given unit explains, or by another one if the unit is empty.
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

// Claims has the name of a sender that became each vid, both as hashes.
type Claims map[Hash]Hash

const maxClaims = 1 << 20

// Claim reports whether name is the first that became this vid. After maxClaims vids, it begins again.
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

// CountRefused counts n samples of the source, or n uses of its key, refused for the reason r.
func (u *usage) CountRefused(r Refusal, n int) {
	u.update(func(a *SourceActivity) { a.Refused[r] += int64(n) })
}

// NoteRefused records that the service refused a source's key or its telemetry at the time now for
// the reason r. Only the newest [MaxNoted] such records are kept. The text gives the reason in
// words. It must be safe to show: without a vehicle, a key or a value. The record of a later call is
// the newer one, even if it has an earlier time, because the clock may have been fast at the earlier
// call.
// Strangers can cause the reason [WrongKey], so it must hide no other one: it is not recorded if the
// newest record has another reason and is at most strangersWait old, and it replaces the newest
// record if that is of the same reason.
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

// logInterval is the shortest time between two log lines about the refusals of one source.
const logInterval = time.Minute

// Unlogged returns the last refusal, and the number of others since it last returned true. due is
// true if there was any since then, and if a minute has passed since then.
func (u *usage) Unlogged(now time.Time) (last NotedRefusal, others int, due bool) {
	u.update(func(a *SourceActivity) {
		if due = a.unlogged > 0 && now.Sub(a.logged).Abs() >= logInterval; due {
			last, others = a.Noted[0], a.unlogged-1
			a.logged, a.unlogged = now, 0
		}
	})
	return last, others, due
}

// strangersWait is how long [WrongKey] does not replace another reason. A stranger causes WrongKey
// by a login with the source's name and a wrong password.
const strangersWait = 10 * time.Minute

func (u *usage) refuseKey(r Refusal, text string, now time.Time) {
	u.CountRefused(r, 1)
	u.NoteRefused(r, text, now)
}

// KeyRefused begins the text of an answer to a source whose key is refused. The reason follows.
const KeyRefused = "the source key is refused: "

// note records that the source's key was presented at time now. If err is nil, it was accepted.
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

// Seen returns a copy of this node's counters for a source.
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
