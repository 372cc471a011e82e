package store

import (
	"context"
	"encoding/json/v2"
	"errors"
	"reflect"
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

type telling struct {
	*memory
	end, folded uint64 // of telemetry
	had         bool   // the owner of the partition had a state to drop
	asked       func() // what happens while the owner is asked; nil: nothing
	erased      int
}

func (e *telling) Ends(context.Context, string) ([]uint64, error)      { return []uint64{e.end}, nil }
func (e *telling) ErasedWithin() (time.Duration, error)                { return time.Hour, nil }
func (e *telling) Erased(context.Context) error                        { e.erased++; return nil }
func (e *telling) TrimTo(_ context.Context, to []uint64) (bool, error) { return to[0] <= e.folded, nil }

func (e *telling) Ask(context.Context, int, *Question) (Reply, error) {
	if e.asked != nil {
		e.asked()
	}
	return Reply{Had: e.had}, nil
}

func (e *telling) stateOf(id vehicle.ID) access.TombstoneState {
	t, _ := e.forgotten.Find(id)
	return t.State
}

// startTelling has a tombstone of secretVID in this state, as if a node had died right then. put
// replaces it.
func startTelling(t *testing.T, state access.TombstoneState) (
	e *telling, k *RecordStore, clock *testkit.Clock, put func(access.TombstoneState),
) {
	t.Helper()
	clock = testkit.NewClock(time.Now())
	e = &telling{memory: newMemory(t)}
	k = runRecordStore(t, e, Config{Now: clock.Now})
	hash, now := e.forgotten.Hash(secretVID), k.now()
	put = func(state access.TombstoneState) {
		stone := access.Tombstone{Vehicle: hash, Forgotten: now, Since: now, State: state}
		e.put(t, codec.Sources, write(t, codec.TombstoneSubject(hash), tombstoneRecord{Tombstone: stone}))
	}
	put(state)
	return e, k, clock, put
}

// Every transition that time brings, and what delays it.
func TestTransitions(t *testing.T) {
	t.Parallel()
	e, k, clock, _ := startTelling(t, access.StateForgotten)
	const none = access.StateForgotten
	for i, step := range []struct {
		after       time.Duration
		end, folded uint64
		first, next access.TombstoneState // next is of a vehicle that is forgotten in step 8
		erased      int                   // times
	}{
		{59 * time.Second, 9, 0, access.StateForgotten, none, 0},
		{time.Second, 9, 0, access.StateRemoved, none, 0},
		{39 * time.Second, 9, 0, access.StateRemoved, none, 0}, // a sample may be on its way
		{time.Second, 10, 0, access.StateQuiet, none, 0},
		{-48 * time.Hour, 20, 20, access.StateQuiet, none, 0}, // the clock is set back
		{59 * time.Minute, 30, 30, access.StateQuiet, none, 0},
		{time.Minute, 30, 19, access.StateQuiet, none, 0}, // a sample is not folded yet
		{time.Minute, 5, 5, access.StateQuiet, none, 0},   // telemetry was created again
		{5 * time.Minute, 5, 5, access.StateQuiet, access.StateRemoved, 0},
		{time.Minute, 6, 6, access.StateQuiet, access.StateQuiet, 0},
		{54 * time.Minute, 9, 5, access.StateErased, access.StateQuiet, 1},
		{6 * time.Minute, 9, 9, access.StateAllowed, access.StateTrimmed, 1}, // erasing reads and writes all
		{4 * time.Minute, 9, 9, access.StateAllowed, access.StateErased, 2},
		{48 * time.Hour, 9, 9, access.StateAllowed, access.StateErased, 2},
	} {
		clock.Advance(step.after)
		e.end, e.folded = step.end, step.folded
		if i == 8 {
			r := mustForget(t, k, "next")
			want := r.ForgottenAt.Add(DefaultRetention + 10*time.Minute + 5*time.Minute + time.Hour)
			if r.ErasedBy == nil || !r.ErasedBy.Equal(want) {
				t.Errorf("erased by %v, want %s", r.ErasedBy, want)
			}
		}
		testkit.NoError(t, k.EraseDue(t.Context()))
		if first, next := e.stateOf(secretVID), e.stateOf("next"); first != step.first || next != step.next || e.erased != step.erased {
			t.Errorf("step %d: states %d and %d, erased %d times; want %d, %d, %d", i, first, next, e.erased, step.first,
				step.next, step.erased)
		}
		covered, err := k.Covers(secretVID)
		if err != nil || covered != (step.first < access.StateErased) || k.Gone(secretVID) != (step.first > access.StateQuiet) {
			t.Errorf("step %d: got covered %v, error %v, marker gone %v; want %v, nil, %v", i, covered, err,
				k.Gone(secretVID), step.first < access.StateErased, step.first > access.StateQuiet)
		}
		if is := e.stateOf(secretVID); is == access.StateAllowed {
			continue
		}
		r, err := k.Allow(t.Context(), secretVID)
		if early := errors.Is(err, access.ErrNotErased); early == (step.first == access.StateErased) ||
			!early && !r.AllowedAt.Equal(k.now()) {
			t.Errorf("step %d: Allow: got %+v, error %v; want it refused: %t", i, r, err,
				step.first != access.StateErased)
		}
	}
	e.dead = ErrReplaced
	if k.Gone("next") || k.Gone("unknown") {
		t.Errorf("Gone without a tombstone, by an outdated table: got %t, %t; want false, false", k.Gone("unknown"),
			k.Gone("next"))
	}
}

// A second forget changes nothing but the counts, unless data was stored again, or the erasure
// would leave the marker that it has made.
func TestForget_Again(t *testing.T) {
	t.Parallel()
	for state := range access.StateAllowed + 1 {
		for _, had := range []bool{false, true} {
			e, k, clock, _ := startTelling(t, state)
			clock.Advance(time.Hour)
			e.had = had
			r := mustForget(t, k, secretVID)
			if again := had || state > access.StateQuiet; r.ForgottenAt.Equal(k.now()) != again ||
				e.stateOf(secretVID) > access.StateQuiet || (r.Removed.States == 1) != had {
				t.Errorf("state %d, had a state %v: got %+v, state %d; want it forgotten again: %t", state, had, r,
					e.stateOf(secretVID), again)
			}
		}
	}
	e, k, clock, put := startTelling(t, access.StateQuiet)
	e.asked = func() { put(access.StateErased) }
	mustForget(t, k, secretVID)
	if is := e.stateOf(secretVID); is != access.StateForgotten {
		t.Errorf("erased meanwhile: state %d, want %d", is, access.StateForgotten)
	}
	// A tombstone that was lost with its stream is not created again.
	subject := codec.TombstoneSubject(e.forgotten.Hash(secretVID))
	e.asked = func() { e.remove(codec.Sources, subject) }
	if _, err := k.Forget(t.Context(), secretVID); !errors.Is(err, errNoTombstone) {
		t.Errorf("Forget: got %v, want %v", err, errNoTombstone)
	}
	clock.Advance(time.Hour)
	testkit.NoError(t, k.EraseDue(t.Context()))
	if r, err := e.Last(t.Context(), codec.Sources, subject); r.Seq != 0 || err != nil {
		t.Errorf("a missing tombstone: got %s, error %v; want none", r.Body, err)
	}
}

func TestTombstone_StoredForm(t *testing.T) {
	at := time.Unix(1_700_000_000, 0).UTC()
	hash := access.VehicleHash{1}
	subject, begins := codec.TombstoneSubject(hash), `{"vehicle":"AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",`+
		`"forgotten":"2023-11-14T22:13:20Z"`
	stone := access.Tombstone{Vehicle: hash, Forgotten: at, State: access.StateQuiet, Since: at.Add(time.Second), Ends: []uint64{7}}
	stored := begins + `,"state":2,"since":"2023-11-14T22:13:21Z","ends":[7]}`
	if got, err := json.Marshal(tombstoneRecord{Tombstone: stone}); err != nil || string(got) != stored {
		t.Errorf("got %s, %v, want %s", got, err, stored)
	}
	for text, want := range map[string]access.Tombstone{
		stored:       stone,
		begins + "}": {Vehicle: hash, Forgotten: at},
		begins + `,"lifted":"2023-11-14T22:13:21Z","opened":true,"removed":true,"stale":9,"made":11}`: {
			Vehicle: hash, Forgotten: at, State: access.StateAllowed, Since: at.Add(time.Second)},
	} {
		if got, err := decodeTombstone(subject, []byte(text)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v; want %+v", text, got, err, want)
		}
	}
}
