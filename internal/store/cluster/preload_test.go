package cluster

import (
	"context"
	"fmt"
	"maps"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"carstate/internal/road/roadtest"
	"carstate/internal/store"
	"carstate/internal/store/cluster/embedded"
	"carstate/internal/store/codec"
	"carstate/internal/testkit"
	"carstate/internal/vehicle"
)

// answer is what a state says.
type answer struct {
	driving  vehicle.DrivingVerdict
	throttle vehicle.ThrottleVerdict
}

// answerMap is the plainest of Answers.
type answerMap struct {
	m       map[vehicle.ID]answer
	cleared int
}

func (a *answerMap) Put(id vehicle.ID, d vehicle.DrivingVerdict, t vehicle.ThrottleVerdict) {
	a.m[id] = answer{driving: d, throttle: t}
}
func (a *answerMap) Delete(id vehicle.ID) { delete(a.m, id) }
func (a *answerMap) Len() int             { return len(a.m) }
func (a *answerMap) Clear()               { clear(a.m); a.cleared++ }

// followed opens a directory, follows its states until the feed has caught up
// and then until it brought a marker, and returns what the opening and the feed
// brought.
func followed(t *testing.T, dir string) (opened *answerMap, fed map[vehicle.ID]vehicle.State) {
	t.Helper()
	ctx, cancel := context.WithCancel(testkit.Context(t))
	defer cancel()
	opened, fed = &answerMap{m: make(map[vehicle.ID]answer)}, make(map[vehicle.ID]vehicle.State)
	e := openOne(t, Config{DataDir: dir, Answers: opened})
	caughtUp, marked := make(chan struct{}), make(chan struct{})
	running := make(chan error, 1)
	following, stop := context.WithCancel(ctx)
	go func() {
		running <- e.FollowStates(following, func(id vehicle.ID, s vehicle.State) {
			if id == "marker" {
				close(marked)
				return
			}
			fed[id] = s
		}, func() { close(caughtUp) })
	}()
	wait := func(what string, c chan struct{}) {
		select {
		case <-c:
		case <-ctx.Done():
			t.Fatalf("the feed %s", what)
		}
	}
	wait("did not catch up", caughtUp)
	p, err := e.take(ctx, 0, "test", store.Anyone)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Commit(ctx, 0, map[vehicle.ID]vehicle.State{"marker": {Time: 1}}); err != nil {
		t.Fatal(err)
	}
	wait("did not bring the marker", marked)
	stop()
	if err := <-running; err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	delete(opened.m, "marker")
	return opened, fed
}

// An engine hands over the newest answer of every vehicle while it opens, after a
// clean stop and after a crash, and the feed brings nothing twice.
func TestAnswersAreReadFromTheBlocks(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	closed, crashed := t.TempDir(), t.TempDir()
	e, err := Open(t.Context(), Config{DataDir: closed, Partitions: 1, Timeouts: Timeouts{Beat: time.Hour}}) // nothing changes while it is copied
	if err != nil {
		t.Fatal(err)
	}
	p, err := e.take(t.Context(), 0, "test", store.Anyone)
	if err != nil {
		t.Fatal(err)
	}
	// Two blocks of 8 MiB, with old and new states of a vehicle in different ones
	// and in the same.
	const batch = 999
	driven := roadtest.State(t)
	want := make(map[vehicle.ID]answer)
	for n := range 10 {
		states := make(map[vehicle.ID]vehicle.State)
		for i := range batch {
			id, s := vehicle.ID(fmt.Sprintf("car%d", (n%7)*batch+i)), driven
			s.Pace = vehicle.DrivingState(1 + (i+n)%3)
			s.Latest[vehicle.Speed].Time -= vehicle.UnixMilli(n)
			states[id] = s
			want[id] = answer{driving: s.Driving(), throttle: s.Throttle()}
		}
		if err := p.Commit(t.Context(), 0, states); err != nil {
			t.Fatal(err)
		}
	}
	blocks, _, err := embedded.ListBlocks(embedded.StreamDir(closed, codec.States) + "/msgs")
	if err != nil || len(blocks) != 2 {
		t.Fatalf("the states fill %d blocks: %v", len(blocks), err)
	}
	if err := os.CopyFS(crashed, os.DirFS(closed)); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	for name, dir := range map[string]string{"closed": closed, "crashed": crashed} {
		opened, fed := followed(t, dir)
		if opened.cleared > 0 || !maps.Equal(opened.m, want) {
			t.Errorf("%s: %d answers were read, cleared %d times; want %d", name, len(opened.m), opened.cleared, len(want))
		}
		if len(fed) > 0 {
			t.Errorf("%s: the feed brought %d states again", name, len(fed))
		}
	}
}

// storedStates opens an engine of one partition and stores states in it.
func storedStates(t *testing.T, dir string, states map[vehicle.ID]vehicle.State) *Engine {
	t.Helper()
	e, err := Open(t.Context(), Config{DataDir: dir, Partitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	p, err := e.take(t.Context(), 0, "test", store.Anyone)
	if err == nil {
		err = p.Commit(t.Context(), 0, states)
	}
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// A copy that was read from the blocks is whole, even if nothing can be stored from
// then on: a node starts on a full disk and answers.
func TestPreloadedCopyIsCurrent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e := storedStates(t, dir, map[vehicle.ID]vehicle.State{"car": roadtest.State(t)})
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = openOne(t, Config{DataDir: dir, Answers: &answerMap{m: make(map[vehicle.ID]answer)}})
	if e.preloaded == nil {
		t.Fatal("nothing was read from the blocks")
	}
	last := e.preloaded.Last
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.FollowStates(ended, func(vehicle.ID, vehicle.State) {}, func() {}); err != nil {
		t.Fatal(err)
	}
	if applied := e.beats[codec.States].applied.Load(); applied < last || last == 0 {
		t.Errorf("the copy holds all up to %d and counts as holding up to %d", last, applied)
	}
}

// What was removed does not come back, although its bytes are still in a block.
func TestRemovedStatesAreNotRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	want := map[vehicle.ID]vehicle.State{"stays": roadtest.State(t), "stays2": {Time: 5}}
	states := maps.Clone(want)
	states["goes"] = roadtest.State(t)
	e := storedStates(t, dir, states)
	s, err := e.js.Stream(t.Context(), codec.States)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(t.Context(), jetstream.WithPurgeSubject(codec.StateSubject(0, "goes"))); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	opened, fed := followed(t, dir)
	if _, ok := opened.m["goes"]; ok {
		t.Error("a removed vehicle was read")
	}
	if opened.cleared > 0 && !maps.Equal(fed, want) || opened.cleared == 0 && len(opened.m) != len(want) {
		t.Errorf("%d answers were read, cleared %d times, and %d fed", len(opened.m), opened.cleared, len(fed))
	}
}
