package stream

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"carstate/internal/access"
)

// Keeper stores tokens, sources and the audit, and keeps a node's tables of
// them up to date. When one of its calls returns nil, the record is on disk and
// this node's table holds it; other nodes follow within their feed's latency.
type Keeper struct {
	e         *Engine
	tokens    *access.Tokens
	sources   *access.Sources
	operators access.Operators
	tokenFeed *feed
	srcFeed   *feed
	usage     usageKeeper
	restoring sync.Mutex // held by the one restore
}

// tokenRecord is a token as it is stored.
type tokenRecord struct {
	ID         string            `json:"id"`
	Hash       []byte            `json:"hash"`
	Earlier    []earlierRecord   `json:"earlier,omitempty"`
	Sandbox    bool              `json:"sandbox,omitempty"`
	Developer  string            `json:"developer"`
	Operations access.Operations `json:"operations"`
	Vehicles   grantedRecord     `json:"vehicles"`
	Rate       string            `json:"rate,omitempty"`
	Created    time.Time         `json:"created"`
	Expires    time.Time         `json:"expires,omitzero"`
	Revoked    time.Time         `json:"revoked,omitzero"`
}

// sourceRecord is a source as it is stored.
type sourceRecord struct {
	Name     string          `json:"name"`
	Hash     []byte          `json:"hash"`
	Earlier  []earlierRecord `json:"earlier,omitempty"`
	Vehicles grantedRecord   `json:"vehicles"`
	Created  time.Time       `json:"created"`
	Expires  time.Time       `json:"expires,omitzero"`
	Removed  time.Time       `json:"removed,omitzero"`
}

// earlierRecord is a secret that rotation replaced, as it is stored.
type earlierRecord struct {
	Hash  []byte    `json:"hash"`
	Until time.Time `json:"until"`
}

// NewKeeper returns a keeper that feeds the two tables once it runs.
func (e *Engine) NewKeeper(tokens *access.Tokens, sources *access.Sources) *Keeper {
	k := &Keeper{e: e, tokens: tokens, sources: sources, usage: newUsageKeeper()}
	k.tokenFeed, k.srcFeed = newFeed(e, Tokens), newFeed(e, Sources)
	tokenSets, sourceSets := sets{}, sets{}
	k.tokenFeed.apply = func(r record) error { return k.applyToken(r, tokenSets) }
	k.srcFeed.apply = func(r record) error { return k.applySource(r, sourceSets) }
	e.stones.Store(k.srcFeed)
	return k
}

// RunTokens keeps the tokens' table up to date until the context ends. caughtUp
// is called once it holds all that was stored.
func (k *Keeper) RunTokens(ctx context.Context, caughtUp func()) error {
	k.tokenFeed.caughtUp = func() {
		close(k.usage.loaded)
		caughtUp()
	}
	return k.tokenFeed.run(ctx)
}

// RunSources does the same for the tables of sources and operators.
func (k *Keeper) RunSources(ctx context.Context, caughtUp func()) error {
	k.srcFeed.caughtUp = caughtUp
	return k.srcFeed.run(ctx)
}

func (k *Keeper) applyToken(r record, large sets) error {
	kind, rest, _ := strings.Cut(r.subject, ".")
	switch kind {
	case "token":
		t, err := decodeToken(r.body)
		if err != nil {
			return err
		}
		large.record(t.ID, t.Vehicles, func(v access.Vehicles) {
			tok := t.token()
			tok.Vehicles = v
			k.tokens.Put(tok)
		})
	case "tokenset":
		return large.apply(rest, r.body)
	case "tokenuse":
		return k.applyUsage(rest, r.body)
	}
	return nil
}

