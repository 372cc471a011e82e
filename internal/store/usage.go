package store

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"sync"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/store/codec"
)

// Each node adds to tokenuse.ID.total what it has counted. Earlier versions stored one record for
// each node, tokenuse.ID.NODE. The next write of the total adds these and replaces them by empty
// ones, which are then removed.

// A record of a later usageVersion is neither read nor replaced, because usage is only displayed
// and should not prevent a start.
const usageVersion = 2

type usageRecord struct {
	Version     int            `json:"v"`
	By          string         `json:"by,omitempty"` // the process that stored the record
	Calls       int64          `json:"calls,omitempty"`
	Refusals    int64          `json:"refusals,omitempty"`
	LastUsed    time.Time      `json:"last_used,omitzero"`
	LastRefused time.Time      `json:"last_refused,omitzero"`
	Reason      access.Outcome `json:"reason,omitempty"`
	Days        []dayRecord    `json:"days,omitempty"` // version 1 only
}

// by operation and outcome
type dayRecord struct {
	Calls [2][]int64 `json:"c"`
}

const (
	usageEvery = time.Minute
	// usageWriters is the number of tokens whose usage is stored at the same time.
	usageWriters = 16
	totalUsage   = "total"
	maxCalls     = 1 << 53 // what a record may count
)

type usageState struct {
	by string // names this process

	mu      sync.Mutex                      // guards the fields below
	parts   map[string]map[string]usagePart // by token, and the rest of the subject
	emptied []Record                        // to be removed
}

// The usage of a token is the sum of its parts.
type usagePart struct {
	access.Usage
	seq uint64
}

// applyUsage skips usage that no service can have written, or that a newer version wrote.
func (k *RecordStore) applyUsage(rest string, is Record) error {
	id, part, _ := strings.Cut(rest, ".")
	r, err := decodeUsage(is.Body)
	_, skip := errors.AsType[unfit](err) // because usage should not prevent a start
	switch {
	case is.Newer, skip, err == nil && r.Version > usageVersion:
		return nil
	case err != nil:
		return err
	}
	k.usage.mu.Lock()
	defer k.usage.mu.Unlock()
	parts := k.usage.parts[id]
	if parts == nil {
		parts = make(map[string]usagePart)
		k.usage.parts[id] = parts
	}
	parts[part] = usagePart{r.usage(), is.Seq}
	if part != totalUsage && r.usage() == (access.Usage{}) {
		delete(parts, part)
		k.usage.emptied = append(k.usage.emptied, Record{Subject: is.Subject, Seq: is.Seq})
	}
	var sum access.Usage
	for _, p := range parts {
		sum = sum.Plus(p.Usage, k.now())
	}
	k.tables.Tokens.NoteUsage(id, sum, r.By == k.usage.by)
	return nil
}

// KeepUsage stores this node's counts of calls once a minute and when ctx ends. A kill loses those
// of the last minute.
func (k *RecordStore) KeepUsage(ctx context.Context) {
	for range periodic.Every(ctx, usageEvery) {
		k.storeUsage(ctx)
	}
	k.storeUsage(ctx)
}

// It also stores after ctx has ended. The next call stores what this one did not.
func (k *RecordStore) storeUsage(ctx context.Context) {
	timed, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	storing, writers := newWorkers(timed, usageWriters)
	ids := k.tables.Tokens.Unstored()
	for _, id := range ids {
		if writers.start(func() error {
			err := k.addUsage(storing, ctx, id)
			if codec.IsNewer(err) {
				return nil
			}
			return err
		}) != nil {
			break
		}
	}
	err := writers.wait()
	if err == nil {
		err = k.removeEmptied(timed)
	}
	if err != nil {
		k.log.Warn("cannot store the usage of tokens; will retry in a minute", "tokens", len(ids), "error", err)
	}
}

func (k *RecordStore) removeEmptied(ctx context.Context) error {
	k.usage.mu.Lock()
	emptied := k.usage.emptied
	k.usage.emptied = nil
	k.usage.mu.Unlock()
	if len(emptied) == 0 {
		return nil
	}
	return k.engine.Remove(ctx, codec.Tokens, emptied)
}

// addUsage adds what this process has counted, and the records of earlier versions, to the total.
func (k *RecordStore) addUsage(ctx, feeding context.Context, id string) error {
	subject := "tokenuse." + id + "." + totalUsage
	var next access.Usage
	seq, err := Change(ctx, k.engine, k.config.Patience.Store, codec.Tokens, subject, func(is Record) ([]Write, error) {
		total, err := decodeUsage(is.Body)
		switch {
		case err != nil: // there is none, or none that a service can have written
			total = usageRecord{}
		case total.Version > usageVersion:
			return nil, codec.ErrNewer
		}
		sum := total.usage()
		k.usage.mu.Lock()
		parts := maps.Clone(k.usage.parts[id])
		k.usage.mu.Unlock()
		delete(parts, totalUsage)
		var writes []Write
		for name, p := range parts {
			if len(writes) == MaxBatch-1 {
				break // the next write adds the others
			}
			if writes, err = appendJSON(writes, "tokenuse."+id+"."+name, usageRecord{Version: usageVersion}); err != nil {
				return nil, err
			}
			last := &writes[len(writes)-1]
			last.Expect, last.Expected = p.seq, true
			sum = sum.Plus(p.Usage, k.now())
		}
		next = k.tables.Tokens.UsageToStore(id, sum, k.now())
		return appendJSON(writes, subject, usageRecord{
			Version: usageVersion, By: k.usage.by, Calls: next.Calls, Refusals: next.Refusals,
			LastUsed: next.LastUsed, LastRefused: next.LastRefused, Reason: next.Reason,
		})
	})
	if err != nil {
		return err
	}
	feeding, cancel := context.WithTimeout(feeding, requestTimeout)
	defer cancel()
	if k.tokenFeed.Wait(feeding, seq) != nil { // such as when the node ends
		k.tables.Tokens.NoteUsage(id, next, true)
	}
	return nil
}

func decodeUsage(body []byte) (r usageRecord, err error) {
	if json.Unmarshal(body, &r) != nil {
		return r, codec.ErrDamaged
	}
	fits := true
	for _, d := range r.Days {
		for _, calls := range d.Calls {
			for o, n := range calls {
				fits = fits && 0 <= n && n <= maxCalls-r.Calls
				r.Calls += n
				if o >= int(access.InsufficientScope) {
					r.Refusals += n
				}
			}
		}
	}
	r.Days = nil
	if !fits || r.Refusals < 0 || r.Refusals > r.Calls || r.Calls > maxCalls {
		return r, unfit{"usage", errors.New("a number of calls is negative or too large")}
	}
	return r, nil
}

// usage returns the usage in r, without a refusal whose reason this version does not know.
func (r usageRecord) usage() access.Usage {
	u := access.Usage{Calls: r.Calls, Refusals: r.Refusals, LastUsed: r.LastUsed}
	if r.Reason.Known() {
		u.LastRefused, u.Reason = r.LastRefused, r.Reason
	}
	return u
}
