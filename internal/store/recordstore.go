package store

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"carstate/internal/access"
	"carstate/internal/store/codec"
)

// RecordStore stores tokens, sources, operators, tombstones, usage, roads and the audit. From
// feeds, it maintains this node's tables of tokens with their usage, sources, operators and
// tombstones. When a call that changes a record returns nil, the record is on disk and in this
// node's table. The tables of other nodes follow within the latency of their feeds.
type RecordStore struct {
	engine     Engine
	config     Config
	log        *slog.Logger
	now        func() time.Time
	forgotten  *access.Forgotten
	tables     *access.Tables
	tokenFeed  Feed
	srcFeed    Feed
	usage      usageState
	restoring  sync.Mutex // held during a restore, so that there is only one at a time
	lastErased time.Time  // when Erase last erased
	// firstSeen maps tombstones to the time when EraseDue first saw them. It contains only
	// tombstones whose field Quiet is zero, which means that nodes may still be storing telemetry
	// of the vehicle.
	firstSeen map[access.Tombstone]time.Time

	roadsRestored chan struct{} // receives a value after a restore has stored profiles of roads
	roadsRefused  map[string]prometheus.Counter
}

// credentialRecord is a token, a source or an operator in its stored form. The record's subject
// consists of one of these three words and the credential's name.
type credentialRecord struct {
	Kind       access.Kind       `json:"kind"`
	Name       string            `json:"name"`
	Hash       []byte            `json:"hash"`
	Earlier    []earlierRecord   `json:"earlier,omitempty"`
	Vehicles   grantedRecord     `json:"vehicles,omitzero"`
	Created    time.Time         `json:"created"`
	Rotated    time.Time         `json:"rotated,omitzero"`
	Expires    time.Time         `json:"expires,omitzero"`
	Ended      time.Time         `json:"ended,omitzero"`
	Developer  string            `json:"developer,omitzero"`
	Operations access.Operations `json:"operations,omitzero"`
	Rate       string            `json:"rate,omitzero"`
	Strict     bool              `json:"strict,omitzero"`
}

// earlierRecord is the stored form of a secret that a rotation replaced.
type earlierRecord struct {
	Hash  []byte    `json:"hash"`
	Until time.Time `json:"until"`
}

// NewRecordStore returns a RecordStore that stores its records in e. While RunTokens and RunSources
// run, they fill the tables from feeds of e.
func NewRecordStore(e Engine, c Config, tables *access.Tables) *RecordStore {
	c = c.WithDefaults()
	k := &RecordStore{
		engine: e, config: c, log: c.Log, now: c.Now, forgotten: e.Forgotten(), tables: tables,
		usage: newUsageState(), roadsRestored: make(chan struct{}, 1),
	}
	tokenSets, sourceSets := sets{}, sets{}
	k.tokenFeed = e.Feed(codec.Tokens, func(r Record) error { return k.apply(r, tokenSets) })
	k.srcFeed = e.Feed(codec.Sources, func(r Record) error { return k.apply(r, sourceSets) })
	k.registerMetrics()
	return k
}

// RunTokens maintains this node's table of tokens and their usage until the context ends. It calls
// caughtUp once the table holds all stored tokens.
func (k *RecordStore) RunTokens(ctx context.Context, caughtUp func()) error {
	return k.tokenFeed.Run(ctx, func() {
		close(k.usage.loaded)
		caughtUp()
	})
}

// RunSources maintains this node's tables of sources, operators and tombstones until the context
// ends. It calls caughtUp once the tables hold all stored sources, operators and tombstones.
func (k *RecordStore) RunSources(ctx context.Context, caughtUp func()) error {
	return k.srcFeed.Run(ctx, caughtUp)
}

// apply updates this node's tables with a record from the feed of the stream TOKENS or SOURCES. The
// parameter large collects the set records of that stream, which list the vehicles of large grants.
func (k *RecordStore) apply(r Record, large sets) error {
	kind, rest, _ := strings.Cut(r.Subject, ".")
	if r.Newer {
		k.applyNewer(kind, rest, large)
		return nil
	}
	switch kind {
	case "token", "source", "operator":
		stored, err := decodeCredential(r.Subject, r.Body)
		if err != nil {
			return err
		}
		large.record(r.Subject, stored.Vehicles, func(v access.Vehicles) {
			c := stored.credential()
			c.Vehicles = v
			k.tables.Of(c.Kind).Put(c)
		})
	case "tokenset", "sourceset":
		return large.apply(r)
	case "tokenuse":
		return k.applyUsage(rest, r)
	case "tombstone":
		t, err := decodeTombstone(r.Subject, r.Body)
		if err != nil {
			return err
		}
		k.forgotten.Put(t)
	case codec.VIDKeysSubject:
		return setVIDKeys(k.forgotten, r.Body)
	}
	return nil
}

