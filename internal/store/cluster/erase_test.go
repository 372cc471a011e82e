package cluster

import (
	"os"
	"sync/atomic"
	"testing"
	"time"

	"carstate/internal/access"
	"carstate/internal/store/codec"
	"carstate/internal/testkit"
)

// A kill in the middle of an erasure: the state that the marker replaced is still
// in the files, and nothing there says that it is gone but the marker.
func TestKilledDuringErasure(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	dir, killed := t.TempDir(), t.TempDir()
	var ahead atomic.Int64 // of the clock
	n := startNode(t, Config{DataDir: dir, Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
	n.drive(t, 1000, secretVID, "Other1")
	n.forget(t, secretVID)
	subject := codec.StateSubject(codec.PartitionOf(secretVID, n.partitions), secretVID)
	_, rev, err := n.lastRecord(t.Context(), States, subject)
	if err != nil || rev == 0 {
		t.Fatal(rev, err)
	}
	ahead.Store(int64(n.keptFor()))
	marker := record{subject: subject, sealed: codec.SealMarker(subject), seq: rev}
	expired, err := n.again(t.Context(), States, []record{marker})
	if err != nil || len(expired) != 1 {
		t.Fatalf("%d markers have expired, want 1: %v", len(expired), err)
	}
	if err := os.CopyFS(killed, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	m := startNode(t, Config{DataDir: killed})
	if _, ok := m.stateOf(t, secretVID); ok || m.knows(secretVID) {
		t.Error("the vehicle came back")
	}
	if _, ok := m.stateOf(t, "Other1"); !ok {
		t.Error("another one is gone")
	}
	// When all is stored again, nothing is left of the marker.
	if err := n.erase(t.Context()); err != nil {
		t.Fatal(err)
	}
	if body, rev, err := n.lastRecord(t.Context(), States, subject); rev != 0 || err != nil {
		t.Errorf("still there: %q, %v", body, err)
	}
}

// A state that came back, although its vehicle is forgotten and all was taken
// away, is taken away again by the next erasure, and is erased later.
func TestStateThatCameBack(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	var ahead atomic.Int64 // of the clock
	n := startNode(t, Config{DataDir: t.TempDir(), Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
	n.drive(t, 1000, secretVID, "Allowed")
	subject := codec.StateSubject(codec.PartitionOf(secretVID, n.partitions), secretVID)
	body, _, err := n.lastRecord(t.Context(), States, subject)
	if err != nil {
		t.Fatal(err)
	}
	n.forget(t, secretVID)
	hash := n.forgotten.Hash(secretVID)
	if _, err := n.putTombstone(t.Context(), hash, func(is access.Tombstone) (access.Tombstone, error) {
		is.Padded, is.Erased = 1, n.now()
		return is, nil
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.storeBatch(t.Context(), States, []write{{subject: subject, record: codec.Seal(subject, append([]byte{0}, body...))}}); err != nil {
		t.Fatal(err)
	}
	// It is stored, and no answer shows it.
	n.drive(t, 1500, "Allowed")
	testkit.Await(t, "the feed got as far", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.table["Allowed"].Time == 1500
	})
	if _, ok := n.stateOf(t, secretVID); !ok || n.knows(secretVID) {
		t.Fatalf("stored again: %t; in the table: %t", ok, n.knows(secretVID))
	}
	n.forget(t, "Allowed")
	if _, err := n.Allow(t.Context(), "Allowed"); err != nil {
		t.Fatal(err)
	}
	n.drive(t, 2000, "Allowed")

	ahead.Store(int64(n.keptFor()))
	if err := n.erase(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, ok := n.stateOf(t, secretVID); ok {
		t.Fatal("it is still stored")
	}
	if stone, _ := n.forgotten.Find(secretVID); !stone.Erased.IsZero() || stone.Padded != 0 || n.now().Sub(stone.Forgotten) > forgetTimeout {
		t.Errorf("it is not erased once more: %+v", stone)
	}
	if s, ok := n.stateOf(t, "Allowed"); !ok || s.Time != 2000 {
		t.Error("a vehicle that was allowed again lost its state")
	}
}
