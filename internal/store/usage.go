package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"carstate/internal/access"
	"carstate/internal/periodic"
	"carstate/internal/store/codec"
)

// What was counted for a token lives in tokenuse.ID.NODE: each node stores its
// own part, so that no two write the same record, and every node adds up what it
// finds. Records named tokenuse.ID, of before there were parts, hold the last use
// alone.

// usageVersion is the version of [usageRecord]. A record of another version is
// left out: numbers for people are no reason not to start.
const usageVersion = 1

// usageRecord is what a node has counted for a token, as it is stored.
type usageRecord struct {
	Version     int            `json:"v"` // 0: before there were parts
	Stored      time.Time      `json:"stored,omitzero"`
	LastUsed    time.Time      `json:"last_used,omitzero"`
	LastRefused time.Time      `json:"last_refused,omitzero"`
	Reason      access.Outcome `json:"reason,omitempty"`
	Days        []dayRecord    `json:"days,omitempty"`
}

// dayRecord holds the calls of a day: numbers by operation and outcome, without
// the zeros at the end.
type dayRecord struct {
	Day   int64      `json:"d"`
	Calls [2][]int64 `json:"c"`
}

// Times of keeping usage.
const (
	usageEvery = time.Minute
	// usageIdle is how long after its last change a node's part may be
	// dropped: no day of it is shown any more.
	usageIdle = (access.UsageDays + 2) * 24 * time.Hour
	pruneEach = 60 // times that usage was stored
	// usageBatch is how many records are stored at once, of about 2 KB.
	usageBatch = 256
)

// usageKeeper is what a [RecordStore] needs to keep usage.
type usageKeeper struct {
	loaded  chan struct{}    // closed once all that was stored is in the table
	written map[string]int64 // calls of each token when last stored; owned by KeepUsage

	mu    sync.Mutex // guards what follows
	parts map[usagePart]partStored
	// unread are the tokens of which a newer version stored this node's part, which stays as it is.
	unread map[string]bool
}

// usagePart names a record of another node.
type usagePart struct{ token, node string }

// partStored is when a part was stored, and where.
type partStored struct {
	at  time.Time
	seq uint64
}

func newUsageKeeper() usageKeeper {
	return usageKeeper{
		loaded: make(chan struct{}), written: make(map[string]int64), parts: make(map[usagePart]partStored),
		unread: make(map[string]bool),
	}
}

// isUnread reports whether a newer version stored this node's part of a token's usage.
func (u *usageKeeper) isUnread(token string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.unread[token]
}

// isLoaded reports whether the table holds all that was stored. Before that,
// nothing may be stored: it would replace what is yet to be read.
func (u *usageKeeper) isLoaded() bool {
	select {
	case <-u.loaded:
		return true
	default:
		return false
	}
}

// applyUsage takes a record from the feed; rest is ID.NODE.
func (k *RecordStore) applyUsage(rest string, is Record) error {
	r, err := decodeUsage(is.Body)
	if _, ok := errors.AsType[unfit](err); ok {
		return nil // it is left out: numbers for people are no reason not to start
	}
	if err != nil {
		return err
	}
	id, by, _ := strings.Cut(rest, ".")
	if r.Version > usageVersion {
		k.leaveUsage(rest)
		return nil
	}
	if by == k.engine.NodeID() {
		if k.usage.isLoaded() {
			return nil // our own echo: the table counts it already
		}
	} else if by != "" {
		k.usage.mu.Lock()
		k.usage.parts[usagePart{id, by}] = partStored{r.Stored, is.Seq}
		k.usage.mu.Unlock()
	}
	k.tables.Tokens.NoteUsage(id, by, r.usage())
	return nil
}

// leaveUsage takes a record that a newer version wrote; rest is ID.NODE. This node's part is not
// replaced.
func (k *RecordStore) leaveUsage(rest string) {
	if id, by, _ := strings.Cut(rest, "."); by == k.engine.NodeID() {
		k.usage.mu.Lock()
		defer k.usage.mu.Unlock()
		k.usage.unread[id] = true
	}
}

// KeepUsage stores what this node has counted for tokens, once a minute and at
// the end, until the context ends. What was not stored yet is lost with the
// process; nothing but a display depends on it.
func (k *RecordStore) KeepUsage(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-k.usage.loaded:
	}
	if !k.usage.isLoaded() {
		return
	}
	n := 0
	for range periodic.Every(ctx, usageEvery) {
		k.storeUsage()
		if n++; n%pruneEach == 0 {
			k.pruneUsage(ctx)
		}
	}
	k.storeUsage()
}

