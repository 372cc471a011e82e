package derive

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"example.org/carstate/internal/test/testkit"
)

// noLeases has a lease time and no leases.
type noLeases struct{ Leases }

func (noLeases) Stale() time.Duration { return 6 * time.Second }

// observer is one node's view of the others.
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

func (o *observer) renewed(names ...string) {
	for _, n := range names {
		o.beats[n]++
		o.recordLease(o.now, n, o.beats[n], false)
	}
}

// pass advances the clock by d, while the named nodes renew their leases every 2 s.
func (o *observer) pass(d time.Duration, names ...string) {
	const step = 250 * time.Millisecond
	for passed := step; passed <= d; passed += step {
		o.now = o.now.Add(step)
		if passed%(2*time.Second) == 0 {
			o.renewed(names...)
		}
		o.removed = append(o.removed, o.checkLeases(o.now)...)
	}
}

// wants checks how many partitions are assigned to this node.
func (o *observer) wants(least, most int) {
	o.t.Helper()
	n := 0
	for p := range o.partitions {
		if o.partitions[p].ctx != nil {
			n++
			if o.partitions[p].ctx.Err() != nil {
				o.t.Errorf("partition %d is assigned, but its context has ended", p)
			}
		}
	}
	if n < least || n > most {
		o.t.Errorf("%d partitions are assigned, want %d to %d", n, least, most)
	}
}

func TestMembers_StaleLease(t *testing.T) {
	o := observe(t)
	o.wants(0, 0)
	if o.free(o.now, "other") {
		t.Error("another node is dead before any lease was received")
	}
	o.renewed("self")
	o.wants(16, 16)
	o.renewed("b", "c")
	o.wants(1, 15)
	o.pass(20*time.Second, "self", "b", "c")
	o.wants(1, 15)
	if o.free(o.now, "b") || !o.free(o.now, "self") || !o.free(o.now, "") {
		t.Error("Free is wrong for b, self or a partition without an owner")
	}
	// b stops renewing its lease.
	o.pass(4*time.Second, "self", "c")
	if o.free(o.now, "b") {
		t.Error("b is dead after 4 s, too early")
	}
	o.pass(4*time.Second, "self", "c")
	if !o.free(o.now, "b") || o.free(o.now, "c") {
		t.Error("after 8 s, want b dead and c alive")
	}
	o.pass(10*time.Second, "self")
	o.wants(16, 16)
	// The same renewal, stored again, does not count as one.
	o.recordLease(o.now, "b", o.beats["b"], false)
	o.wants(16, 16)
	o.renewed("b")
	if o.free(o.now, "b") {
		t.Error("b is dead although it has renewed its lease")
	}
	// b leaves, but owns its partitions until it has released them.
	o.beats["b"]++
	o.recordLease(o.now, "b", o.beats["b"], true)
	o.wants(16, 16)
	if o.free(o.now, "b") {
		t.Error("partitions of b are free while it leaves")
	}
	o.pass(8*time.Second, "self")
	if !o.free(o.now, "b") {
		t.Error("b is not dead although it has left")
	}
	o.renewed("self", "c")
	o.pass(time.Hour, "self", "c") // c stays
	if len(o.removed) != 2 || !slices.Contains(o.removed, "b") || !slices.Contains(o.removed, "other") {
		t.Errorf("leases of %v were deleted, want those of b and other", o.removed)
	}
	o.leave()
	o.wants(0, 0)
}

// A node that joins or leaves moves only the partitions that it takes or has. The others stay
// assigned without interruption.
func TestMembers_OtherPartitionsStay(t *testing.T) {
	o := observe(t)
	o.renewed("self", "b", "c")
	hold := func() (all []context.Context) {
		for p := range o.partitions {
			all = append(all, o.partitions[p].ctx)
		}
		return all
	}
	three := hold()
	o.renewed("comer")
	four := hold()
	o.beats["comer"]++
	o.recordLease(o.now, "comer", o.beats["comer"], true)
	again := hold()
	moved, stayed := 0, 0
	for p := range o.partitions {
		switch goes := ownerOf(p, []string{"self", "b", "c", "comer"}) == "comer"; {
		case three[p] == nil:
			if four[p] != nil || again[p] != nil {
				t.Errorf("partition %d was assigned to us, although its owner is alive", p)
			}
		case goes:
			moved++
			if three[p].Err() == nil || four[p] != nil || again[p] == nil {
				t.Errorf("partition %d did not move to the new node and back", p)
			}
		default:
			stayed++
			if four[p] != three[p] || again[p] != three[p] || three[p].Err() != nil {
				t.Errorf("the assignment of partition %d was interrupted", p)
			}
		}
	}
	if moved == 0 || stayed == 0 {
		t.Errorf("%d of our partitions moved, %d stayed: want both above 0", moved, stayed)
	}
}

