package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"carstate/internal/access"
	"carstate/internal/store/codec"
	"carstate/internal/testkit"
	"carstate/internal/vehicle"
)

// A full stream drops the record of the vehicle that was not heard of for longest,
// while every node's table still has its answer.
func TestForgetWithoutStoredState(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	n := startNode(t, Config{DataDir: t.TempDir()})
	n.drive(t, 1000, secretVID)
	testkit.Await(t, "the table knows it", func() bool { return n.knows(secretVID) })
	s, err := n.js.Stream(t.Context(), States)
	if err != nil {
		t.Fatal(err)
	}
	_, rev, err := n.lastRecord(t.Context(), States, codec.StateSubject(codec.PartitionOf(secretVID, n.partitions), secretVID))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteMsg(t.Context(), rev); err != nil {
		t.Fatal(err)
	}
	if r := n.forget(t, secretVID); r.Removed.States != 0 {
		t.Errorf("%+v", r)
	}
	if n.knows(secretVID) {
		t.Error("the node that was asked still answers for it")
	}
}

// A restore has looked at a vehicle, which is then forgotten, and stores its state
// after that.
func TestForgetDuringRestore(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	a := startNode(t, Config{DataDir: t.TempDir()})
	a.drive(t, 1000, secretVID)
	body, rev, err := a.lastRecord(t.Context(), States, codec.StateSubject(codec.PartitionOf(secretVID, a.partitions), secretVID))
	if err != nil || rev == 0 {
		t.Fatal(rev, err)
	}
	b := startNode(t, Config{DataDir: t.TempDir()})
	r := &restore{k: b.Keeper, counts: make(map[string]access.RestoreCount)}
	rec := record{subject: codec.StateSubject(0, secretVID), body: body}
	w, err := r.compare(t.Context(), rec)
	if w == nil || err != nil {
		t.Fatal(w, err)
	}
	b.forget(t, secretVID)
	if conflicts, err := b.storeMany(t.Context(), States, []write{*w}); len(conflicts) != 1 || err != nil {
		t.Errorf("a forgotten vehicle came back: %v, %v", conflicts, err)
	}
	if err := r.states(t.Context(), []record{rec}); err != nil || r.counts["state"] != (access.RestoreCount{Forgotten: 1}) {
		t.Errorf("%v, %+v", err, r.counts)
	}
}