// applyNewer applies a record that a newer version wrote and this version cannot decode. The
// record's subject consists of kind, a dot, and rest. [Newer] says what happens with each kind of
// record.
func (k *RecordStore) applyNewer(kind, rest string, large sets) {
	credentials := map[string]*access.Credentials{
		"token": &k.tables.Tokens.Credentials, "source": &k.tables.Sources.Credentials,
		"operator": &k.tables.Operators.Credentials,
	}
	switch kind {
	case "token", "source", "operator":
		delete(large, kind+"."+rest)
		credentials[kind].Lose(rest)
	case "tokenuse":
		k.applyNewerUsage(rest)
	case "tombstone":
		if hash, err := access.ParseVehicleHash(rest); err == nil {
			// Set Erased, so that this node leaves the erasure to nodes that can decode the
			// record.
			now := k.now()
			k.forgotten.Put(access.Tombstone{Vehicle: hash, Forgotten: now, Removed: true, Erased: now, Unread: true})
		}
	case codec.VIDKeysSubject:
		k.config.Newer.lacksKeys()
	}
}

// apply adds a set record, which lists a part of the vehicles of a credential. Its subject ends in
// the name of the credential, a dot, and the number of the part.
func (s sets) apply(r Record) error {
	prefix, rest, _ := strings.Cut(r.Subject, "set.")
	owner, number, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(number)
	if err != nil {
		return codec.ErrDamaged
	}
	part, err := decodeSet(r.Body)
	if err != nil {
		return err
	}
	s.part(prefix+"."+owner, n, part)
	return nil
}

// streamOf returns the stream of a credential's record. Operators are in SOURCES, which changes
// rarely and never fills up, so that an operator can be removed even if TOKENS is full of usage
// records.
func streamOf(subject string) string {
	if strings.HasPrefix(subject, "token.") {
		return codec.Tokens
	}
	return codec.Sources
}

func subjectOf(kind access.Kind, name string) string { return kind.Policy().Noun + "." + name }

// Create stores a new credential. It returns [access.ErrExists] if the name is in use. The name
// of a removed source or operator may be used again.
func (k *RecordStore) Create(ctx context.Context, c access.Credential) error {
	subject := subjectOf(c.Kind, c.Name)
	tried := false
	_, err := k.change(ctx, streamOf(subject), subject, func(is Record) ([]Write, error) {
		again := tried
		tried = true
		var old credentialRecord
		if is.Seq != 0 {
			var err error
			if old, err = decodeCredential(subject, is.Body); err != nil {
				return nil, err
			}
			// The first attempt of Create has stored the credential, but its response was lost.
			// After that, another writer has changed the record.
			if again && bytes.Equal(old.Hash, c.Hash[:]) {
				return nil, nil
			}
			if old.Ended.IsZero() || c.Kind.Policy().Listed {
				return nil, access.ErrExists
			}
		}
		return packCredential(c, old.Vehicles)
	})
	return err
}

// Update changes a credential's record. The function change may run several times: if another
// writer changes the record first, change runs again on the new record. Update returns
// [access.ErrNotFound] if there is no such credential or if it is a removed source or operator. A
// revoked token can still be changed.
func (k *RecordStore) Update(
	ctx context.Context, kind access.Kind, name string, change func(*access.Credential) error,
) (access.Credential, error) {
	return k.update(ctx, subjectOf(kind, name), func(c *access.Credential) error {
		if !c.Ended.IsZero() && !kind.Policy().Listed {
			return access.ErrNotFound
		}
		return change(c)
	})
}

// update changes a credential's record, as Update does. It also changes the record of a removed
// source or operator.
func (k *RecordStore) update(
	ctx context.Context, subject string, change func(*access.Credential) error,
) (c access.Credential, err error) {
	stream := streamOf(subject)
	_, err = k.change(ctx, stream, subject, func(is Record) ([]Write, error) {
		if is.Seq == 0 {
			return nil, access.ErrNotFound
		}
		r, err := decodeCredential(subject, is.Body)
		if err != nil {
			return nil, err
		}
		c = r.credential()
		if c.Vehicles, err = readVehicles(ctx, k.engine, stream, c.Kind.Policy().Noun+"set", c.Name, r.Vehicles); err != nil {
			return nil, err
		}
		if err := change(&c); err != nil {
			return nil, err
		}
		return packCredential(c, r.Vehicles)
	})
	return c, err
}

// packCredential returns the writes that store a credential: first the set records, which list the
// vehicles of a large grant, and then the credential's own record. The parameter before is the
// grant that is stored now. If it has more set records than the new grant, the surplus set records
// are emptied, because a later forget would not find the vehicles in them.
func packCredential(c access.Credential, before grantedRecord) ([]Write, error) {
	prefix := c.Kind.Policy().Noun + "set"
	granted, sets, err := packVehicles(prefix, c.Name, c.Vehicles)
	if err != nil {
		return nil, err
	}
	var emptied []Write
	for n := granted.Sets; n < before.Sets; n++ {
		if emptied, err = appendJSON(emptied, setSubject(prefix, c.Name, n), setRecord{}); err != nil {
			return nil, err
		}
	}
	sets = append(emptied, sets...)
	var earlier []earlierRecord
	for _, e := range c.Earlier {
		earlier = append(earlier, earlierRecord{e.Hash[:], e.Until})
	}
	return appendJSON(sets, subjectOf(c.Kind, c.Name), credentialRecord{
		Kind: c.Kind, Name: c.Name, Hash: c.Hash[:], Earlier: earlier, Vehicles: granted,
		Created: c.Created, Rotated: c.Rotated, Expires: c.Expires, Ended: c.Ended,
		Developer: c.Developer, Operations: c.Operations, Rate: c.Rate.String(), Strict: c.Strict,
	})
}

