package derive

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

// noLeases has a lease time and no leases.
type noLeases struct{ Leases }

func (noLeases) Stale() time.Duration { return 6 * time.Second }

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
		o.beats[n] = max(o.beats[n]+1, o.beatAt(o.now))
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

func (o *observer) wants(least, most int) {
	o.t.Helper()
	n := 0
	for p := range o.partitions {
		if o.partitions[p].ctx != nil {
			n++
			if o.partitions[p].ctx.Err() != nil {
				o.t.Errorf("partition %d: got an ended context, want one that goes on while it is assigned", p)
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
		t.Error("another node before any lease was received: got it dead, want it alive")
	}
	o.renewed("self")
	o.wants(16, 16)
	o.renewed("b", "c")
	o.wants(1, 15)
	o.pass(20*time.Second, "self", "b", "c")
	o.wants(1, 15)
	if o.free(o.now, "b") || !o.free(o.now, "self") || !o.free(o.now, "") {
		t.Errorf("b: got free %t, want false; or self or nobody: got false, want true", o.free(o.now, "b"))
	}
	// b stops renewing its lease.
	o.pass(4*time.Second, "self", "c")
	if o.free(o.now, "b") {
		t.Error("b after 4 s: got it dead, want it alive")
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
		t.Error("b after it renewed its lease: got it dead, want it alive")
	}
	// b leaves, but owns its partitions until it has released them.
	o.beats["b"]++
	o.recordLease(o.now, "b", o.beats["b"], true)
	o.wants(16, 16)
	if o.free(o.now, "b") {
		t.Error("partitions of b while it leaves: got them free, want them held")
	}
	o.pass(8*time.Second, "self")
	if !o.free(o.now, "b") {
		t.Error("b after it has left: got it alive, want it dead")
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
				t.Errorf("partition %d of an owner that is alive: got it assigned to us, want it left there", p)
			}
		case goes:
			moved++
			if three[p].Err() == nil || four[p] != nil || again[p] == nil {
				t.Errorf("partition %d: got no move to the new node and back, want one", p)
			}
		default:
			stayed++
			if four[p] != three[p] || again[p] != three[p] || three[p].Err() != nil {
				t.Errorf("partition %d: got its assignment interrupted, want it to go on", p)
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
		t.Error("b for a node that is disconnected: got it dead, want it alive")
	}
	if o.partitions[5].ctx != before {
		t.Error("partition 5 while this node was disconnected: got another context, want the same")
	}
	o.renewed("self")
	if o.free(o.now, "b") {
		t.Error("b right after the outage: got it dead, want it alive")
	}
	o.pass(4*time.Second, "self")
	if o.free(o.now, "b") {
		t.Error("b 4 s after the outage: got it dead, want it alive")
	}
	o.pass(4*time.Second, "self")
	if !o.free(o.now, "b") {
		t.Error("b 8 s after the outage: got it alive, want it dead")
	}
	o.wants(16, 16)
}

// A feed is late after an outage of the store. When it has delivered a renewal of ours from more
// than 4 s after the outage, a node that has not renewed its lease since is dead at once.
func TestMembers_LateFeed(t *testing.T) {
	o := observe(t)
	o.renewed("self", "b", "c")
	o.recordRenewal(o.now)
	o.pass(10*time.Second, "self", "b", "c")
	o.recordRenewal(o.now)
	o.pass(7 * time.Second)
	var stored []uint64
	store := func() {
		stored = append(stored, o.beatAt(o.now.Add(-10*time.Millisecond)))
		o.recordRenewal(o.now)
	}
	for range 3 { // the store is back, but the feed delivers nothing yet
		store()
		o.pass(2 * time.Second)
	}
	store()
	for i, beat := range stored {
		if o.free(o.now, "b") || o.free(o.now, "c") {
			t.Errorf("b or c after %d renewals: got it dead, want both alive by the order of the feed", i)
		}
		o.renewed("c")
		o.recordLease(o.now, "self", beat, false)
	}
	if !o.free(o.now, "b") {
		t.Error("b when the others have renewed their leases for 4 s: got it alive, want it dead")
	}
	o.pass(4*time.Second, "self", "c")
	if o.free(o.now, "c") {
		t.Error("c, which renews its lease: got it dead, want it alive")
	}
	// If only the feed is late, or the store was back for a moment only, no node is considered dead.
	stored = nil
	for range 3 {
		store()
		o.pass(2 * time.Second)
	}
	o.pass(3 * time.Second)
	store()
	o.pass(5 * time.Second)
	for _, beat := range append(stored, o.beatAt(o.now)) { // the last is delivered before it is acknowledged
		o.recordLease(o.now, "self", beat, false)
		if o.free(o.now, "c") {
			t.Error("c, whose renewals may be as late as ours: got it dead, want it alive")
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
		testkit.NoError(t, NewMembers("self", 1, l, slog.New(slog.NewTextHandler(log, nil))).Run(ctx))
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
		t.Error("a new node before its lease can be delivered: got it dead, want it alive")
	}
	o.wants(16, 16) // no partition is assigned to it before its lease is delivered
	o.pass(4*time.Second, "self")
	o.renewed("new")
	o.wants(1, 15)
	if o.free(o.now, "gone") {
		t.Error("an unknown owner before its lease can be delivered: got it dead, want it alive")
	}
	o.pass(8*time.Second, "self", "new")
	if !o.free(o.now, "gone") || o.free(o.now, "new") {
		t.Error("after 8 s, want the owner without a lease dead and the new node alive")
	}
}

var members = rapid.SliceOfNDistinct(rapid.StringMatching("[A-Z0-9]{16}"), 0, 12, rapid.ID[string])

// If a member joins, only it gets partitions, and few. The order of the members does not matter. So
// if a member leaves, only its own partitions move.
func TestOwnerOf_MovesFewPartitions(t *testing.T) {
	const partitions = 64
	rapid.Check(t, func(t *rapid.T) {
		few := members.Draw(t, "members")
		more := append(slices.Clone(few), rapid.StringMatching("[a-z]{16}").Draw(t, "comer"))
		comer := more[len(few)]
		more = rapid.Permutation(more).Draw(t, "order")
		moved := 0
		for p := range partitions {
			before, after := ownerOf(p, few), ownerOf(p, more)
			if before != after {
				moved++
				if after != comer {
					t.Fatalf("partition %d of %q: got the owner %q, want %q, which joined", p, before, after, comer)
				}
			}
			if len(few) == 0 != (before == "") || before != "" && !slices.Contains(few, before) {
				t.Fatalf("partition %d: got owner %q, want one of %q", p, before, few)
			}
		}
		if fair := partitions / len(more); moved > 3*fair+16 {
			t.Fatalf("to one of %d members: got %d partitions moved, want at most %d", len(more), moved, 3*fair+16)
		}
	})
}

// On average, the largest share is at most 1.3 × 16 partitions, as docs/scale.md says.
func TestOwnerOf_SixteenPartitionsEach(t *testing.T) {
	const nodes, partitions, draws = 4, 16 * 4, 2000
	rnd := rand.New(rand.NewPCG(1, 2))
	busiest := 0
	for range draws {
		var names []string
		for range nodes {
			names = append(names, strconv.FormatUint(rnd.Uint64(), 36))
		}
		has := make(map[string]int)
		for p := range partitions {
			has[ownerOf(p, names)]++
		}
		if len(has) < nodes {
			t.Errorf("%q: got %d with a partition, want %d", names, len(has), nodes)
		}
		busiest += slices.Max(slices.Collect(maps.Values(has)))
	}
	if share := float64(busiest) / draws / 16; share > 1.3 {
		t.Errorf("the busiest: got %.2f × its share on average, want at most 1.3", share)
	}
}

// Nodes of different releases must agree.
func TestOwnerOf_Pinned(t *testing.T) {
	three := []string{"AAAAAAAAAAAAAAAA", "BBBBBBBBBBBBBBBB", "CCCCCCCCCCCCCCCC"}
	got := ""
	for p := range 64 {
		got += ownerOf(p, three)[:1]
	}
	const want = "ABABABCACABBCCBBBCAABABCCAAABAAACBBBACBCCCABABCABCBACCCBCBAAACCA"
	if got != want {
		t.Errorf("got owners\n%s, want\n%s", got, want)
	}
}

// idle has no telemetry, and runs on the fake clock, unlike a real engine.
type idle struct {
	store.Partition
	err   error         // of Next
	takes time.Duration // duration of a Save
	saves []uint64      // numbers of checkpoints
}

func (p *idle) Stored() ([]store.Checkpoint, uint64)                              { return nil, 0 }
func (p *idle) Seek(context.Context, store.Checkpoint) error                      { return nil }
func (p *idle) Live(context.Context, func(yield func(vehicle.ID, *store.Answer))) {}
func (p *idle) Close()                                                            {}
func (p *idle) Next(ctx context.Context) (store.Group, error) {
	if p.err != nil {
		return store.Group{}, p.err
	}
	<-ctx.Done()
	return store.Group{}, ctx.Err()
}

func (p *idle) Save(
	ctx context.Context, c store.Checkpoint, _ iter.Seq[store.Piece], _ bool,
) (store.Checkpoint, error) {
	if err := periodic.Pause(ctx, p.takes); err != nil {
		return c, err
	}
	p.saves = append(p.saves, c.Number)
	return c, nil
}

// An idle partition stores only its cursor, every minute, and at the end, even if that takes more
// than a second.
func TestIdleRenews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*renewAfter+time.Second)
		defer cancel()
		part := &idle{takes: 1500 * time.Millisecond}
		New(Config{
			Partitions: 1, Checkpoint: time.Second,
			Take: func(context.Context, int, store.Owner) (store.Partition, error) { return part, nil },
		}).Run(ctx)
		if !slices.Equal(part.saves, []uint64{1, 0, 0}) {
			t.Fatalf("got %+v, want an empty checkpoint and then the cursor alone", part.saves)
		}
	})
}