// A node that has not heard of a tombstone yet finds the marker in place of a
// state, and does not restore over it.
func TestRestoreOverMarker(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	n := startNode(t, Config{DataDir: t.TempDir()})
	n.drive(t, 1000, secretVID)
	p := codec.PartitionOf(secretVID, n.partitions)
	body, _, err := n.lastRecord(t.Context(), States, codec.StateSubject(p, secretVID))
	if err != nil {
		t.Fatal(err)
	}
	// What another node does: its tombstone is stored, and not on our feed yet.
	ctx, cancel := context.WithCancel(t.Context())
	late := n.NewKeeper(new(access.Tables)) // a feed that does not run yet
	hash := n.forgotten.Hash(secretVID)
	subject := codec.TombstoneSubject(hash)
	stone, err := sealJSON(subject, tombstoneRecord{Vehicle: hash[:], Forgotten: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.storeBatch(ctx, Sources, []write{{subject, stone, 0, true}}); err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, "the tombstone has come", func() bool { return n.forgotten.Has(secretVID) })
	if _, err := n.mark(ctx, p, secretVID); err != nil {
		t.Fatal(err)
	}
	n.forgotten.Put(access.Tombstone{Vehicle: hash, Opened: true}) // as if only an earlier one had
	r := &restore{k: late, counts: make(map[string]access.RestoreCount)}
	type result struct {
		w   *write
		err error
	}
	compared := make(chan result, 1)
	go func() {
		w, err := r.compare(ctx, record{subject: codec.StateSubject(p, secretVID), body: body})
		compared <- result{w, err}
	}()
	var running sync.WaitGroup
	running.Go(func() { late.RunSources(ctx, func() {}) })
	defer running.Wait()
	defer cancel()
	if got := <-compared; got.w != nil || got.err != nil || r.counts["state"] != (access.RestoreCount{Forgotten: 1}) {
		t.Errorf("%+v, %+v", got, r.counts)
	}
}

// Nobody who folds waits for a place in SOURCES that does not exist yet, however
// often a partition was fenced.
func TestFenceManyTimes(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	n := startNode(t, Config{DataDir: t.TempDir()})
	for range 30 {
		if _, err := n.refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s, err := n.js.Stream(t.Context(), Sources)
	if err != nil {
		t.Fatal(err)
	}
	c, _, err := n.readCursor(t.Context(), 0)
	if last := s.CachedInfo().State.LastSeq; err != nil || c.Forgotten > last {
		t.Errorf("who folds waits for record %d of %d: %v", c.Forgotten, last, err)
	}
	part, err := n.Take(t.Context(), 0, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer part.Close()
	if _, err := n.refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := part.Commit(t.Context(), 0, map[vehicle.ID]vehicle.State{}); err == nil {
		t.Error("a fold from before the fence was stored")
	}
	testkit.Await(t, "the node drops what it has at hand", func() bool { return part.recalled.Err() != nil })
}

// SOURCES is made anew, and with it go the tombstones that cursors count. Who has
// read the new one folds without waiting for what will never come; who has read
// only the old one, or is told that its tables are of the past, folds nothing.
func TestTakeAfterSourcesReplaced(t *testing.T) {
	t.Parallel()
	e := openOne(t, Config{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	follow := func() (stop func()) {
		k := e.NewKeeper(new(access.Tables))
		ctx, cancel := context.WithCancel(ctx)
		caughtUp := make(chan struct{})
		var running sync.WaitGroup
		running.Go(func() {
			if err := k.RunSources(ctx, func() { close(caughtUp) }); err != nil {
				t.Error(err)
			}
		})
		<-caughtUp
		return func() {
			cancel()
			running.Wait()
		}
	}
	made := func() (uint64, int64) {
		s, err := e.js.Stream(ctx, Sources)
		if err != nil {
			t.Fatal(err)
		}
		return s.CachedInfo().State.LastSeq, s.CachedInfo().Created.UnixNano()
	}
	take := func() error {
		part, err := e.Take(ctx, 0, "test")
		if err == nil {
			part.Close()
		}
		return err
	}

	stop := follow()
	_, old := made()
	if err := e.fence(ctx, 0, 1); err != nil {
		t.Fatal(err)
	}
	if err := take(); err != nil {
		t.Fatal(err)
	}
	stop() // it hears of nothing any more, as a node that has not noticed yet
	if err := e.js.DeleteStream(ctx, Sources); err != nil {
		t.Fatal(err)
	}
	if _, err := ensureStreams(ctx, e.js, e.config); err != nil {
		t.Fatal(err)
	}
	if err := e.loadVIDKeys(ctx); err != nil {
		t.Fatal(err)
	}
	for _, in := range []int64{old, 0} { // 0: by a carstate from before the field
		for {
			c, rev, err := e.readCursor(ctx, 0)
			if err != nil {
				t.Fatal(err)
			}
			c.Forgotten, c.ForgottenIn = 1_000_000, in
			p := Partition{e: e, cursor: c}
			if _, err = e.storeBatch(ctx, States, []write{p.cursorWrite(rev)}); err == nil {
				break
			}
			if !conflict(err) {
				t.Fatal(err)
			}
		}
		stop := follow()
		if err := take(); err != nil {
			t.Errorf("of a tombstone that is gone: %v", err)
		}
		last, now := made()
		if err := e.fence(ctx, 0, last); err != nil {
			t.Fatal(err)
		}
		if c, _, err := e.readCursor(ctx, 0); err != nil || c.ForgottenIn != now || in != 0 && c.Forgotten != last {
			t.Errorf("%+v, %v; want place %d of the SOURCES of %d", c, err, last, now)
		}
		if err := take(); err != nil {
			t.Errorf("of a tombstone that is there: %v", err)
		}
		stop()
	}

	k := e.NewKeeper(new(access.Tables)) // as a node that has read up to 5000 of the old SOURCES
	k.srcFeed.created = time.Unix(0, old)
	k.srcFeed.last = 5000
	if err := take(); !errors.Is(err, ErrReplaced) {
		t.Errorf("a node that has not seen the tombstone takes the partition: %v", err)
	}
	defer follow()()
	e.fail(ErrReplaced)
	if err := take(); !errors.Is(err, ErrReplaced) {
		t.Errorf("a node whose tables are of the past takes a partition: %v", err)
	}
}

// An erasure by tombstones that went with their stream leaves everything as it is.
func TestEraseWithoutTombstone(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64 // of the clock
	n := startNode(t, Config{DataDir: t.TempDir(), Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
	n.forget(t, secretVID)
	ahead.Store(int64(24 * time.Hour))
	marker := func(id vehicle.ID) record {
		return record{subject: codec.StateSubject(codec.PartitionOf(id, n.partitions), id)}
	}
	if !n.expired(marker(secretVID)) {
		t.Error("a marker outlives its time")
	}
	if n.expired(marker("unknown")) {
		t.Error("a marker goes whose tombstone is not known")
	}
	gone := access.Tombstone{Vehicle: n.forgotten.Hash("unknown"), Forgotten: time.Now()}
	r := &eraser{k: n.Keeper}
	if err := r.note(t.Context(), []access.Tombstone{gone}, func(t *access.Tombstone) { t.Padded = 7 }); err != nil {
		t.Error(err)
	}
	if err := n.noteRemoved(t.Context(), gone); !errors.Is(err, errNoTombstone) {
		t.Errorf("noted in a tombstone that is gone: %v", err)
	}
	if err := n.lift(t.Context(), "unknown", gone.Vehicle); !errors.Is(err, errNoTombstone) {
		t.Errorf("lifted a tombstone that is gone: %v", err)
	}
	if body, rev, err := n.lastRecord(t.Context(), Sources, codec.TombstoneSubject(gone.Vehicle)); rev != 0 || err != nil {
		t.Errorf("a tombstone was made of nothing: %s, %v", body, err)
	}
	n.fail(ErrReplaced)
	if n.expired(marker(secretVID)) {
		t.Error("a marker goes by a table of the past")
	}
	if err := n.erase(t.Context()); !errors.Is(err, ErrReplaced) {
		t.Errorf("records are stored again by a table of the past: %v", err)
	}
}

// Of many records stored together some have changed meanwhile: they, and no
// others, are left as they are.
func TestStoreManyWithConflicts(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	e := openOne(t, Config{})
	put := func(i int, text string) write {
		subject := codec.StateSubject(0, vehicle.ID(fmt.Sprintf("car%03d", i)))
		return write{subject, codec.Seal(subject, append([]byte{0}, text...)), 0, true}
	}
	changed := []int{0, 7, 8, 299}
	for _, i := range changed {
		if _, err := e.storeBatch(t.Context(), States, []write{put(i, "changed")}); err != nil {
			t.Fatal(err)
		}
	}
	var all []write
	for i := range 300 {
		all = append(all, put(i, "again"))
	}
	conflicts, err := e.storeMany(t.Context(), States, all)
	if err != nil || !slices.Equal(conflicts, changed) {
		t.Fatalf("%v conflict, want %v: %v", conflicts, changed, err)
	}
	for i, w := range all {
		want := "again"
		if slices.Contains(changed, i) {
			want = "changed"
		}
		if body, _, err := e.lastRecord(t.Context(), States, w.subject); err != nil || string(body) != want {
			t.Fatalf("%s: %s, %v", w.subject, body, err)
		}
	}
}
