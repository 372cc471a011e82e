package cluster

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"carstate/internal/access"
	"carstate/internal/store/cluster/embedded"
	"carstate/internal/store/codec"
	"carstate/internal/ticks"
)

// What was overwritten or purged stays in the engine's files: a block of 8 MiB is
// written anew only when more than half of it is of no use, and the newest block
// never. So the embedded engine drives out the bytes of a forgotten vehicle:
//
//   - TELEMETRY is padded by more than a block once every node refuses the
//     vehicle. All that names it then lies in blocks before the padding, which go
//     as a whole when the retention has passed and the trimmer has passed them.
//   - Then STATES, TOKENS and SOURCES are padded, and every record from before
//     that is stored again behind it, with a check that nobody changed it
//     meanwhile. What is left before the padding is of no use at all, and the
//     engine removes a block without a record of use at once.
//
// It writes the fleet's states once for all that was forgotten since the last time,
// not more often than every Patience.Markers.
//
// The size of a block is the server's own affair. This build knows it of the embedded
// server only, so on a cluster nothing is padded or stored again: the markers are
// removed when they are due, and the bytes go when NATS compacts its files.

const (
	paddingBytes = 512 << 10
	paddings     = embedded.MaxBlockBytes/paddingBytes + 2
	// forgetTimeout is when a forget that has not noted its end was cut off.
	forgetTimeout = time.Minute
	// eraseTimeout bounds one erasure, of tens of millions of states.
	eraseTimeout = 24 * time.Hour
	// manyAtOnce is how many records that do not belong together are stored at
	// once, and manyWriters how many such batches are under way. They leave
	// derive its share of the batches that a node may have open.
	manyAtOnce  = 500
	manyWriters = 2
	// slowestErasure is what one state takes to be stored again on a machine
	// that has much else to do: several times what it takes on one of its own.
	slowestErasure = time.Millisecond
)

// erasedWithin is how long after a vehicle that is forgotten now its last byte is
// gone from an embedded engine's files.
func (e *Engine) erasedWithin(ctx context.Context) (time.Duration, error) {
	s, err := e.js.Stream(ctx, States)
	if err != nil {
		return 0, err
	}
	work := time.Duration(s.CachedInfo().State.NumSubjects) * slowestErasure
	return e.keptFor() + e.config.Patience.Markers + 5*time.Minute + work, nil
}

// keptFor is how long what names a forgotten vehicle is kept: telemetry for the
// other vehicles in it, the marker for nodes that are out of reach.
func (e *Engine) keptFor() time.Duration {
	return max(e.config.Retention, e.config.Patience.Markers)
}

// eraser drives out what names forgotten vehicles. It belongs to one goroutine.
type eraser struct {
	k      *Keeper
	last   time.Time // of the last erasure
	padded time.Time // when TELEMETRY was padded last
}

// Erase removes the bytes that name forgotten vehicles once they are due, until
// the context ends or the engine fails, whose tombstones may then be those of a
// stream that is no more. Nodes that derive run it, and the one that folds
// partition 0 does it for all.
func (k *Keeper) Erase(ctx context.Context) {
	r := &eraser{k: k}
	for range ticks.Every(ctx, trimEvery) {
		if k.e.Alive() != nil {
			return
		}
		if ours, err := k.e.folds(ctx, 0); err == nil && !ours {
			continue
		}
		if err := r.step(ctx); err != nil && ctx.Err() == nil {
			k.e.log.Warn("what names forgotten vehicles cannot be erased yet: trying again", "error", err)
		}
	}
}

// folds reports whether a partition is in this node's hands.
func (e *Engine) folds(ctx context.Context, p int) (bool, error) {
	taken, ok := e.taken.Load(p)
	if !ok {
		return false, nil
	}
	c, _, err := e.readCursor(ctx, p)
	ours := taken.(*Partition)
	return c.Owner == ours.cursor.Owner && c.Generation == ours.cursor.Generation, err
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
	cutOff := false
	for _, t := range e.forgotten.All() {
		age := now.Sub(t.Forgotten)
		// It is not the telemetry that was padded if it ends before.
		trimmed := state.FirstSeq > t.Padded || state.LastSeq < t.Padded || state.Msgs == 0 || !e.config.embedded()
		switch {
		case !t.Removed:
			cutOff = cutOff || age >= forgetTimeout
		case !t.Erased.IsZero():
		case t.Padded == 0 && e.config.embedded():
			// Every node has its tombstone, and has stored or given up what it
			// let through before.
			if age >= min(2*e.config.Patience.Store, e.config.Patience.Markers) {
				unpadded = append(unpadded, t)
			}
		case age >= e.keptFor() && trimmed:
			due = append(due, t)
		}
	}
	if cutOff {
		if err := r.k.removeForgotten(ctx); err != nil {
			return err
		}
	}
	if len(unpadded) > 0 && now.Sub(r.padded) >= e.config.Patience.Markers/10 {
		end, err := e.pad(ctx, Telemetry)
		if err != nil {
			return err
		}
		r.padded = now
		if err := r.note(ctx, unpadded, func(t *access.Tombstone) { t.Padded = end }); err != nil {
			return err
		}
	}
	if len(due) == 0 || now.Sub(r.last) < e.config.Patience.Markers {
		return nil
	}
	r.last = now
	if err := r.k.erase(ctx); err != nil {
		return err
	}
	if err := r.note(ctx, due, func(t *access.Tombstone) { t.Erased = now.UTC().Truncate(time.Millisecond) }); err != nil {
		return err
	}
	e.log.Info("what named forgotten vehicles was removed", "vehicles", len(due), "took", e.now().Sub(now).Round(time.Millisecond))
	return nil
}