// A node repeats the release of a partition that is assigned to another until it succeeds, and again
// if an earlier Take is stored only after it: no other node takes a partition from a live owner.
func TestRun_RetriesRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := observe(t)
		o.renewed("self")
		var mu sync.Mutex
		owned, failures, releases := false, 0, 0
		is := func(want bool, tries int) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if owned != want || releases < tries {
				t.Fatalf("owned: %v after %d releases, want %v after at least %d", owned, releases, want, tries)
			}
		}
		d := New(Config{
			Partitions: 1, Members: o.Members,
			Take: func(context.Context, int, store.Owner) (store.Partition, error) {
				mu.Lock()
				defer mu.Unlock()
				owned = true
				return new(idle), nil
			},
			Release: func(context.Context, int) error {
				mu.Lock()
				defer mu.Unlock()
				if releases++; failures > 0 {
					failures--
					return errors.New("not now")
				}
				owned = false
				return nil
			},
		})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { d.Run(ctx) })
		is(true, 0)
		// The partition is assigned elsewhere, and the engine does not respond at first.
		mu.Lock()
		failures = 3
		mu.Unlock()
		for i := 0; o.assignment(0) != nil; i++ {
			o.renewed("member" + string(rune('a'+i)))
		}
		is(true, 1)
		time.Sleep(10 * heldPoll) // on the fake clock
		is(false, 4)
		// The response to an earlier Take was lost, but its cursor was stored.
		mu.Lock()
		owned = true
		mu.Unlock()
		time.Sleep(3 * o.stale)
		is(false, 5)
		stop()
		running.Wait()
	})
}

