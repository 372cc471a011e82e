package storetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

// A forgotten vehicle does not come back by a fold in progress, by waiting samples, or by a
// restart. An allowed one starts without its earlier data.
func forgottenStays(t *testing.T, open Open) {
	clock := testkit.NewClock(time.Now())
	n := started(t, open, store.Config{Partitions: 4, Now: clock.Now})
	p := codec.PartitionOf(SecretVID, 4)
	n.GrantAll(t)
	n.Drive(t, 1000, SecretVID, "Other1")
	testkit.Await(t, "the table knows the vehicle", func() bool { return n.Knows(SecretVID) })

	n.Put(t, Speed(SecretVID, 3000, 50)) // may wait to be folded

	r := n.MustForget(t, SecretVID)
	if want := (access.RemovedCount{States: 1, TokenGrants: 3, SourceGrants: 3}); r.Removed != want || r.AllowedAt != nil {
		t.Errorf("got receipt %+v, want %+v removed", r, want)
	}
	if text, _ := json.Marshal(r); bytes.Contains(text, []byte(SecretVID)) {
		t.Errorf("the receipt: got %s, want it without the vehicle", text)
	}
	if _, stored := n.StateOf(t, SecretVID); stored || n.Knows(SecretVID) {
		t.Error("the node: got the vehicle, want it unknown")
	}
	if tokens, sources := n.Grants(); tokens != 0 || sources != 0 {
		t.Errorf("got %d tokens and %d sources that name the vehicle, want none", tokens, sources)
	}
	n.FoldAll(t, p)
	if _, stored := n.StateOf(t, SecretVID); stored {
		t.Error("after waiting samples: got the vehicle again, want it unknown")
	}
	recent := func(want int) {
		if r, err := n.Recent(t.Context(), SecretVID, 100); err != nil || len(r.Samples) != want {
			t.Errorf("Recent: got %+v, error %v; want %d samples", r, err, want)
		}
	}
	recent(0)
	if again := n.MustForget(t, SecretVID); !again.ForgottenAt.Equal(r.ForgottenAt) {
		t.Errorf("a second forget: got time %s, want %s", again.ForgottenAt, r.ForgottenAt)
	}

	n = n.restarted(t)
	if _, stored := n.StateOf(t, SecretVID); stored || n.Knows(SecretVID) || !n.Forgotten().Has(SecretVID) {
		t.Error("after a restart: got the vehicle, want it forgotten")
	}

	n.Put(t, Speed(SecretVID, 4000, 50)) // accepted by a node that did not know it yet
	if _, err := n.Allow(t.Context(), SecretVID); !errors.Is(err, access.ErrNotErased) {
		t.Errorf("allowed before it is erased: got %v, want %v", err, access.ErrNotErased)
	}
	n.Erase(t, clock)
	n.MustAllow(t, SecretVID)
	if _, err := n.Allow(t.Context(), SecretVID); !errors.Is(err, access.ErrNotFound) {
		t.Errorf("allowing twice: got %v, want %v", err, access.ErrNotFound)
	}
	n.Put(t, Speed(SecretVID, 5000, 50))
	n.FoldAll(t, p)
	recent(1)
	testkit.Await(t, "the table knows it again", func() bool { return n.Knows(SecretVID) })
	n = n.restarted(t)
	s, ok := n.StateOf(t, SecretVID)
	if want := vehicle.Observe(vehicle.State{}, Speed(SecretVID, 5000, 50)); !ok || s != want {
		t.Errorf("after Allow: got state %+v, found %v; want %+v", s, ok, want)
	}
}

// EraseDue completes a forget if the node dies right after it has stored the tombstone.
func forgetCutOff(t *testing.T, open Open) {
	clock := testkit.NewClock(time.Now())
	n := started(t, open, store.Config{Now: clock.Now})
	n.GrantAll(t)
	n.Drive(t, 1000, SecretVID, "Other1")
	hash := n.Forgotten().Hash(SecretVID)
	subject := codec.TombstoneSubject(hash)
	stone, err := json.Marshal(map[string]any{"vehicle": hash[:], "forgotten": clock.Now(), "since": clock.Now()})
	testkit.NoError(t, err)
	storeRecord(t, n.Engine, codec.Sources, subject, stone)
	testkit.Await(t, "the tombstone is known", func() bool { return n.Forgotten().Has(SecretVID) })
	clock.Advance(2 * time.Minute)
	testkit.NoError(t, n.EraseDue(t.Context()))
	tokens, sources := n.Grants()
	if _, ok := n.StateOf(t, SecretVID); ok || tokens+sources != 0 || n.Knows(SecretVID) {
		t.Errorf("after EraseDue: got state stored %v, %d grants; want none", ok, tokens+sources)
	}
	if _, ok := n.StateOf(t, "Other1"); !ok {
		t.Error("another vehicle: got no state, want it kept")
	}
}