// note changes tombstones of vehicles that were not forgotten anew meanwhile.
func (r *eraser) note(ctx context.Context, stones []access.Tombstone, change func(*access.Tombstone)) error {
	for _, t := range stones {
		_, err := r.k.putTombstone(ctx, t.Vehicle, func(is access.Tombstone) (access.Tombstone, error) {
			if is.Forgotten.Equal(t.Forgotten) {
				change(&is)
			}
			return is, nil
		})
		if err != nil && !errors.Is(err, errNoTombstone) {
			return err
		}
	}
	return nil
}

// pad fills a stream until a new block has begun, and returns the sequence of the
// last padding, which lies in that block.
func (e *Engine) pad(ctx context.Context, stream string) (end uint64, err error) {
	subject := codec.PaddingSubject(stream)
	record := codec.Seal(subject, make([]byte, paddingBytes))
	for range paddings {
		if end, err = e.storeBatch(ctx, stream, []write{{subject: subject, record: record}}); err != nil {
			return 0, fmt.Errorf("%s cannot be padded: %w", stream, err)
		}
	}
	return end, nil
}

// erase removes what still names forgotten vehicles: in the embedded engine's files, or
// on a cluster in what its streams hold.
func (k *Keeper) erase(ctx context.Context) error {
	// A node that had not seen a tombstone yet may have granted meanwhile.
	_, _, err := k.dropGrants(ctx, k.withoutForgotten)
	if err != nil {
		return err
	}
	if !k.e.config.embedded() {
		return k.removeExpired(ctx)
	}
	streams := map[string][]string{
		States:  {"state.*.*"},
		Tokens:  {"token.*", "tokenset.*.*", "tokenuse.*", "tokenuse.*.*"},
		Sources: {"source.*", "sourceset.*.*", "operator.*", "tombstone.*", codec.VIDKeysSubject},
	}
	for _, stream := range fedStreams {
		if err := k.e.Alive(); err != nil {
			return err
		}
		if err := k.rewrite(ctx, stream, streams[stream]); err != nil {
			return fmt.Errorf("%s: %w", stream, err)
		}
	}
	return nil
}

// removeExpired removes the markers that no node needs any more. A state that came
// back is forgotten again.
func (k *Keeper) removeExpired(ctx context.Context) error {
	var expired []record
	err := k.e.scan(ctx, States, []string{"state.*.*"}, func(r record) error {
		if codec.IsMarker(r.body) {
			if k.expired(r) {
				expired = append(expired, record{subject: r.subject, seq: r.seq})
			}
			return nil
		}
		back, err := k.forgetAgain(ctx, r)
		if back { // unless the vehicle, allowed meanwhile, has a newer one
			_, err = k.e.storeMany(ctx, States, []write{{r.subject, codec.SealMarker(r.subject), r.seq, true}})
		}
		return err
	})
	if err != nil {
		return err
	}
	return k.e.removeAll(ctx, States, expired)
}

// rewrite pads a stream and stores every record from before the padding again.
func (k *Keeper) rewrite(ctx context.Context, stream string, subjects []string) error {
	end, err := k.e.pad(ctx, stream)
	if err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	reading, stop := context.WithCancel(ctx)
	defer stop()
	records := make(chan record, manyAtOnce)
	var storing sync.WaitGroup
	var mu sync.Mutex // guards expired
	var expired []string
	for range manyWriters {
		storing.Go(func() {
			for batch := range gather(records) {
				markers, err := k.again(ctx, stream, batch)
				if err != nil {
					fail(err)
				}
				mu.Lock()
				expired = append(expired, markers...)
				mu.Unlock()
			}
		})
	}
	var sets []record
	done := false
	f := newFeed(k.e, stream)
	f.filters = append(subjects, codec.PaddingSubject(stream))
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
	if err := k.e.removeAll(ctx, stream, sets); err != nil {
		return err
	}
	return k.e.removeMarkers(ctx, expired)
}

