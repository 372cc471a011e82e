package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

// secretVID is the vid of the vehicle that the tests forget.
const secretVID = vehicle.ID("ForgetMe0f7Q2")

func mustForget(t *testing.T, k *RecordStore, id vehicle.ID) access.ForgetReceipt {
	t.Helper()
	r, err := k.Forget(t.Context(), id)
	testkit.NoError(t, err)
	return r
}

// TestEraseWithoutTombstone checks that erasing changes nothing if the tombstones were lost with
// their stream.
func TestEraseWithoutTombstone(t *testing.T) {
	t.Parallel()
	clock := testkit.NewClock(time.Now())
	e := newMemory(t)
	k := runRecordStore(t, e, Config{Now: clock.Now})
	mustForget(t, k, secretVID)
	stone, _ := e.forgotten.Find(secretVID)
	testkit.NoError(t, k.noteQuiet(t.Context(), []access.Tombstone{stone}, clock.Now()))
	clock.Advance(24 * time.Hour)
	marker := func(id vehicle.ID) Record { return Record{Subject: codec.StateSubject(0, id)} }
	if !k.expired(marker(secretVID)) {
		t.Error("an old marker is not expired")
	}
	if k.expired(marker("unknown")) {
		t.Error("a marker without a tombstone is expired")
	}
	gone := access.Tombstone{Vehicle: e.forgotten.Hash("unknown"), Forgotten: time.Now()}
	erased := func(t *access.Tombstone) { t.Erased = time.Now() }
	if err := k.updateTombstones(t.Context(), []access.Tombstone{gone}, erased); err != nil {
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
	e.dead = ErrReplaced
	if k.expired(marker(secretVID)) {
		t.Error("a marker is expired by an outdated table of tombstones")
	}
}

// TestEraseDue_RemovesMarkerWhenDue checks that EraseDue removes the marker of a forgotten
// vehicle's removed state when the erasure is due, and records the erasure in the tombstone.
func TestEraseDue_RemovesMarkerWhenDue(t *testing.T) {
	t.Parallel()
	began := time.Now()
	clock := testkit.NewClock(began)
	e := newMemory(t)
	k := runRecordStore(t, e, Config{Now: clock.Now})
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
		clock.Advance(began.Add(step.at).Sub(clock.Now()))
		testkit.NoError(t, k.EraseDue(t.Context()))
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
	began := time.Now()
	clock := testkit.NewClock(began)
	e := &telling{memory: newMemory(t)}
	k := runRecordStore(t, e, Config{Now: clock.Now})
	r := mustForget(t, k, secretVID)
	want := r.ForgottenAt.Add(DefaultRetention + 10*time.Minute + 5*time.Minute + time.Hour)
	if r.ErasedBy == nil || !r.ErasedBy.Equal(want) {
		t.Errorf("erased by %v, want %s", r.ErasedBy, want)
	}
	subject := codec.TelemetrySubject(0)
	w := Write{Subject: subject, Record: codec.Seal(subject, []byte{0, 'x'})} // accepted before the tombstone
	last := e.put(t, codec.Telemetry, w)
	for _, step := range []struct {
		at     time.Duration
		folded uint64
		times  int
	}{
		{0, last, 0}, {time.Minute, last, 0}, // the sequence is recorded in the tombstone
		{2 * time.Hour, last - 1, 0}, {2*time.Hour + 10*time.Second, last, 1}, {3 * time.Hour, last, 1},
	} {
		e.folded = step.folded
		clock.Advance(began.Add(step.at).Sub(clock.Now()))
		testkit.NoError(t, k.EraseDue(t.Context()))
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
	clock := testkit.NewClock(time.Now())
	e := newMemory(t)
	k := runRecordStore(t, e, Config{Now: clock.Now})
	e.putState(t, secretVID, 1000)
	mustForget(t, k, secretVID)
	erased := func(t *access.Tombstone) { t.Erased = clock.Now() }
	testkit.NoError(t, k.updateTombstones(t.Context(), e.forgotten.All(), erased))
	e.putState(t, secretVID, 1000)
	mustForget(t, k, "Allowed")
	_, err := k.Allow(t.Context(), "Allowed")
	testkit.NoError(t, err)
	e.putState(t, "Allowed", 2000)

	clock.Advance(k.keptFor())
	testkit.NoError(t, k.erase(t.Context()))
	if _, ok := e.stateOf(t, secretVID); ok {
		t.Fatal("the state is still stored")
	}
	if stone, _ := e.forgotten.Find(secretVID); !stone.Erased.IsZero() || clock.Now().Sub(stone.Forgotten) > forgetTimeout {
		t.Errorf("the tombstone was not renewed: got %+v", stone)
	}
	if s, ok := e.stateOf(t, "Allowed"); !ok || s.Time != 2000 {
		t.Error("a vehicle that was allowed again lost its state")
	}
}

// TestRestoreBatch_Duplicates checks a batch that contains several states of a vehicle, as a backup
// that was made while records changed. The newest must be stored, and each must be counted once.
func TestRestoreBatch_Duplicates(t *testing.T) {
	t.Parallel()
	e := newMemory(t)
	k := runRecordStore(t, e, Config{})
	r := &restore{k: k, progress: func(int, int) {}, counts: make(map[string]access.RestoreCount)}
	var batch []Record
	for _, at := range []int64{2000, 3000, 1000, 3000} {
		w := stateWrite("car", at)
		batch = append(batch, Record{Subject: w.Subject, Body: bodyOf(w), Sealed: w.Record})
	}
	testkit.NoError(t, r.restoreBatch(t.Context(), "state", batch))
	if s, ok := e.stateOf(t, "car"); !ok || s.Time != 3000 {
		t.Errorf("got state %+v, found %v; want that of 3000", s, ok)
	}
	if n := r.counts["state"]; n != (access.RestoreCount{Restored: 2, Kept: 2}) {
		t.Errorf("got %+v, want 2 restored, 2 kept", n)
	}
}

// TestUpdate_EmptiesReplacedLists checks that after a large list of vehicles is replaced, no record
// names its vehicles, because a later forget would not find such a record. A backup must not
// contain such a record either.
func TestUpdate_EmptiesReplacedLists(t *testing.T) {
	e := newMemory(t)
	k := runRecordStore(t, e, Config{})
	many := tooMany()
	create(t, k, access.Request{Kind: access.SourceKind, Name: "gateway", Vehicles: access.VehicleSet(many...)})
	grant := func(v access.Vehicles) {
		t.Helper()
		_, err := k.Update(t.Context(), access.SourceKind, "gateway", func(c *access.Credential) error {
			return c.Change(access.Change{Vehicles: &v}, time.Now())
		})
		testkit.NoError(t, err)
	}
	grant(access.VehicleSet(many[0]))
	parts := 0
	if err := e.Scan(t.Context(), codec.Sources, []string{"sourceset.*.*"}, func(r Record) error {
		if parts++; bytes.Contains(r.Body, []byte("Car")) {
			t.Errorf("%s still names vehicles: %s", r.Subject, r.Body)
		}
		return nil
	}); err != nil || parts != 1 {
		t.Errorf("got %d set records, error %v; want 1", parts, err)
	}
	info, err := CheckBackup(bytes.NewReader(backupOf(t, k)))
	if err != nil || info.Kinds["sourceset"] != 0 || info.Kinds["source"] != 1 {
		t.Errorf("got kinds %v, error %v; want one source without sets", info.Kinds, err)
	}
	// The same source gets a large list again.
	grant(access.VehicleSet(many...))
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
