package load

import (
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"carstate/internal/nodeprocess"
	"carstate/torture/row"
)

// A node is held to what other senders than a load's own had acknowledged.
func TestHoldVehicles(t *testing.T) {
	ctx := t.Context()
	binary := filepath.Join(t.TempDir(), "carstate")
	build := exec.Command("go", "build", "-o", binary, "./cmd/carstate")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("the program cannot be built: %v\n%s", err, out)
	}
	n, err := nodeprocess.StartReady(ctx, nodeprocess.Options{Binary: binary, Dir: filepath.Join(t.TempDir(), "data"), Flags: Flags}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Kill)
	key, err := n.AddSource(ctx, "gateway")
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now().Add(-time.Hour).Unix()
	send := func(l *Load, vid string, at int64) {
		t.Helper()
		l.NoteOffered(vid, at)
		line := fmt.Sprintf(`{"vid":%q,"time":%d,"signals":{"Vehicle.Speed":70}}`, vid, at*1000)
		if status, text, err := n.Post(ctx, key, line); err != nil || status != http.StatusAccepted {
			t.Fatalf("%d %s %v", status, text, err)
		}
		l.NoteAcknowledged(vid, at)
	}
	attempt := &row.Attempt{Logf: t.Logf, Stop: func() {}}
	l := New(attempt)
	if err := l.Prepare(ctx, n); err != nil {
		t.Fatal(err)
	}
	const cars, samples = 20, 10
	for at := range int64(samples) {
		for i := range cars {
			send(l, fmt.Sprint("Car", i), begin+at)
		}
	}
	l.NoteOffered("Car0", begin+samples) // and nobody knows whether it is stored
	if err := l.HoldVehicles(ctx, n, l.Vehicles()); err != nil {
		t.Fatal(err)
	}
	if o := attempt.Outcome(); !o.Passed() || len(l.Vehicles()) != cars {
		t.Errorf("%d vehicles, %+v", len(l.Vehicles()), o)
	}

	// What was acknowledged and is not there, of a car that is known and of one that is
	// not.
	l.NoteAcknowledged("Car0", begin+samples)
	l.NoteOffered("Car99", begin)
	l.NoteAcknowledged("Car99", begin)
	if err := l.HoldVehicles(ctx, n, l.Vehicles()); err != nil {
		t.Fatal(err)
	}
	lost := attempt.Outcome()
	if lost.Lost != 2 || lost.Wrong != 0 {
		t.Errorf("%+v", lost)
	}

	// Nothing was acknowledged, or the node has ended: that says nothing.
	nothing := &row.Attempt{Logf: t.Logf, Stop: func() {}}
	if err := New(nothing).HoldVehicles(ctx, n, nil); err != nil || nothing.Outcome().Wrong != 1 {
		t.Errorf("%v, %+v", err, nothing.Outcome())
	}
	n.Kill()
	gone := &row.Attempt{Logf: t.Logf, Stop: func() {}}
	g := New(gone)
	g.NoteOffered("Car1", begin)
	g.NoteAcknowledged("Car1", begin)
	err = g.HoldVehicles(ctx, n, g.Vehicles())
	if o := gone.Outcome(); err == nil || o.Passed() {
		t.Errorf("%v, %+v", err, o)
	}
}