func (k *Keeper) applySource(r record, large sets) error {
	kind, rest, _ := strings.Cut(r.subject, ".")
	switch kind {
	case "source":
		s, err := decodeSource(r.body)
		if err != nil {
			return err
		}
		large.record(s.Name, s.Vehicles, func(v access.Vehicles) {
			src := s.source()
			src.Vehicles = v
			k.sources.Put(src)
		})
	case "sourceset":
		return large.apply(rest, r.body)
	case "operator":
		o, err := decodeOperator(r.body)
		if err != nil {
			return err
		}
		k.operators.Put(o)
	case "tombstone":
		t, err := decodeTombstone(r.body)
		if err != nil {
			return err
		}
		k.e.forgotten.Put(t)
	case vidKeysSubject:
		return k.e.setVIDKeys(r.body)
	}
	return nil
}

// apply takes a set record whose subject ends with "OWNER.N".
func (s sets) apply(rest string, body []byte) error {
	owner, number, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(number)
	var part setRecord
	if err != nil || json.Unmarshal(body, &part) != nil {
		return errDamaged
	}
	s.part(owner, n, part)
	return nil
}

// CreateToken stores a new token.
func (k *Keeper) CreateToken(ctx context.Context, t access.Token) error {
	_, err := k.change(ctx, k.tokenFeed, "token."+t.ID, func(is record) ([]write, error) {
		if is.seq != 0 {
			return nil, access.ErrExists
		}
		return packToken(t)
	})
	return err
}

// UpdateToken changes a token's record. change may run more than once: if
// somebody else changed the record meanwhile, it starts again from theirs.
func (k *Keeper) UpdateToken(ctx context.Context, id string, change func(*access.Token) error) (t access.Token, err error) {
	_, err = k.change(ctx, k.tokenFeed, "token."+id, func(is record) ([]write, error) {
		if is.seq == 0 {
			return nil, access.ErrNotFound
		}
		r, err := decodeToken(is.body)
		if err != nil {
			return nil, err
		}
		t = r.token()
		if t.Vehicles, err = k.e.readVehicles(ctx, Tokens, "tokenset", id, r.Vehicles); err != nil {
			return nil, err
		}
		if err := change(&t); err != nil {
			return nil, err
		}
		return packToken(t)
	})
	return t, err
}

// packToken returns the record of a token, after the set records of its vehicles.
func packToken(t access.Token) ([]write, error) {
	granted, sets, err := packVehicles("tokenset", t.ID, t.Vehicles)
	if err != nil {
		return nil, err
	}
	return appendJSON(sets, "token."+t.ID, tokenRecord{
		ID: t.ID, Hash: t.Hash[:], Earlier: packEarlier(t.Earlier), Sandbox: t.Sandbox, Developer: t.Developer, Operations: t.Operations, Vehicles: granted,
		Rate: t.Rate.String(), Created: t.Created, Expires: t.Expires, Revoked: t.Revoked,
	})
}

// CreateSource stores a new source, or returns [access.ErrExists] if its name is
// taken. The name of a removed source is free.
func (k *Keeper) CreateSource(ctx context.Context, s access.Source) error {
	_, err := k.change(ctx, k.srcFeed, "source."+s.Name, func(is record) ([]write, error) {
		if is.seq != 0 {
			old, err := decodeSource(is.body)
			if err != nil {
				return nil, err
			}
			if old.Removed.IsZero() {
				return nil, access.ErrExists
			}
		}
		return packSource(s)
	})
	return err
}

// UpdateSource changes a source's record, as [Keeper.UpdateToken] does. A
// removed source is [access.ErrNotFound].
func (k *Keeper) UpdateSource(ctx context.Context, name string, change func(*access.Source) error) (access.Source, error) {
	return k.updateSource(ctx, name, func(s *access.Source) error {
		if !s.Removed.IsZero() {
			return access.ErrNotFound
		}
		return change(s)
	})
}