// storeUsage stores the usage of every token that was called since it was last
// stored.
func (k *RecordStore) storeUsage() {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	batch := make(map[string]int64)
	for id, calls := range k.tables.Tokens.Counted() {
		if calls == k.usage.written[id] || k.usage.isUnread(id) {
			continue
		}
		if batch[id] = calls; len(batch) == usageBatch {
			if !k.storeUsageOf(ctx, batch) {
				return
			}
			clear(batch)
		}
	}
	k.storeUsageOf(ctx, batch)
}

// storeUsageOf stores the usage of some tokens and reports whether it could.
func (k *RecordStore) storeUsageOf(ctx context.Context, calls map[string]int64) bool {
	var writes []Write
	for id := range calls {
		w, err := k.usageWrite(id)
		if err != nil {
			k.log.Warn("usage cannot be packed", "token_id", id, "error", err)
			return false
		}
		writes = append(writes, w)
	}
	if len(writes) == 0 {
		return true
	}
	if _, err := k.engine.Store(ctx, codec.Tokens, writes); err != nil {
		k.log.Warn("the usage of tokens cannot be stored: trying again in a minute", "tokens", len(writes), "error", err)
		return false
	}
	maps.Copy(k.usage.written, calls)
	return true
}

// usageWrite packs this node's part of a token's usage.
func (k *RecordStore) usageWrite(id string) (Write, error) {
	now := k.now()
	subject := "tokenuse." + id + "." + k.engine.NodeID()
	record, err := sealJSON(subject, packUsage(k.tables.Tokens.UsageOn(k.engine.NodeID(), id, now), now))
	return Write{Subject: subject, Record: record}, err
}

// pruneUsage drops the parts of nodes that have not changed them for so long
// that no day of theirs is shown, most of them nodes that are gone. This node's
// own part then holds the last use and refusal, which are shown for ever.
func (k *RecordStore) pruneUsage(ctx context.Context) {
	idle := make(map[usagePart]uint64)
	k.usage.mu.Lock()
	for part, stored := range k.usage.parts {
		if !k.usage.unread[part.token] && k.now().Sub(stored.at) > usageIdle {
			idle[part] = stored.seq
		}
	}
	k.usage.mu.Unlock()
	for part, seq := range idle {
		if err := k.dropPart(ctx, part, seq); err != nil {
			if ctx.Err() == nil {
				k.log.Warn("the usage that a node stored long ago cannot be dropped", "error", err)
			}
			return
		}
	}
}

func (k *RecordStore) dropPart(ctx context.Context, part usagePart, seq uint64) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	w, err := k.usageWrite(part.token)
	if err != nil {
		return err
	}
	if _, err := k.engine.Store(ctx, codec.Tokens, []Write{w}); err != nil {
		return err
	}
	gone := []Record{{Subject: "tokenuse." + part.token + "." + part.node, Seq: seq}}
	if err := k.engine.Remove(ctx, codec.Tokens, gone); err != nil {
		return err
	}
	k.tables.Tokens.ForgetUsage(part.token, part.node)
	k.usage.mu.Lock()
	defer k.usage.mu.Unlock()
	delete(k.usage.parts, part)
	return nil
}

func packUsage(u access.Usage, now time.Time) usageRecord {
	r := usageRecord{
		Version: usageVersion, Stored: now.UTC().Truncate(time.Second),
		LastUsed: u.LastUsed, LastRefused: u.LastRefused, Reason: u.Reason,
	}
	for _, d := range u.Days {
		day := dayRecord{Day: d.Day}
		for op := range d.Calls {
			n := len(d.Calls[op])
			for n > 0 && d.Calls[op][n-1] == 0 {
				n--
			}
			day.Calls[op] = d.Calls[op][:n]
		}
		r.Days = append(r.Days, day)
	}
	return r
}

// maxUsageDays is more days than any record has.
const maxUsageDays = 2 * access.UsageDays

// decodeUsage reads what was counted for a token.
func decodeUsage(body []byte) (r usageRecord, err error) {
	if json.Unmarshal(body, &r) != nil {
		return r, codec.ErrDamaged
	}
	if len(r.Days) > maxUsageDays {
		return r, unfit{"usage", fmt.Errorf("at most %d days are kept", maxUsageDays)}
	}
	for _, d := range r.Days {
		for _, calls := range d.Calls {
			if len(calls) > 0 && slices.Min(calls) < 0 {
				return r, unfit{"usage", errors.New("a number of calls is below zero")}
			}
		}
	}
	return r, nil
}

// usage unpacks a record. Outcomes that are not known here are left out.
func (r usageRecord) usage() access.Usage {
	u := access.Usage{LastUsed: r.LastUsed}
	if r.Reason.Known() {
		u.LastRefused, u.Reason = r.LastRefused, r.Reason
	}
	for _, day := range r.Days {
		d := access.DayCalls{Day: day.Day}
		for op := range d.Calls {
			copy(d.Calls[op][:], day.Calls[op])
		}
		u.Merge(access.Usage{Days: []access.DayCalls{d}})
	}
	return u
}
