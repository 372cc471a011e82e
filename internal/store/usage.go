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

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/store/codec"
)

// The usage of a token is stored in records tokenuse.ID.NODE. Each node stores its own part, so
// that no two nodes write the same record, and every node adds up all parts.

// usageVersion is the version of [usageRecord]. A record of a later version is skipped, because
// usage is only displayed and should not prevent a start.
const usageVersion = 1

// usageRecord is the stored form of one node's counts of the calls made with one token.
type usageRecord struct {
	Version     int            `json:"v"`
	Stored      time.Time      `json:"stored,omitzero"`
	LastUsed    time.Time      `json:"last_used,omitzero"`
	LastRefused time.Time      `json:"last_refused,omitzero"`
	Reason      access.Outcome `json:"reason,omitempty"`
	Days        []dayRecord    `json:"days,omitempty"`
}

// dayRecord holds the numbers of calls of one day. Day is the day in days since 1 January 1970,
// UTC. Calls has one list for each of the two operations of a token, with one number for each
// outcome. Zeros at the end of a list are left out.
type dayRecord struct {
	Day   int64      `json:"d"`
	Calls [2][]int64 `json:"c"`
}

// Times and limits of storing usage.
const (
	usageEvery = time.Minute
	// usageIdle is how long another node's usage record must be unchanged before this node may
	// remove it. None of the days in the record is displayed any more then.
	usageIdle = (access.UsageDays + 2) * 24 * time.Hour
	// pruneEach says how often idle records (see usageIdle) are removed: after each pruneEach-th
	// write of usage.
	pruneEach = 60
	// usageBatch is the maximum number of records in a batch. A record has about 2 KB.
	usageBatch = 256
)

// usageState is what [RecordStore.KeepUsage] remembers between two writes.
type usageState struct {
	loaded  chan struct{}    // closed once the table holds all stored usage
	written map[string]int64 // number of calls of each token when last stored; only KeepUsage uses it

	parts sync.Map // from usagePart to partStored
	// unread contains the tokens for which a newer version has stored a usage record under this
	// node's name. This node does not replace such a record. The values have no meaning.
	unread sync.Map
}

// usagePart identifies another node's usage record of one token.
type usagePart struct{ token, node string }

// partStored says when a usage record was stored, and at which sequence.
type partStored struct {
	at  time.Time
	seq uint64
}

// isLoaded reports whether this node's table of tokens holds all stored usage. Before that, no
// usage may be stored, because it would replace usage that was not read yet.
func (u *usageState) isLoaded() bool {
	select {
	case <-u.loaded:
		return true
	default:
		return false
	}
}

// applyUsage adds a usage record from the feed to this node's table of tokens. rest is the end of
// the record's subject: the token's id, a dot, and the name of the node that has counted the calls.
// Usage that no service can have written is skipped, and so is a record of a newer version. If the
// record is damaged in another way, the error is [codec.ErrDamaged].
func (k *RecordStore) applyUsage(rest string, is Record) error {
	id, by, _ := strings.Cut(rest, ".")
	own := by == k.engine.NodeID()
	r, err := decodeUsage(is.Body)
	_, skip := errors.AsType[unfit](err) // because usage should not prevent a start
	switch {
	case is.Newer, err == nil && r.Version > usageVersion:
		if own {
			k.usage.unread.Store(id, nil) // from now on, this node does not overwrite it
		}
		return nil
	case skip:
		return nil
	case err != nil:
		return err
	case own && k.usage.isLoaded(): // written by this process: the table has it already
		return nil
	case !own:
		k.usage.parts.Store(usagePart{id, by}, partStored{r.Stored, is.Seq})
	}
	k.tables.Tokens.NoteUsage(id, by, r.usage())
	return nil
}

// KeepUsage stores this node's counts of the calls made with each token, once a minute and when the
// context ends. It begins when the table holds all stored usage; if the context ends before, it
// stores nothing. If the process is killed, the calls since the last store are lost from the
// counts. This loss affects only displays of usage.
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

// storeUsage stores the usage of every token that was called since its usage was last stored. It
// logs a failure; the usage that was not stored is stored by the next call.
func (k *RecordStore) storeUsage() {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	changed := make(map[string]int64)
	for id, calls := range k.tables.Tokens.Counted() {
		if _, unread := k.usage.unread.Load(id); calls != k.usage.written[id] && !unread {
			changed[id] = calls
		}
	}
	for ids := range slices.Chunk(slices.Collect(maps.Keys(changed)), usageBatch) {
		var writes []Write
		for _, id := range ids {
			var err error
			if writes, err = k.appendUsage(writes, id); err != nil {
				k.log.Warn("cannot encode the usage of a token", "token_id", id, "error", err)
				return
			}
		}
		if _, err := k.engine.Store(ctx, codec.Tokens, writes); err != nil {
			k.log.Warn("cannot store the usage of tokens; will retry in a minute", "tokens", len(writes), "error", err)
			return
		}
		for _, id := range ids {
			k.usage.written[id] = changed[id]
		}
	}
}

// appendUsage appends the write that stores this node's usage record of a token.
func (k *RecordStore) appendUsage(writes []Write, id string) ([]Write, error) {
	now, node := k.now(), k.engine.NodeID()
	return appendJSON(writes, "tokenuse."+id+"."+node, packUsage(k.tables.Tokens.UsageOn(node, id, now), now))
}

// pruneUsage drops the usage records of other nodes that have not changed for usageIdle. Most of
// those nodes no longer exist. The times of a token's last use and last refusal are displayed for
// ever, so pruneUsage first copies these times to this node's own record. After the first failure
// it logs the error and stops, and the next call continues.
func (k *RecordStore) pruneUsage(ctx context.Context) {
	for key, value := range k.usage.parts.Range {
		part, stored := key.(usagePart), value.(partStored)
		if _, unread := k.usage.unread.Load(part.token); unread || k.now().Sub(stored.at) <= usageIdle {
			continue
		}
		if err := k.dropPart(ctx, part, stored.seq); err != nil {
			if ctx.Err() == nil {
				k.log.Warn("cannot drop the outdated usage of a node", "error", err)
			}
			return
		}
	}
}

func (k *RecordStore) dropPart(ctx context.Context, part usagePart, seq uint64) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	writes, err := k.appendUsage(nil, part.token)
	if err != nil {
		return err
	}
	if _, err := k.engine.Store(ctx, codec.Tokens, writes); err != nil {
		return err
	}
	gone := []Record{{Subject: "tokenuse." + part.token + "." + part.node, Seq: seq}}
	if err := k.engine.Remove(ctx, codec.Tokens, gone); err != nil {
		return err
	}
	k.tables.Tokens.ForgetUsage(part.token, part.node)
	k.usage.parts.Delete(part)
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

// maxUsageDays is the maximum number of days in a valid usage record, more than any node stores.
const maxUsageDays = 2 * access.UsageDays

// decodeUsage decodes the record of a token's usage. If body is not such a record, the error is
// [codec.ErrDamaged]; if it has too many days or a negative number of calls, the error is unfit.
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
				return r, unfit{"usage", errors.New("a number of calls is negative")}
			}
		}
	}
	return r, nil
}

// usage returns the usage in r. It skips outcomes that this version does not know.
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