// updateSource changes a source's record, a removed one's too.
func (k *Keeper) updateSource(ctx context.Context, name string, change func(*access.Source) error) (s access.Source, err error) {
	_, err = k.change(ctx, k.srcFeed, "source."+name, func(is record) ([]write, error) {
		if is.seq == 0 {
			return nil, access.ErrNotFound
		}
		r, err := decodeSource(is.body)
		if err != nil {
			return nil, err
		}
		s = r.source()
		if s.Vehicles, err = k.e.readVehicles(ctx, Sources, "sourceset", name, r.Vehicles); err != nil {
			return nil, err
		}
		if err := change(&s); err != nil {
			return nil, err
		}
		return packSource(s)
	})
	return s, err
}

// packSource is [packToken] of a source.
func packSource(s access.Source) ([]write, error) {
	granted, sets, err := packVehicles("sourceset", s.Name, s.Vehicles)
	if err != nil {
		return nil, err
	}
	return appendJSON(sets, "source."+s.Name, sourceRecord{
		Name: s.Name, Hash: s.Hash[:], Earlier: packEarlier(s.Earlier), Vehicles: granted, Created: s.Created, Expires: s.Expires, Removed: s.Removed,
	})
}

// change is [Engine.changeRecord] of a record that a feed brings. It returns once this
// node's table holds the record.
func (k *Keeper) change(ctx context.Context, f *feed, subject string, change func(is record) ([]write, error)) (seq uint64, err error) {
	if seq, err = k.e.changeRecord(ctx, f.stream, subject, change); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, ownFeedTimeout)
	defer cancel()
	return seq, f.wait(ctx, seq)
}

// ownFeedTimeout bounds how long a node waits until its own feed brings what it has
// stored: a set of 100,000 vehicles takes seconds where the machine is busy.
const ownFeedTimeout = 4 * requestTimeout

func decodeToken(body []byte) (tokenRecord, error) {
	var r tokenRecord
	if err := json.Unmarshal(body, &r); err != nil || !areHashes(r.Hash, r.Earlier) {
		return r, fmt.Errorf("%w: a token", errDamaged)
	}
	return r, nil
}

// token is the record without its vehicles.
func (r tokenRecord) token() access.Token {
	rate, _ := access.ParseRate(r.Rate)
	return access.Token{
		ID: r.ID, Hash: access.Hash(r.Hash), Earlier: unpackEarlier(r.Earlier), Sandbox: r.Sandbox, Developer: r.Developer, Operations: r.Operations,
		Rate: rate, Created: r.Created, Expires: r.Expires, Revoked: r.Revoked,
	}
}

func decodeSource(body []byte) (sourceRecord, error) {
	var r sourceRecord
	if err := json.Unmarshal(body, &r); err != nil || !areHashes(r.Hash, r.Earlier) {
		return r, fmt.Errorf("%w: a source", errDamaged)
	}
	return r, nil
}

// source is the record without its vehicles.
func (r sourceRecord) source() access.Source {
	return access.Source{
		Name: r.Name, Hash: access.Hash(r.Hash), Earlier: unpackEarlier(r.Earlier),
		Created: r.Created, Expires: r.Expires, Removed: r.Removed,
	}
}

func packEarlier(all []access.Earlier) (packed []earlierRecord) {
	for _, e := range all {
		packed = append(packed, earlierRecord{e.Hash[:], e.Until})
	}
	return packed
}

func unpackEarlier(packed []earlierRecord) (all []access.Earlier) {
	for _, e := range packed {
		all = append(all, access.Earlier{Hash: access.Hash(e.Hash), Until: e.Until})
	}
	return all
}

// areHashes reports whether stored hashes have the length of one.
func areHashes(current []byte, earlier []earlierRecord) bool {
	ok := len(current) == len(access.Hash{})
	for _, e := range earlier {
		ok = ok && len(e.Hash) == len(access.Hash{})
	}
	return ok
}

// sealJSON seals a record whose body is JSON.
func sealJSON(subject string, v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return seal(subject, append([]byte{0}, text...)), nil
}

// appendJSON appends the write of a record whose body is JSON.
func appendJSON(writes []write, subject string, v any) ([]write, error) {
	record, err := sealJSON(subject, v)
	return append(writes, write{subject: subject, record: record}), err
}
