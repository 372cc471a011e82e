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

const secretVID = vehicle.ID("ForgetMe0f7Q2")

func mustForget(t *testing.T, k *RecordStore, id vehicle.ID) access.ForgetReceipt {
	t.Helper()
	r, err := k.Forget(t.Context(), id)
	testkit.NoError(t, err)
	return r
}

// Erasing changes nothing if the tombstones were lost with their stream.
func TestEraseWithoutTombstone(t *testing.T) {
	t.Parallel()
	clock := testkit.NewClock(time.Now())
	e := newMemory(t)
	k := runRecordStore(t, e, Config{Now: clock.Now})
	mustForget(t, k, secretVID)
	stone, _ := e.forgotten.Find(secretVID)
	testkit.NoError(t, k.noteQuiet(t.Context(), []access.Tombstone{stone}, clock.Now()))
	clock.Advance(24 * time.Hour)
	if !k.Gone(secretVID) {
		t.Error("an old marker is not expired")
	}
	if k.Gone("unknown") {
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
	if k.Gone(secretVID) {
		t.Error("a marker is expired by an outdated table of tombstones")
	}
}

// telling is an engine in memory that can tell when bytes are gone.
type telling struct {
	*memory
	folded uint64 // cursor of the only partition
	erased int
}

func (e *telling) ErasedWithin() (time.Duration, error) { return time.Hour, nil }
func (e *telling) TrimTo(last uint64) (bool, error)     { return last <= e.folded, nil }
func (e *telling) Erased(context.Context) error         { e.erased++; return nil }

// The receipt says by when the vehicle is erased, and nothing is erased before all telemetry that
// may name it is gone.
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
	w := Write{Subject: subject, Record: codec.Seal(subject, []byte{0, 'x'})}
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

// After a large list of vehicles is replaced, no record and no backup names them: a later forget
// would not find such a record.
func TestUpdate_EmptiesReplacedLists(t *testing.T) {
	e := newMemory(t)
	k := runRecordStore(t, e, Config{})
	many := tooMany()
	create(t, k, access.Credential{Kind: access.SourceKind, Name: "gateway", Vehicles: access.VehicleSet(many...)})
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
	grant(access.VehicleSet(many...))
	if g, ok := k.tables.Sources.Get("gateway"); !ok || g.Vehicles.Len() != len(many) {
		t.Errorf("the source has %d vehicles, want %d", g.Vehicles.Len(), len(many))
	}
}

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
