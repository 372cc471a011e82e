package derive

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"carstate/internal/testkit"
)

// noLeases has a lease time and no leases.
type noLeases struct{ Leases }

func (noLeases) Stale() time.Duration { return 6 * time.Second }

// observer is one node's view of the others, on a clock that the test sets.
type observer struct {
	*Members
	t     *testing.T
	now   time.Time
	beats map[string]uint64

	removed []string
}

func observe(t *testing.T) *observer {
	return &observer{
		Members: NewMembers("self", 16, noLeases{}, slog.New(slog.DiscardHandler)),
		t:       t, now: time.Now(), beats: make(map[string]uint64),
	}
}

// renewed delivers a renewal of each of the nodes.
func (o *observer) renewed(names ...string) {
	for _, n := range names {
		o.beats[n]++
		o.note(o.now, n, o.beats[n], false)
	}
}

// pass advances the clock. The named nodes renew their leases every 2 s.
func (o *observer) pass(d time.Duration, names ...string) {
	const step = 250 * time.Millisecond
	for passed := step; passed <= d; passed += step {
		o.now = o.now.Add(step)
		if passed%(2*time.Second) == 0 {
			o.renewed(names...)
		}
		o.removed = append(o.removed, o.look(o.now)...)
	}
}

// wants checks how many partitions are assigned to this node.
func (o *observer) wants(least, most int) {
	o.t.Helper()
	n := 0
	for p := range o.mine {
		if o.mine[p].ours != nil {
			n++
			if o.mine[p].ours.Err() != nil {
				o.t.Errorf("partition %d is ours and is not", p)
			}
		}
	}
	if n < least || n > most {
		o.t.Errorf("%d partitions are ours; want %d to %d", n, least, most)
	}
}

func TestMembers(t *testing.T) {
	o := observe(t)
	o.wants(0, 0)
	if o.free(o.now, "other") {
		t.Error("before anything was heard, somebody is gone")
	}
	o.renewed("self")
	o.wants(16, 16)
	o.renewed("b", "c")
	o.wants(1, 15)
	o.pass(20*time.Second, "self", "b", "c")
	o.wants(1, 15)
	if o.free(o.now, "b") || !o.free(o.now, "self") || !o.free(o.now, "") {
		t.Error("who lives is free, or who does not is not")
	}
	// b stops renewing. For 6 s of our clock nothing changes.
	o.pass(4*time.Second, "self", "c")
	if o.free(o.now, "b") {
		t.Error("b was given up too early")
	}
	o.pass(4*time.Second, "self", "c")
	if !o.free(o.now, "b") || o.free(o.now, "c") {
		t.Error("b was not given up")
	}
	o.pass(10*time.Second, "self")
	o.wants(16, 16)
	// A renewal that is stored again is not a renewal.
	o.note(o.now, "b", o.beats["b"], false)
	o.wants(16, 16)
	o.renewed("b")
	if o.free(o.now, "b") {
		t.Error("b is back")
	}
	// A node that leaves is assigned nothing, and owns its partitions until it has released
	// them.
	o.beats["b"]++
	o.note(o.now, "b", o.beats["b"], true)
	o.wants(16, 16)
	if o.free(o.now, "b") {
		t.Error("b is robbed while it leaves")
	}
	o.pass(8*time.Second, "self")
	if !o.free(o.now, "b") {
		t.Error("b has left")
	}
}

// A node that joins takes partitions only for itself, and a node that leaves gives away only
// its own. The other partitions stay assigned without interruption.
func TestFoldingGoesOn(t *testing.T) {
	o := observe(t)
	o.renewed("self", "b", "c")
	hold := func() (all []context.Context) {
		for p := range o.mine {
			all = append(all, o.mine[p].ours)
		}
		return all
	}
	three := hold()
	o.renewed("comer")
	four := hold()
	o.beats["comer"]++
	o.note(o.now, "comer", o.beats["comer"], true)
	again := hold()
	moved, stayed := 0, 0
	for p := range o.mine {
		switch goes := ownerOf(p, []string{"self", "b", "c", "comer"}) == "comer"; {
		case three[p] == nil:
			if four[p] != nil || again[p] != nil {
				t.Errorf("partition %d became ours, and nobody had left it", p)
			}
		case goes:
			moved++
			if three[p].Err() == nil || four[p] != nil || again[p] == nil {
				t.Errorf("partition %d did not go to the comer and come back", p)
			}
		default:
			stayed++
			if four[p] != three[p] || again[p] != three[p] || three[p].Err() != nil {
				t.Errorf("partition %d was let go or taken anew", p)
			}
		}
	}
	if moved == 0 || stayed == 0 {
		t.Errorf("%d of ours moved, %d stayed: that shows nothing", moved, stayed)
	}
}

