package store

import (
	"context"
	"encoding/json/v2"
	"errors"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/store/codec"
)

// A record of a later usageVersion is neither read nor replaced, because usage is only displayed
// and should not prevent a start.
const usageVersion = 2

type usageRecord struct {
	Version int    `json:"v"`
	By      string `json:"by,omitzero"`
	access.Usage
}

const (
	usageEvery   = time.Minute
	usageWriters = 16
	totalUsage   = ".total"
	maxCalls     = 1 << 53
)

func (k *RecordStore) applyUsage(rest string, is Record) error {
	r, err := decodeUsage(is.Body)
	_, skip := errors.AsType[Unfit](err)
	switch {
	case skip, err == nil && r.Version > usageVersion:
		return nil
	case err != nil:
		return err
	}
	if id, ok := strings.CutSuffix(rest, totalUsage); ok {
		k.tables.Tokens.NoteUsage(id, access.Usage{}.Plus(r.Usage, k.config.Now()), r.By == k.by)
	}
	return nil
}

// KeepUsage stores usage every minute, so a kill loses a minute's calls.
func (k *RecordStore) KeepUsage(ctx context.Context) {
	for range periodic.Every(ctx, usageEvery) {
		k.storeUsage(ctx)
	}
	k.storeUsage(ctx)
}

// storeUsage also stores after ctx has ended.
func (k *RecordStore) storeUsage(ctx context.Context) {
	if k.engine.Scarce() {
		return
	}
	timed, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	writers, storing := errgroup.WithContext(timed)
	writers.SetLimit(usageWriters)
	ids := k.tables.Tokens.Unstored()
	for _, id := range ids {
		writers.Go(func() error { return k.addUsage(storing, ctx, id) })
		if storing.Err() != nil {
			break
		}
	}
	if err := writers.Wait(); err != nil {
		k.config.Log.Warn("cannot store the usage of tokens; will retry in a minute", "tokens", len(ids), "error", err)
	}
}

func (k *RecordStore) addUsage(ctx, feeding context.Context, id string) error {
	subject := "tokenuse." + id + totalUsage
	var next access.Usage
	seq, err := Change(ctx, k.engine, k.config.Patience.Store, codec.Tokens, subject, func(is Record) ([]Write, error) {
		total, err := decodeUsage(is.Body)
		switch {
		case err != nil: // there is none, or none that a service can have written
			total = usageRecord{}
		case total.Version > usageVersion:
			return nil, codec.ErrNewer
		}
		next = k.tables.Tokens.UsageToStore(id, total.Usage, k.config.Now())
		return AppendJSON(nil, subject, usageRecord{usageVersion, k.by, next})
	})
	if codec.IsNewer(err) {
		return nil
	}
	if err != nil {
		return err
	}
	feeding, cancel := context.WithTimeout(feeding, requestTimeout)
	defer cancel()
	if k.Tokens.Wait(feeding, seq) != nil { // such as when the node ends
		k.tables.Tokens.NoteUsage(id, next, true)
	}
	return nil
}

// decodeUsage leaves out a refusal whose reason this version does not know.
func decodeUsage(body []byte) (r usageRecord, err error) {
	if json.Unmarshal(body, &r) != nil {
		return r, codec.ErrDamaged
	}
	if r.Refusals < 0 || r.Refusals > r.Calls || r.Calls > maxCalls {
		return r, Unfit{"usage", errors.New("a number of calls is negative or too large")}
	}
	if !r.Reason.Known() {
		r.LastRefused, r.Reason = time.Time{}, 0
	}
	return r, nil
}