// unfit is the error for an undamaged record with content that no service can have written.
// [errors.Is] treats it as [codec.ErrDamaged], so that a node does not start with such a record.
// The text of the error contains nothing of the record.
type unfit struct {
	kind string
	err  error
}

func (u unfit) Error() string { return fmt.Sprintf("%v: %s: %v", codec.ErrDamaged, u.kind, u.err) }

// Is reports whether err is [codec.ErrDamaged].
func (unfit) Is(err error) bool { return err == codec.ErrDamaged }

// decodeCredential decodes the record of a credential, given its subject and its body. It checks
// that the kind and the name in the body match the subject, and that a service can have written the
// record.
func decodeCredential(subject string, body []byte) (credentialRecord, error) {
	var r credentialRecord
	ok := json.Unmarshal(body, &r) == nil && subjectOf(r.Kind, r.Name) == subject && len(r.Hash) == len(access.Hash{})
	for _, e := range r.Earlier {
		ok = ok && len(e.Hash) == len(access.Hash{})
	}
	if !ok {
		return r, fmt.Errorf("%w: a credential", codec.ErrDamaged)
	}
	noun := r.Kind.Policy().Noun
	if _, err := access.ParseRate(r.Rate); err != nil { // the method credential does not check it
		return r, unfit{noun, err}
	}
	c := r.credential()
	if err := cmp.Or(c.Check(), r.Vehicles.check(r.Kind)); err != nil {
		return r, unfit{noun, err}
	}
	return r, nil
}

// credential returns the credential that r describes, without its vehicles.
func (r credentialRecord) credential() access.Credential {
	rate, _ := access.ParseRate(r.Rate)
	c := access.Credential{
		Kind: r.Kind, Name: r.Name, Hash: access.Hash(r.Hash),
		Created: r.Created, Rotated: r.Rotated, Expires: r.Expires, Ended: r.Ended,
		Developer: r.Developer, Operations: r.Operations, Rate: rate, Strict: r.Strict,
	}
	for _, e := range r.Earlier {
		c.Earlier = append(c.Earlier, access.Earlier{Hash: access.Hash(e.Hash), Until: e.Until})
	}
	return c
}

// change is like [Change], but returns only once this node's table holds the record. It is for
// records that this node also receives from a feed.
func (k *RecordStore) change(
	ctx context.Context, stream, subject string, change func(is Record) ([]Write, error),
) (seq uint64, err error) {
	if seq, err = Change(ctx, k.engine, k.config.Patience.Store, stream, subject, change); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, ownFeedTimeout)
	defer cancel()
	if stream == codec.Tokens {
		return seq, k.tokenFeed.Wait(ctx, seq)
	}
	return seq, k.srcFeed.Wait(ctx, seq)
}

// ownFeedTimeout is the maximum time that a node waits until its own feed delivers a record that it
// has stored. The time is long because storing a set of 100,000 vehicles takes seconds on a busy
// machine.
const ownFeedTimeout = 4 * requestTimeout

// sealJSON returns a sealed record whose body is v as JSON.
func sealJSON(subject string, v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return codec.Seal(subject, append([]byte{0}, text...)), nil
}

// appendJSON appends a write of a record whose body is v as JSON.
func appendJSON(writes []Write, subject string, v any) ([]Write, error) {
	record, err := sealJSON(subject, v)
	return append(writes, Write{Subject: subject, Record: record}), err
}

// Audit stores one event. When it returns nil the event is on disk.
func (k *RecordStore) Audit(ctx context.Context, ev access.Event) error {
	record, err := sealJSON(codec.AuditSubject, ev)
	if err != nil {
		return err
	}
	_, err = k.engine.Store(ctx, codec.Audit, []Write{{Subject: codec.AuditSubject, Record: record}})
	return err
}

// newerEvent is the text that is shown in place of an audit event of a newer version.
const newerEvent = "written by a newer version of carstate: use an upgraded node to see it"

// AuditPage returns at most limit events of the audit whose sequences are less than the parameter
// before, newest first. If before is 0, it starts with the newest event. The result older is the
// value of before for the next page, or 0 if there is no next page.
func (k *RecordStore) AuditPage(
	ctx context.Context, before uint64, limit int,
) (events []access.Event, older uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	records, older, err := k.engine.Before(ctx, codec.Audit, before, limit)
	if err != nil {
		return nil, 0, err
	}
	events = make([]access.Event, len(records))
	for i, r := range records {
		if r.Newer {
			events[i] = access.Event{
				Time: r.Stored.UTC(), Actor: "unknown", Action: "unknown", Detail: newerEvent,
				Outcome: "unknown",
			}
			continue
		}
		if err := json.Unmarshal(r.Body, &events[i]); err != nil {
			return nil, 0, codec.ErrDamaged
		}
	}
	return events, older, nil
}