// While this node is disconnected, it considers no other node dead and keeps its partitions. One
// that stays silent is dead a lease time after the connection is back.
func TestMembers_Disconnected(t *testing.T) {
	o := observe(t)
	o.renewed("self", "b")
	o.pass(10*time.Second, "self", "b")
	before := o.partitions[5].ctx
	o.pass(time.Hour)
	if o.free(o.now, "b") {
		t.Error("b is dead for a node that is disconnected")
	}
	if o.partitions[5].ctx != before {
		t.Error("a partition moved while this node was disconnected")
	}
	o.renewed("self")
	if o.free(o.now, "b") {
		t.Error("b is dead right after the outage")
	}
	o.pass(4*time.Second, "self")
	if o.free(o.now, "b") {
		t.Error("b is dead 4 s after the outage")
	}
	o.pass(4*time.Second, "self")
	if !o.free(o.now, "b") {
		t.Error("b is not dead 8 s after the outage")
	}
	o.wants(16, 16)
}

// A feed is late after an outage of the store. When it has delivered a renewal of ours from more
// than 4 s after the outage, a node that has not renewed its lease since is dead at once.
func TestMembers_LateFeed(t *testing.T) {
	o := observe(t)
	o.renewed("self", "b", "c")
	o.recordRenewal(o.now, o.now, o.beats["self"])
	o.pass(10*time.Second, "self", "b", "c")
	o.recordRenewal(o.now, o.now, o.beats["self"])
	o.pass(7 * time.Second) // nothing can be stored, and b dies
	stored := o.beats["self"]
	for i := range 4 { // the store is back, but the feed delivers nothing yet
		o.recordRenewal(o.now, o.now.Add(-10*time.Millisecond), stored+1+uint64(i))
		if i < 3 {
			o.pass(2 * time.Second)
		}
	}
	for i := range 4 {
		if o.free(o.now, "b") || o.free(o.now, "c") {
			t.Errorf("b or c is dead after %d renewals, too early by the order of the feed", i)
		}
		o.renewed("c", "self")
	}
	if !o.free(o.now, "b") {
		t.Error("b is not dead, although the others have renewed their leases for 4 s")
	}
	o.pass(4*time.Second, "self", "c")
	if o.free(o.now, "c") {
		t.Error("c is dead although it renews its lease")
	}
	// If only the feed is late, no node is considered dead.
	last := o.beats["self"]
	for i := range 3 {
		o.recordRenewal(o.now, o.now, last+1+uint64(i))
		o.pass(2 * time.Second)
	}
	for range 3 {
		o.renewed("self")
		if o.free(o.now, "c") {
			t.Error("c is dead, although its renewals may be as late as ours")
		}
	}
}

// leasesFrom stores no leases before from.
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

// A lease is renewed as soon as leases can be stored again, and the log has at most one line per
// minute about the outage.
func TestMembers_RenewAfterOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &leasesFrom{from: time.Now().Add(10*time.Minute - time.Millisecond)}
		log := new(testkit.Buffer)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute+5*time.Second)
		defer cancel()
		if err := NewMembers("self", 1, l, slog.New(slog.NewTextHandler(log, nil))).Run(ctx); err != nil {
			t.Fatal(err)
		}
		if len(l.stored) != 3 || l.stored[0] > heldPoll || l.stored[1]-l.stored[0] != 2*time.Second {
			t.Errorf("got renewals after %v, want three, the first within %v", l.stored, heldPoll)
		}
		if n := log.Count("cannot renew"); n != 10 {
			t.Errorf("%d log lines in ten minutes, want 10", n)
		}
	})
}

// An owner whose lease was never received may have just joined, so it is dead only after a lease
// time.
func TestMembers_UnknownOwner(t *testing.T) {
	o := observe(t)
	o.renewed("self")
	if o.free(o.now, "new") {
		t.Error("a new node is dead before its lease can have been delivered")
	}
	o.wants(16, 16) // no partition is assigned to it before its lease is delivered
	o.pass(4*time.Second, "self")
	o.renewed("new")
	o.wants(1, 15)
	if o.free(o.now, "gone") {
		t.Error("an unknown owner is dead before its lease can have been delivered")
	}
	o.pass(8*time.Second, "self", "new")
	if !o.free(o.now, "gone") || o.free(o.now, "new") {
		t.Error("after 8 s, want the owner without a lease dead and the new node alive")
	}
}