// gather yields what waits in a channel, up to manyAtOnce together, until it is
// closed.
func gather(records <-chan record) iter.Seq[[]record] {
	return func(yield func([]record) bool) {
		for r := range records {
			batch := []record{r}
			for full := false; !full && len(batch) < manyAtOnce; {
				select {
				case r, ok := <-records:
					if full = !ok; ok {
						batch = append(batch, r)
					}
				default:
					full = true
				}
			}
			if !yield(batch) {
				return
			}
		}
	}
}

// again stores records again behind the padding, but for those that were
// replaced, and returns the subjects of the markers that no node needs any more.
// They go last: of a record that was overwritten the engine notes nowhere that it
// is gone, so until its block is, only a newer record keeps the state of a
// forgotten vehicle from coming back after a crash.
func (k *Keeper) again(ctx context.Context, stream string, batch []record) (expired []string, err error) {
	var writes []write
	for _, r := range batch {
		kind, _, _ := strings.Cut(r.subject, ".")
		w := write{r.subject, r.sealed, r.seq, true}
		switch {
		case kind == "token" || kind == "source":
			_, err = k.update(ctx, r.subject, func(*access.Credential) error { return nil })
		case kind == "state" && !codec.IsMarker(r.body):
			var back bool
			if back, err = k.forgetAgain(ctx, r); back {
				w.record = codec.SealMarker(r.subject)
			}
			writes = append(writes, w)
		default:
			if kind == "state" && k.expired(r) {
				expired = append(expired, r.subject)
			}
			writes = append(writes, w)
		}
		if err != nil {
			return nil, err
		}
	}
	_, err = k.e.storeMany(ctx, stream, writes)
	return expired, err
}

// forgetAgain reports whether a state is of a vehicle whose state was taken away
// and has come back, as a crash of an earlier version could bring it. All that
// names the vehicle is then to be erased once more.
func (k *Keeper) forgetAgain(ctx context.Context, r record) (back bool, err error) {
	takenAway := func(t access.Tombstone) bool { return t.Removed && t.Lifted.IsZero() }
	id, _ := codec.VehicleOfState(r.subject)
	t, ok := k.e.forgotten.Find(id)
	if !ok || !takenAway(t) {
		return false, nil
	}
	_, err = k.putTombstone(ctx, t.Vehicle, func(is access.Tombstone) (access.Tombstone, error) {
		if back = takenAway(is); back {
			is = access.Tombstone{Vehicle: is.Vehicle, Forgotten: k.e.now().UTC().Truncate(time.Millisecond)}
		}
		return is, nil
	})
	if err == nil && back {
		k.e.log.Warn("the state of a forgotten vehicle had come back, and is forgotten again", "vehicle", t.Vehicle.Short())
	}
	return back && err == nil, err
}

// expired reports whether no node needs a marker any more. One whose tombstone went
// with its stream is kept: nobody can say of when it is.
func (k *Keeper) expired(r record) bool {
	id, _ := codec.VehicleOfState(r.subject)
	t, ok := k.e.forgotten.Find(id)
	return ok && k.e.Alive() == nil && k.e.now().Sub(t.Forgotten) >= k.e.keptFor()
}

// storeMany stores writes of different subjects that do not belong together, each
// if its expectation holds, and returns the places of those whose did not, in
// order. What was stored although its answer was lost is one of them.
func (e *Engine) storeMany(ctx context.Context, stream string, writes []write) (conflicts []int, err error) {
	if len(writes) == 0 {
		return nil, nil
	}
	for {
		_, err = e.storeBatch(ctx, stream, writes)
		if err == nil {
			return nil, nil
		}
		if refused(err) || ctx.Err() != nil {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	// The engine does not say which one it was. Halves find it soon.
	half := len(writes) / 2
	switch {
	case !refused(err), half == 0 && !conflict(err):
		return nil, err
	case half == 0:
		return []int{0}, nil
	}
	for _, from := range []int{0, half} {
		part := writes[from:]
		if from == 0 {
			part = writes[:half]
		}
		found, err := e.storeMany(ctx, stream, part)
		for _, i := range found {
			conflicts = append(conflicts, from+i)
		}
		if err != nil {
			return conflicts, err
		}
	}
	return conflicts, nil
}

// removeMarkers removes markers that were stored again, wherever they are now.
func (e *Engine) removeMarkers(ctx context.Context, subjects []string) error {
	var markers []record
	for _, subject := range subjects {
		body, rev, err := e.lastRecord(ctx, States, subject)
		if err != nil {
			return err
		}
		if rev != 0 && codec.IsMarker(body) {
			markers = append(markers, record{subject: subject, seq: rev})
		}
	}
	return e.removeAll(ctx, States, markers)
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
	if !errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) {
		return false
	}
	return strings.Contains(err.Error(), "no message found") || strings.Contains(err.Error(), "err_code=10043") // no such sequence
}
