package store

import (
	"bytes"
	"context"
	"encoding/json"
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

// secretVID is the vid of the vehicle that the tests forget.
const secretVID = vehicle.ID("ForgetMe0f7Q2")

// clock is a clock that a test can set ahead.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

func mustForget(t *testing.T, k *RecordStore, id vehicle.ID) access.ForgetReceipt {
	t.Helper()
	r, err := k.Forget(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestForgetDuringRestore checks that a vehicle stays forgotten if the forget happens during a
// restore, after the restore has compared the vehicle's state and before it stores the state.
func TestForgetDuringRestore(t *testing.T) {
	t.Parallel()
	a, e := newMemory(t), newMemory(t)
	k, _ := runRecordStore(t, e, Config{})
	r := &restore{k: k, counts: make(map[string]access.RestoreCount)}
	rec := a.putState(t, secretVID, 1000)
	w, err := r.compare(t.Context(), rec)
	if w == nil || err != nil {
		t.Fatalf("got write %v, error %v; want a write", w, err)
	}
	mustForget(t, k, secretVID)
	conflicts, err := storeMany(t.Context(), e, time.Second, codec.States, []Write{*w})
	if len(conflicts) != 1 || err != nil {
		t.Errorf("the restore stored a forgotten vehicle: got conflicts %v, error %v; want one conflict", conflicts, err)
	}
	err = r.restoreStates(t.Context(), []Record{rec})
	if err != nil || r.counts["state"] != (access.RestoreCount{Forgotten: 1}) {
		t.Errorf("got error %v, counts %+v; want one forgotten state", err, r.counts)
	}
}

// TestRestoreOverMarker checks a restore on a node that has not received a tombstone yet. The node
// must find the marker (an empty record) in place of the vehicle's removed state, and must not
// replace the marker by the state of the backup.
func TestRestoreOverMarker(t *testing.T) {
	t.Parallel()
	e := newMemory(t)
	k, _ := runRecordStore(t, e, Config{})
	rec := e.putState(t, secretVID, 1000)
	// Imitate a node whose feed has not delivered the stored tombstone yet.
	ctx, cancel := context.WithCancel(t.Context())
	late := NewRecordStore(e, Config{}, new(access.Tables)) // its feed does not run yet
	hash := e.forgotten.Hash(secretVID)
	subject := codec.TombstoneSubject(hash)
	stone, err := sealJSON(subject, tombstoneRecord{Vehicle: hash[:], Forgotten: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Store(ctx, codec.Sources, []Write{{Subject: subject, Record: stone, Expected: true}}); err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, "the tombstone has come", func() bool { return e.forgotten.Has(secretVID) })
	if _, err := k.storeMarker(ctx, 0, secretVID); err != nil {
		t.Fatal(err)
	}
	// Imitate a node that has received only an earlier tombstone.
	e.forgotten.Put(access.Tombstone{Vehicle: hash, Opened: true})
	r := &restore{k: late, counts: make(map[string]access.RestoreCount)}
	type result struct {
		w   *Write
		err error
	}
	compared := make(chan result, 1)
	go func() {
		w, err := r.compare(ctx, rec)
		compared <- result{w, err}
	}()
	var running sync.WaitGroup
	running.Go(func() { _ = late.RunSources(ctx, func() {}) })
	defer running.Wait()
	defer cancel()
	if got := <-compared; got.w != nil || got.err != nil || r.counts["state"] != (access.RestoreCount{Forgotten: 1}) {
		t.Errorf("got %+v, counts %+v; want no write and one forgotten state", got, r.counts)
	}
}

// TestEraseWithoutTombstone checks that erasing changes nothing if the tombstones were lost with
// their stream.
func TestEraseWithoutTombstone(t *testing.T) {
	t.Parallel()
	var c clock
	e := newMemory(t)
	k, _ := runRecordStore(t, e, Config{Now: c.now})
	mustForget(t, k, secretVID)
	stone, _ := e.forgotten.Find(secretVID)
	if err := k.noteQuiet(t.Context(), []access.Tombstone{stone}, c.now()); err != nil {
		t.Fatal(err)
	}
	c.ahead.Store(int64(24 * time.Hour))
	marker := func(id vehicle.ID) Record { return Record{Subject: codec.StateSubject(0, id)} }
	if !k.expired(marker(secretVID)) {
		t.Error("an old marker is not expired")
	}
	if k.expired(marker("unknown")) {
		t.Error("a marker without a tombstone is expired")
	}
	gone := access.Tombstone{Vehicle: e.forgotten.Hash("unknown"), Forgotten: time.Now()}
	if err := k.noteErased(t.Context(), []access.Tombstone{gone}, time.Now()); err != nil {
		t.Error(err)
	}
	if err := k.noteRemoved(t.Context(), gone); !errors.Is(err, errNoTombstone) {
		t.Errorf("noteRemoved without a tombstone: got %v, want %v", err, errNoTombstone)
	}
	if err := k.lift(t.Context(), "unknown", gone.Vehicle); !errors.Is(err, errNoTombstone) {
		t.Errorf("lift without a tombstone: got %v, want %v", err, errNoTombstone)
	}
	if r, err := e.Last(t.Context(), codec.Sources, codec.TombstoneSubject(gone.Vehicle)); r.Seq != 0 || err != nil {
		t.Errorf("a missing tombstone was created: got %s, error %v", r.Body, err)
	}
	e.mu.Lock()
	e.dead = ErrReplaced
	e.mu.Unlock()
	if k.expired(marker(secretVID)) {
		t.Error("a marker is expired by an outdated table of tombstones")
	}
}

// TestEraseDue_RemovesMarkerWhenDue checks that EraseDue removes the marker of a forgotten
// vehicle's removed state when the erasure is due, and records the erasure in the tombstone.
func TestEraseDue_RemovesMarkerWhenDue(t *testing.T) {
	t.Parallel()
	var c clock
	e := newMemory(t)
	k, _ := runRecordStore(t, e, Config{Now: c.now})
	e.putState(t, secretVID, 1000)
	mustForget(t, k, secretVID)
	for _, step := range []struct {
		at     time.Duration
		erased bool
	}{
		{0, false},
		{2 * defaultStore, false}, // from here on, new telemetry does not name it
		{DefaultRetention, false},
		{2*defaultStore + DefaultRetention + time.Second, true},
	} {
		c.ahead.Store(int64(step.at))
		if err := k.EraseDue(t.Context()); err != nil {
			t.Fatal(err)
		}
		marker := e.last(codec.States, codec.StateSubject(0, secretVID)).Seq != 0
		if stone, _ := e.forgotten.Find(secretVID); stone.Erased.IsZero() == step.erased || marker == step.erased {
			t.Errorf("after %s: got tombstone %+v, marker %v; want erased %v", step.at, stone, marker, step.erased)
		}
	}
	if !e.forgotten.Has(secretVID) {
		t.Error("the vehicle is not forgotten any more")
	}
}

// telling is an engine in memory that can tell when bytes are gone.
type telling struct {
	*memory
	folded uint64 // cursor of the only partition
	erased int
}

func (e *telling) ErasedWithin(context.Context) (time.Duration, bool, error) {
	return time.Hour, true, nil
}
func (e *telling) TrimTo(_ context.Context, last uint64) (bool, error) { return last <= e.folded, nil }
func (e *telling) Erased(context.Context) error                        { e.erased++; return nil }

// TestEraseAfterTelemetry checks an engine that can tell when bytes are gone. The receipt of a
// forget must say by when the vehicle is erased, and nothing may be erased before all telemetry
// that may name the vehicle is gone.
func TestEraseAfterTelemetry(t *testing.T) {
	t.Parallel()
	var c clock
	e := &telling{memory: newMemory(t)}
	k, _ := runRecordStore(t, e, Config{Now: c.now})
	r := mustForget(t, k, secretVID)
	want := r.ForgottenAt.Add(DefaultRetention + 10*time.Minute + 5*time.Minute + time.Hour)
	if r.ErasedBy == nil || !r.ErasedBy.Equal(want) {
		t.Errorf("erased by %v, want %s", r.ErasedBy, want)
	}
	subject := codec.TelemetrySubject(0)
	w := Write{Subject: subject, Record: codec.Seal(subject, []byte{0, 'x'})} // accepted before the tombstone
	last, err := e.Store(t.Context(), codec.Telemetry, []Write{w})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		at     time.Duration
		folded uint64
		times  int
	}{
		{0, last, 0}, {time.Minute, last, 0}, // the sequence is recorded in the tombstone
		{2 * time.Hour, last - 1, 0}, {2*time.Hour + 10*time.Second, last, 1}, {3 * time.Hour, last, 1},
	} {
		e.folded = step.folded
		c.ahead.Store(int64(step.at))
		if err := k.EraseDue(t.Context()); err != nil {
			t.Fatal(err)
		}
		if e.erased != step.times {
			t.Errorf("after %s, folded up to %d: erased %d times, want %d", step.at, step.folded, e.erased, step.times)
		}
	}
}

// TestStateThatCameBack checks that if the state of a forgotten vehicle comes back after it was
// removed, the next erasure removes it again and renews the tombstone, so that the bytes of the
// state are erased later.
func TestStateThatCameBack(t *testing.T) {
	t.Parallel()
	var c clock
	e := newMemory(t)
	k, _ := runRecordStore(t, e, Config{Now: c.now})
	e.putState(t, secretVID, 1000)
	mustForget(t, k, secretVID)
	if err := k.noteErased(t.Context(), e.forgotten.All(), c.now()); err != nil {
		t.Fatal(err)
	}
	e.putState(t, secretVID, 1000)
	mustForget(t, k, "Allowed")
	if _, err := k.Allow(t.Context(), "Allowed"); err != nil {
		t.Fatal(err)
	}
	e.putState(t, "Allowed", 2000)

	c.ahead.Store(int64(k.keptFor()))
	if err := k.erase(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, ok := e.stateOf(t, secretVID); ok {
		t.Fatal("the state is still stored")
	}
	if stone, _ := e.forgotten.Find(secretVID); !stone.Erased.IsZero() || c.now().Sub(stone.Forgotten) > forgetTimeout {
		t.Errorf("the tombstone was not renewed: got %+v", stone)
	}
	if s, ok := e.stateOf(t, "Allowed"); !ok || s.Time != 2000 {
		t.Error("a vehicle that was allowed again lost its state")
	}
}

// TestStoreManyWithConflicts checks that storeMany stores a large batch except for the records that
// another writer has changed, and reports exactly those as conflicts.
func TestStoreManyWithConflicts(t *testing.T) {
	t.Parallel()
	e := newMemory(t)
	put := func(i int, text string) Write {
		subject := codec.StateSubject(0, vehicle.ID(fmt.Sprintf("car%03d", i)))
		return Write{Subject: subject, Record: codec.Seal(subject, append([]byte{0}, text...)), Expected: true}
	}
	changed := []int{0, 7, 8, 299}
	for _, i := range changed {
		if _, err := e.Store(t.Context(), codec.States, []Write{put(i, "changed")}); err != nil {
			t.Fatal(err)
		}
	}
	var all []Write
	for i := range 300 {
		all = append(all, put(i, "again"))
	}
	conflicts, err := storeMany(t.Context(), e, time.Second, codec.States, all)
	if err != nil || !slices.Equal(conflicts, changed) {
		t.Fatalf("got conflicts %v, error %v; want conflicts %v", conflicts, err, changed)
	}
	for i, w := range all {
		want := "again"
		if slices.Contains(changed, i) {
			want = "changed"
		}
		if r, err := e.Last(t.Context(), codec.States, w.Subject); err != nil || string(r.Body) != want {
			t.Fatalf("%s: got %s, error %v; want %s", w.Subject, r.Body, err, want)
		}
	}
}

// TestUpdate_EmptiesReplacedLists checks that after a large list of vehicles is replaced, no record
// names its vehicles, because a later forget would not find such a record. A backup must not
// contain such a record either.
func TestUpdate_EmptiesReplacedLists(t *testing.T) {
	e := newMemory(t)
	k, _ := runRecordStore(t, e, Config{})
	var many []vehicle.ID
	for i := range maxInlineIDs + 1 {
		many = append(many, vehicle.ID(fmt.Sprintf("Car%05d", i)))
	}
	source, _, err := access.New(
		access.Request{Kind: access.SourceKind, Name: "gateway", Vehicles: access.VehicleSet(many...)}, time.Now(),
	)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Create(t.Context(), source); err != nil {
		t.Fatal(err)
	}
	few := access.VehicleSet(many[0])
	if _, err := k.Update(t.Context(), access.SourceKind, "gateway", func(c *access.Credential) error {
		return c.Change(access.Change{Vehicles: &few}, time.Now())
	}); err != nil {
		t.Fatal(err)
	}
	parts := 0
	if err := e.Scan(t.Context(), codec.Sources, []string{"sourceset.*.*"}, func(r Record) error {
		if parts++; bytes.Contains(r.Body, []byte("Car")) {
			t.Errorf("%s still names vehicles: %s", r.Subject, r.Body)
		}
		return nil
	}); err != nil || parts != 1 {
		t.Errorf("got %d set records, error %v; want 1", parts, err)
	}
	var b bytes.Buffer
	if _, err := k.Backup(t.Context(), &b, "v"); err != nil {
		t.Fatal(err)
	}
	if info, err := CheckBackup(&b); err != nil || info.Kinds["sourceset"] != 0 || info.Kinds["source"] != 1 {
		t.Errorf("got kinds %v, error %v; want one source without sets", info.Kinds, err)
	}
	// The same source gets a large list again.
	large := access.VehicleSet(many...)
	if _, err := k.Update(t.Context(), access.SourceKind, "gateway", func(c *access.Credential) error {
		return c.Change(access.Change{Vehicles: &large}, time.Now())
	}); err != nil {
		t.Fatal(err)
	}
	if g, ok := k.tables.Sources.Get("gateway"); !ok || g.Vehicles.Len() != len(many) {
		t.Errorf("the source has %d vehicles, want %d", g.Vehicles.Len(), len(many))
	}
}

// TestTombstone_StoredForm checks every byte of a stored tombstone.
func TestTombstone_StoredForm(t *testing.T) {
	at := time.Unix(1_700_000_000, 0).UTC()
	hash := access.VehicleHash{1}
	for want, stone := range map[string]access.Tombstone{
		`{"vehicle":"AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","forgotten":"2023-11-14T22:13:20Z"}`: {
			Vehicle: hash, Forgotten: at, Unread: true},
		`{"vehicle":"AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","forgotten":"2023-11-14T22:13:20Z",` +
			`"lifted":"2023-11-14T22:13:21Z","opened":true,"removed":true,"quiet":"2023-11-14T22:13:22Z","last":7,` +
			`"erased":"2023-11-14T22:13:23Z","stale":9,"made":11}`: {
			Vehicle: hash, Forgotten: at, Lifted: at.Add(time.Second), Opened: true, Removed: true,
			Quiet: at.Add(2 * time.Second), Last: 7, Erased: at.Add(3 * time.Second), Stale: 9, Made: 11},
	} {
		if got, err := json.Marshal(tombstoneRecord{hash[:], stone}); err != nil || string(got) != want {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
}