// If another node is about to release the partition, the pause is shorter.
func TestRun_PauseBeforeRetry(t *testing.T) {
	for _, c := range []struct {
		err  error
		want time.Duration
	}{
		{fmt.Errorf("partition 0: %w", store.ErrHeld), heldPoll},
		{store.ErrFenced, retryAfter},
		{errors.New("no answer"), retryAfter},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			var took []time.Time
			New(Config{Partitions: 1, Take: func(context.Context, int, store.Owner) (store.Partition, error) {
				if took = append(took, time.Now()); len(took) == 2 {
					stop()
				}
				return nil, c.err
			}}).Run(ctx)
			if rest := took[1].Sub(took[0]); rest != c.want {
				t.Errorf("after %q it is taken again in %v, want %v", c.err, rest, c.want)
			}
		})
	}
}

// A node with many partitions logs an outage once a minute, not for each of them.
func TestRun_OutageLogsAtIntervals(t *testing.T) {
	for what, failing := range map[string]func(*Config, *observer){
		"cannot release partition yet; will retry": func(c *Config, o *observer) {
			for i := range 20 {
				o.renewed("member" + string(rune('a'+i)))
			}
			c.Members = o.Members
			c.Release = func(context.Context, int) error { return errors.New("no answer") }
		},
		"reacquiring partition after an error": func(*Config, *observer) {},
	} {
		synctest.Test(t, func(t *testing.T) {
			o := observe(t)
			o.renewed("self")
			log := new(testkit.Buffer)
			c := Config{
				Partitions: 16, Log: slog.New(slog.NewTextHandler(log, nil)),
				Take: func(context.Context, int, store.Owner) (store.Partition, error) { return nil, errors.New("no answer") },
			}
			failing(&c, o)
			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { New(c).Run(ctx) })
			time.Sleep(10*time.Minute + time.Second) // on the fake clock
			stop()
			running.Wait()
			if n := log.Count(what); n < 10 || n > 11 {
				t.Errorf("lines of %q in ten minutes: got %d, want 10 or 11:\n%.2000s", what, n, log)
			}
			if !strings.Contains(log.String(), "times_since_last_line=") {
				t.Errorf("the number of suppressed lines: got none, want it in a line: %s", log)
			}
		})
	}
}

// A partition has a record of a newer version. Unless a node of that version has joined, this node
// releases the partition and tries again after a pause. Otherwise it gives up all its partitions.
func TestNewerPartitionGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := observe(t)
		o.renewed("self")
		ctx, giveUp := context.WithCancel(t.Context())
		var took []time.Time
		released, asked := 0, 0
		New(Config{
			Partitions: 1, Members: o.Members,
			Take: func(context.Context, int, store.Owner) (store.Partition, error) {
				took = append(took, time.Now())
				return &idle{err: fmt.Errorf("TELEMETRY: record 1: %w", codec.ErrNewer)}, nil
			},
			Release: func(context.Context, int) error { released++; return nil },
			GiveUp: func() {
				if asked++; asked == 2 { // a newer node has joined
					giveUp()
				}
			},
		}).Run(ctx)
		if len(took) != 2 || took[1].Sub(took[0]) != newerPause || released != 2 {
			t.Errorf("taken at %v, released %d times; want 2 of each, %v apart", took, released, newerPause)
		}
	})
}