// While this node is disconnected, it considers no other node dead and keeps its partitions.
func TestCutOffMember(t *testing.T) {
	o := observe(t)
	o.renewed("self", "b")
	o.pass(10*time.Second, "self", "b")
	before := o.mine[5].ours
	o.pass(time.Hour)
	if o.free(o.now, "b") {
		t.Error("b was robbed by a node that hears nothing")
	}
	if o.mine[5].ours != before {
		t.Error("a partition moved although nothing was heard")
	}
	o.renewed("self") // b's renewal is not delivered yet
	if o.free(o.now, "b") {
		t.Error("b had no time to renew its lease after the outage")
	}
	o.pass(4*time.Second, "self")
	if o.free(o.now, "b") {
		t.Error("b had no time to renew its lease after the outage")
	}
	o.pass(4*time.Second, "self")
	if !o.free(o.now, "b") {
		t.Error("b is gone")
	}
	o.wants(16, 16)
}

// After an outage of the store, the feed may be late. Its order tells which nodes have renewed
// their leases since. A node that has not is dead without another wait.
func TestLateFeed(t *testing.T) {
	o := observe(t)
	o.renewed("self", "b", "c")
	o.answered(o.now, o.now, o.beats["self"])
	o.pass(10*time.Second, "self", "b", "c")
	o.answered(o.now, o.now, o.beats["self"])
	o.pass(7 * time.Second) // nothing can be stored; b dies
	stored := o.beats["self"]
	for i := range 4 { // the store is back, but the feed delivers nothing yet
		o.answered(o.now, o.now.Add(-10*time.Millisecond), stored+1+uint64(i))
		if i < 3 {
			o.pass(2 * time.Second)
		}
	}
	for i := range 4 {
		if o.free(o.now, "b") || o.free(o.now, "c") {
			t.Errorf("somebody had no time to store a lease, as far as the feed has come: %d", i)
		}
		o.renewed("c", "self")
	}
	if !o.free(o.now, "b") {
		t.Error("b has stored nothing for as long as the others could")
	}
	o.pass(4*time.Second, "self", "c")
	if o.free(o.now, "c") {
		t.Error("c lives")
	}
	// If the feed alone is late, while leases are stored, no node is considered dead.
	last := o.beats["self"]
	for i := range 3 {
		o.answered(o.now, o.now, last+1+uint64(i))
		o.pass(2 * time.Second)
	}
	for range 3 {
		o.renewed("self")
		if o.free(o.now, "c") {
			t.Error("c's leases are on their way as ours were")
		}
	}
}

// leasesFrom fails all renewals before the time from.
type leasesFrom struct {
	noLeases
	from   time.Time
	stored []time.Duration // times of renewals, relative to from
}

func (l *leasesFrom) Renew(_ context.Context, _ string, _ uint64, leaving bool) error {
	if after := time.Since(l.from); after < 0 {
		return errors.New("no answer")
	} else if !leaving {
		l.stored = append(l.stored, after)
	}
	return nil
}

func (l *leasesFrom) Follow(ctx context.Context, _ func(string, uint64, bool)) error {
	<-ctx.Done()
	return nil
}

// As soon as leases can be stored again, ours is renewed. The log has few lines about the
// outage.
func TestRenewedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &leasesFrom{from: time.Now().Add(10*time.Minute - time.Millisecond)}
		log := new(testkit.Buffer)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute+5*time.Second)
		defer cancel()
		if err := NewMembers("self", 1, l, slog.New(slog.NewTextHandler(log, nil))).Run(ctx); err != nil {
			t.Fatal(err)
		}
		if len(l.stored) != 3 || l.stored[0] > heldAgain || l.stored[1]-l.stored[0] != 2*time.Second {
			t.Errorf("stored after %v", l.stored)
		}
		if n := log.Count("cannot be renewed"); n != 10 {
			t.Errorf("%d lines in ten minutes", n)
		}
	})
}

// An owner without a known lease may have just joined.
func TestUnknownHolder(t *testing.T) {
	o := observe(t)
	o.renewed("self")
	if o.free(o.now, "new") {
		t.Error("its lease may be on its way")
	}
	o.wants(16, 16) // it is assigned nothing before its lease is delivered
	o.pass(4*time.Second, "self")
	o.renewed("new")
	o.wants(1, 15)
	if o.free(o.now, "gone") {
		t.Error("its lease may be on its way")
	}
	o.pass(8*time.Second, "self", "new")
	if !o.free(o.now, "gone") || o.free(o.now, "new") {
		t.Error("of a node without a lease nothing will come")
	}
}

// Leases of nodes that have long been dead are deleted, but never our own.
func TestOldLeases(t *testing.T) {
	o := observe(t)
	o.renewed("self", "b")
	o.pass(time.Hour, "self")
	if _, ok := o.seen["b"]; ok || len(o.removed) != 1 || o.removed[0] != "b" || o.seen["self"] == nil {
		t.Errorf("removed: %v", o.removed)
	}
}

// await returns when the partition is assigned to this node. The context that it returns ends
// when the partition is assigned to another.
func TestAwait(t *testing.T) {
	o := observe(t)
	got := make(chan context.Context)
	go func() {
		ours, err := o.await(t.Context(), 0)
		if err != nil {
			t.Error(err)
		}
		got <- ours
	}()
	o.renewed("self")
	ours := <-got
	for i := 0; ours.Err() == nil; i++ {
		if i == 1000 {
			t.Fatal("none of a thousand members takes it")
		}
		o.renewed("member" + string(rune('a'+i)))
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := o.await(ended, 0); err == nil {
		t.Error("what is not ours was not waited for")
	}
}
