package stream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"carstate/internal/access"
)

// What was overwritten or purged stays in the engine's files: a block of 8 MiB is
// written anew only when more than half of it is of no use, and the newest block
// never. So the bytes of a forgotten vehicle are driven out:
//
//   - TELEMETRY is padded by more than a block once every node refuses the
//     vehicle. All that names it then lies in blocks before the padding, which go
//     as a whole when the retention has passed and the trimmer has passed them.
//   - Then STATES, TOKENS and SOURCES are padded, and every record from before
//     that is stored again behind it, with a check that nobody changed it
//     meanwhile. What is left before the padding is of no use at all, and the
//     engine removes a block without a record of use at once.
//
// This needs nothing but what the engine offers to every client, and so works on
// a cluster too. It writes the fleet's states once for all that was forgotten
// since the last time, not more often than every Patience.Markers.

const (
	// maxBlockBytes is the size of the engine's largest blocks.
	maxBlockBytes = 8 << 20
	paddingBytes  = 512 << 10
	paddings      = maxBlockBytes/paddingBytes + 2
	// eraseTimeout bounds one erasure, of millions of states.
	eraseTimeout = time.Hour
	// restores is how many records are stored again at a time.
	restores = 16
)

// erasedWithin is how long after a vehicle was forgotten its last byte is gone,
// give or take the trimmer's pace.
func (e *Engine) erasedWithin() time.Duration {
	return e.keptFor() + e.config.Patience.Markers + 2*trimEvery
}

// keptFor is how long what names a forgotten vehicle is kept: telemetry for the
// other vehicles in it, the marker for nodes that are out of reach.
func (e *Engine) keptFor() time.Duration {
	return max(e.config.Retention, e.config.Patience.Markers)
}

// eraser drives out what names forgotten vehicles. It belongs to one goroutine.
type eraser struct {
	k      *Keeper
	padded map[access.VehicleHash]padding
	last   time.Time // of the last erasure
}

// padding is where TELEMETRY was padded after a vehicle was forgotten.
type padding struct {
	forgotten time.Time // which time, if it happened more than once
	end       uint64    // the last padding
}

// Erase removes the bytes that name forgotten vehicles once they are due, until
// the context ends. Nodes that derive run it.
func (k *Keeper) Erase(ctx context.Context) {
	r := &eraser{k: k, padded: make(map[access.VehicleHash]padding)}
	tick := time.NewTicker(trimEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := r.step(ctx); err != nil && ctx.Err() == nil {
			k.e.log.Warn("what names forgotten vehicles cannot be erased yet: trying again", "error", err)
		}
	}
}

// step does what is due.
func (r *eraser) step(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, eraseTimeout)
	defer cancel()
	e := r.k.e
	s, err := e.js.Stream(ctx, Telemetry)
	if err != nil {
		return err
	}
	now, state := e.now(), s.CachedInfo().State
	var due, unpadded []access.Tombstone
	for _, t := range e.forgotten.All() {
		p, ok := r.padded[t.Vehicle]
		age := now.Sub(t.Forgotten)
		switch {
		case !t.Erased.IsZero():
			delete(r.padded, t.Vehicle)
		case !ok || !p.forgotten.Equal(t.Forgotten):
			if age >= min(trimEvery, e.config.Patience.Markers) { // every node has its tombstone
				unpadded = append(unpadded, t)
			}
		case age >= e.keptFor() && (state.FirstSeq > p.end || state.Msgs == 0):
			due = append(due, t)
		}
	}
	if len(unpadded) > 0 {
		end, err := e.pad(ctx, Telemetry)
		if err != nil {
			return err
		}
		for _, t := range unpadded {
			r.padded[t.Vehicle] = padding{t.Forgotten, end}
		}
	}
	if len(due) == 0 || now.Sub(r.last) < e.config.Patience.Markers {
		return nil
	}
	r.last = now
	if err := r.k.erase(ctx); err != nil {
		return err
	}
	for _, t := range due {
		_, err := r.k.putTombstone(ctx, t.Vehicle, func(is access.Tombstone) (access.Tombstone, error) {
			if is.Forgotten.Equal(t.Forgotten) {
				is.Erased = now.UTC().Truncate(time.Millisecond)
			}
			return is, nil
		})
		if err != nil {
			return err
		}
	}
	e.log.Info("what named forgotten vehicles was erased", "vehicles", len(due), "took", e.now().Sub(now).Round(time.Millisecond))
	return nil
}

// pad fills a stream until a new block has begun, and returns the sequence of the
// last padding, which lies in that block.
func (e *Engine) pad(ctx context.Context, stream string) (end uint64, err error) {
	subject := paddingSubject(stream)
	record := seal(subject, make([]byte, paddingBytes))
	for range paddings {
		if end, err = e.storeBatch(ctx, stream, []write{{subject: subject, record: record}}); err != nil {
			return 0, fmt.Errorf("%s cannot be padded: %w", stream, err)
		}
	}
	return end, nil
}

// erase stores all records of use again, and so rids the streams of the others.
func (k *Keeper) erase(ctx context.Context) error {
	// A node that had not seen a tombstone yet may have granted meanwhile.
	_, _, err := k.dropGrants(ctx, k.withoutForgotten)
	if err != nil {
		return err
	}
	streams := map[string][]string{
		States:  {"state.*.*"},
		Tokens:  {"token.*", "tokenset.*.*", "tokenuse.*", "tokenuse.*.*"},
		Sources: {"source.*", "sourceset.*.*", "operator.*", "tombstone.*", vidKeysSubject},
	}
	for _, stream := range fedStreams {
		if err := k.rewrite(ctx, stream, streams[stream]); err != nil {
			return fmt.Errorf("%s: %w", stream, err)
		}
	}
	return nil
}

// rewrite pads a stream and stores every record from before the padding again.
func (k *Keeper) rewrite(ctx context.Context, stream string, subjects []string) error {
	end, err := k.e.pad(ctx, stream)
	if err != nil {
		return err
	}
	records := make(chan record, restores)
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	reading, stop := context.WithCancel(ctx)
	defer stop()
	var storing sync.WaitGroup
	for range restores {
		storing.Go(func() {
			for r := range records {
				if err := k.again(ctx, stream, r); err != nil {
					fail(err)
				}
			}
		})
	}
	var sets []record
	done := false
	f := newFeed(k.e, stream)
	f.filters = append(subjects, paddingSubject(stream))
	f.apply = func(r record) error {
		kind, _, _ := strings.Cut(r.subject, ".")
		switch {
		case r.seq >= end:
			done = true
			stop()
		case strings.HasSuffix(kind, "set"):
			sets = append(sets, record{subject: r.subject, seq: r.seq})
		default:
			select {
			case records <- record{subject: r.subject, body: r.body, sealed: r.sealed, seq: r.seq}:
			case <-ctx.Done():
			}
		}
		return nil
	}
	err = f.run(reading)
	close(records)
	storing.Wait()
	switch {
	case err != nil:
		return err
	case !done || ctx.Err() != nil:
		return context.Cause(ctx)
	}
	// The owners of sets were stored again with all of theirs. What is left is
	// of sets that were replaced.
	return k.e.removeAll(ctx, stream, sets)
}

// again stores a record again behind the padding, unless it was replaced.
func (k *Keeper) again(ctx context.Context, stream string, r record) (err error) {
	kind, rest, _ := strings.Cut(r.subject, ".")
	switch kind {
	case "token":
		_, err = k.UpdateToken(ctx, rest, func(*access.Token) error { return nil })
		return err
	case "source":
		_, err = k.updateSource(ctx, rest, func(*access.Source) error { return nil })
		return err
	case "state":
		if id, _ := vehicleOfState(r.subject); isMarker(r.body) {
			t, ok := k.e.forgotten.Find(id)
			if !ok || k.e.now().Sub(t.Forgotten) >= k.e.keptFor() {
				return k.e.removeAll(ctx, stream, []record{r})
			}
		}
	}
	for {
		_, err = k.e.storeBatch(ctx, stream, []write{{r.subject, r.sealed, r.seq, true}})
		switch {
		case err == nil, conflict(err):
			return nil
		case refused(err), ctx.Err() != nil:
			return err
		}
		// Nobody knows whether it was stored. If it was, the next try conflicts.
	}
}

// removeAll removes records that were not replaced meanwhile, and overwrites
// them on the disk.
func (e *Engine) removeAll(ctx context.Context, stream string, records []record) error {
	if len(records) == 0 {
		return nil
	}
	s, err := e.js.Stream(ctx, stream)
	if err != nil {
		return err
	}
	for _, r := range records {
		if err := s.SecureDeleteMsg(ctx, r.seq); err != nil && !noSuchMessage(err) {
			return err
		}
	}
	return nil
}

// noSuchMessage reports whether a message could not be removed because it is
// gone. The client library keeps no more of the answer than its text.
func noSuchMessage(err error) bool {
	return errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) && strings.Contains(err.Error(), "no message found")
}
