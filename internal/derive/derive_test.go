package derive_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"example.org/carstate/internal/derive"
	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/store/local"
	"example.org/carstate/internal/test/storetest"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Several partitions show whether derive mixes them up.
func open(t testing.TB, c local.Config) *local.Engine {
	t.Helper()
	c.DataDir, c.Partitions, c.SyncInterval = t.TempDir(), 4, time.Hour
	e, err := local.Open(t.Context(), c)
	return testkit.Opened(t, e, err)
}

type spied struct {
	store.Partition
	t      testing.TB
	folded uint64
	live   bool
	save   func(context.Context, store.Checkpoint) error
	saved  func()
}

func (p *spied) Seek(ctx context.Context, c store.Checkpoint) error {
	p.folded = c.Seq
	return p.Partition.Seek(ctx, c)
}

func (p *spied) Next(ctx context.Context) (store.Group, error) {
	g, err := p.Partition.Next(ctx)
	p.folded = max(p.folded, g.Seq)
	return g, err
}

func (p *spied) Live(ctx context.Context, answers func(func(vehicle.ID, *store.Answer))) {
	if _, newest := p.Stored(); p.live || p.folded < newest {
		p.t.Errorf("live as of %d, want one time, as of %d at least", p.folded, newest)
	}
	p.live = true
	p.Partition.Live(ctx, answers)
}

func (p *spied) Publish(id vehicle.ID, a *store.Answer) {
	if !p.live {
		p.t.Errorf("%s: got an answer as of %d before Live, want none", id, p.folded)
	}
	p.Partition.Publish(id, a)
}

func (p *spied) Save(
	ctx context.Context, c store.Checkpoint, pieces iter.Seq[store.Piece], erase bool,
) (store.Checkpoint, error) {
	if p.save != nil {
		if err := p.save(ctx, c); err != nil {
			return c, err
		}
	}
	c, err := p.Partition.Save(ctx, c, pieces, erase)
	p.saved()
	return c, err
}

// config is for all partitions of e, which the deriver takes from any owner. An owner that has no
// states yet must store none. change, unless nil, gets each partition.
func config(t testing.TB, e *local.Engine, change func(*spied)) derive.Config {
	return derive.Config{
		Partitions: e.Partitions(), Records: e, Checkpoint: 2 * time.Millisecond,
		Take: func(ctx context.Context, p int, owner store.Owner) (store.Partition, error) {
			part, err := e.Take(ctx, p, "node", owner, store.Anyone)
			if err != nil {
				return nil, err
			}
			if _, err := owner(ctx, &store.Question{Kind: store.AskCheckpoint}); !errors.Is(err, store.ErrNoOwner) {
				t.Errorf("a question before the states are loaded: got %v, want %v", err, store.ErrNoOwner)
			}
			s := &spied{Partition: part, t: t, saved: func() {}}
			if change != nil {
				change(s)
			}
			return s, nil
		},
	}
}

func start(t testing.TB, c derive.Config) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { derive.New(c).Run(ctx) })
	return sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
}

type table struct {
	mu      sync.Mutex
	answers map[vehicle.ID]store.Answer
}

// follow fills a table until the test ends. No answer may be older than one before.
func follow(t testing.TB, e *local.Engine) *table {
	tab := &table{answers: make(map[vehicle.ID]store.Answer)}
	followBy(t, e, func(id vehicle.ID, a *store.Answer) {
		tab.mu.Lock()
		defer tab.mu.Unlock()
		if was := tab.answers[id]; *a == (store.Answer{}) {
			delete(tab.answers, id)
		} else if tab.answers[id] = *a; a.Driving.Time < was.Driving.Time {
			t.Errorf("%s: got an answer of %d, want %d or later", id, a.Driving.Time, was.Driving.Time)
		}
	})
	return tab
}

func followBy(t testing.TB, e *local.Engine, put func(vehicle.ID, *store.Answer)) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := e.FollowAnswers(ctx, put, func() {}); err != nil {
			t.Errorf("FollowAnswers: got %v, want no error", err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
}

func (tab *table) wait(t testing.TB, n int, at signal.UnixMilli) {
	t.Helper()
	testkit.Await(t, fmt.Sprintf("%d vehicles have an answer of %d", n, at), func() bool {
		there := 0
		for _, a := range tab.copy() {
			if a.Driving.Time == at {
				there++
			}
		}
		return there == n
	})
}

func (tab *table) copy() map[vehicle.ID]store.Answer {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	return maps.Clone(tab.answers)
}

func ask(t testing.TB, e store.Engine, id vehicle.ID, kind string) (r store.Reply) {
	t.Helper()
	testkit.Await(t, "an owner replies", func() (ok bool) {
		var err error
		q := &store.Question{Kind: kind, Vehicle: id}
		r, err = e.Ask(t.Context(), codec.PartitionOf(id, e.Partitions()), q)
		if err != nil && !errors.Is(err, store.ErrNoOwner) {
			t.Fatalf("Ask: got %v, want an answer or %v", err, store.ErrNoOwner)
		}
		return err == nil
	})
	return r
}

func stored(t testing.TB, e *local.Engine, p int, all ...store.Checkpoint) derive.Packed {
	t.Helper()
	got := make(derive.Packed)
	testkit.NoError(t, store.ReadStates(t.Context(), e, p, all, func(piece store.Piece) error {
		return store.DecodeEntries(piece.Entries, func(x store.Entry) error {
			got[x.Vehicle] = string(x.State)
			return nil
		})
	}))
	return got
}

// check compares the states in the checkpoints, byte for byte, with a plain fold of all telemetry.
// No deriver may run.
func check(t testing.TB, e *local.Engine) {
	t.Helper()
	for p := range e.Partitions() {
		part := storetest.Take(t, e, p)
		log, err := derive.Log(part)
		part.Close()
		testkit.NoError(t, err)
		all, newest := part.Stored()
		want := derive.Plain(log, newest, func(vehicle.ID, uint64) bool { return false })
		if newest == 0 {
			continue
		}
		if len(all) == 0 || all[len(all)-1].Seq != newest {
			t.Fatalf("partition %d: got checkpoints %+v, want one of %d", p, all, newest)
		}
		if got := stored(t, e, p, all...); !maps.Equal(got, want) {
			t.Errorf("partition %d: stored %q, want %q", p, got, want)
		}
	}
}

func put(t testing.TB, e store.Engine, samples ...vehicle.Sample) {
	t.Helper()
	testkit.NoError(t, e.Append(t.Context(), samples))
}

const last = 1 << 40

// traffic stores batches of samples, some late or repeated, and at the end one of each vehicle with
// the time last. It returns the number of vehicles.
func traffic(t *testing.T, e *local.Engine, writers, vehicles, samples int) int {
	var running sync.WaitGroup
	for w := range writers {
		running.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(w), 7))
			id := func(v int) vehicle.ID {
				return vehicle.ID(fmt.Sprintf("w%dcar%03d", w, v) + strings.Repeat("x", v%2*(vehicle.MaxReportingID-8)))
			}
			var all []vehicle.Sample
			for i := range int64(samples) {
				x := storetest.Speed(id(rnd.IntN(vehicles)), 1000*i+1_000_000, rnd.Float64()*120)
				switch rnd.IntN(5) {
				case 0:
					x.Time -= signal.UnixMilli(rnd.Int64N(100_000)) // a late sample
				case 1:
					x = append(all, x)[max(0, len(all)-rnd.IntN(60))] // a repeated sample
				}
				all = append(all, x)
			}
			for v := range vehicles {
				all = append(all, storetest.Speed(id(v), last, 33))
			}
			for n := 0; len(all) > 0; all = all[n:] {
				n = min(len(all), 1+rnd.IntN(60))
				if err := e.Append(t.Context(), all[:n]); err != nil {
					t.Errorf("Append: got %v, want no error", err)
				}
			}
		})
	}
	running.Wait()
	return writers * vehicles
}

// Restarts at random moments, with the last checkpoint and without, neither lose a sample nor count
// one twice, while questions are asked.
func TestRun_RestartsLoseNothing(t *testing.T) {
	e := open(t, local.Config{})
	tab := follow(t, e)
	ctx, finished := context.WithCancel(t.Context())
	defer finished()
	var running sync.WaitGroup
	var restarts, saves atomic.Int64
	running.Go(func() {
		const short = 15 * time.Millisecond
		for most := short; ctx.Err() == nil; restarts.Add(1) {
			var crashed atomic.Bool
			before := saves.Load()
			c := config(t, e, func(p *spied) {
				p.save = func(context.Context, store.Checkpoint) error {
					if crashed.Load() {
						return derive.ErrInjected
					}
					saves.Add(1)
					return nil
				}
			})
			c.SetBucketBytes(250)
			life, cancel := context.WithCancel(ctx)
			time.AfterFunc(rand.N(most), func() { crashed.Store(rand.IntN(2) == 0); cancel() })
			derive.New(c).Run(life)
			// On a busy machine a run may be too short for a single checkpoint.
			if most *= 2; saves.Load() > before {
				most = short
			}
		}
	})
	running.Go(func() {
		kinds := []string{store.AskState, store.AskAnswers, store.AskTombstones, store.AskCheckpoint, store.AskErase}
		for range periodic.Every(ctx, time.Millisecond) {
			q := &store.Question{Kind: kinds[rand.IntN(len(kinds))], Vehicle: "w0car000"}
			_, err := e.Ask(ctx, rand.IntN(e.Partitions()), q)
			if err != nil && !errors.Is(err, derive.ErrInjected) && !errors.Is(err, store.ErrNoOwner) &&
				!errors.Is(err, store.ErrFenced) && ctx.Err() == nil {
				t.Errorf("Ask: got %v, want none but an injected error, ErrNoOwner or ErrFenced", err)
			}
		}
	})
	n := traffic(t, e, 4, 50, 1800)
	tab.wait(t, n, last)
	testkit.Await(t, "some restarts", func() bool { return restarts.Load() >= 5 })
	finished()
	running.Wait()
	for again := range 2 {
		stop := start(t, config(t, e, func(p *spied) {
			p.save = func(_ context.Context, c store.Checkpoint) error {
				if again > 0 && c.Number != 0 {
					t.Errorf("a start without new telemetry: got checkpoint %d, want none", c.Number)
				}
				return nil
			}
		}))
		for i := range 40 { // of every partition
			ask(t, e, vehicle.ID(fmt.Sprint("car", i)), store.AskState)
		}
		stop()
	}
	check(t, e)
}

// The states of a checkpoint that fails, after an interval or a question or because the process
// ends, are in the next one.
func TestRun_FailedCheckpoint(t *testing.T) {
	for name, c := range map[string]struct {
		interval time.Duration
		ask, cut bool
	}{
		"interval": {interval: time.Millisecond}, "question": {time.Hour, true, false},
		"end": {time.Millisecond, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			e := open(t, local.Config{})
			tab := follow(t, e)
			var fail, failed atomic.Bool
			conf := config(t, e, func(p *spied) {
				p.save = func(ctx context.Context, is store.Checkpoint) error {
					if is.Number == 0 || !fail.Swap(false) {
						return nil
					}
					failed.Store(true)
					if c.cut { // as while the disk is full
						<-ctx.Done()
						put(t, e, storetest.Speed("car", last+1, 60)) // folded while the deriver ends
						tab.wait(t, 1, last+1)
					}
					return derive.ErrInjected
				}
			})
			conf.Checkpoint = c.interval
			stop := start(t, conf)
			ask(t, e, "car", store.AskCheckpoint)
			fail.Store(true)
			put(t, e, storetest.Speed("car", last, 50))
			tab.wait(t, 1, last)
			if p := codec.PartitionOf(vehicle.ID("car"), e.Partitions()); c.ask {
				_, _ = e.Ask(t.Context(), p, &store.Question{Kind: store.AskCheckpoint})
			}
			testkit.Await(t, "a failure", failed.Load)
			if name == "interval" {
				ask(t, e, "car", store.AskCheckpoint) // of the next owner
			}
			stop()
			check(t, e)
		})
	}
}

// A group is not stored as folded if a part of it is not, although the process ends at that moment.
func TestRun_FailsWithinGroup(t *testing.T) {
	e := open(t, local.Config{})
	follow(t, e)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	put(t, e, storetest.Speed("car", last, 50))
	c := config(t, e, nil)
	c.Covers = func(vehicle.ID) (bool, error) {
		cancel()
		return false, derive.ErrInjected
	}
	derive.New(c).Run(ctx)
	stop := start(t, config(t, e, nil))
	ask(t, e, "car", store.AskState)
	stop()
	check(t, e)
}

// Once a second deriver has the partitions, the first stores nothing more, and the states are those
// of all samples.
func TestTakeover_FencesFirstOwner(t *testing.T) {
	e := open(t, local.Config{})
	tab := follow(t, e)
	n := traffic(t, e, 2, 20, 300)
	first := config(t, e, nil)
	take := first.Take
	taken, fenced := make([]atomic.Bool, e.Partitions()), make(chan int, e.Partitions())
	first.Take = func(ctx context.Context, p int, owner store.Owner) (store.Partition, error) {
		if taken[p].Swap(true) {
			fenced <- p
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return take(ctx, p, owner)
	}
	defer start(t, first)()
	tab.wait(t, n, last)
	second := config(t, e, nil)
	second.Take = func(ctx context.Context, p int, owner store.Owner) (store.Partition, error) {
		return e.Take(ctx, p, "second", owner, store.Anyone)
	}
	stop := start(t, second)
	for range e.Partitions() {
		<-fenced
	}
	var batch []vehicle.Sample
	for id := range tab.copy() {
		batch = append(batch, storetest.Speed(id, last+1000, 66))
	}
	put(t, e, batch...)
	tab.wait(t, n, last+1000)
	stop()
	check(t, e)
}

// Telemetry that a process may have folded before is folded again, and later telemetry is not, even
// if it waited. A checkpoint follows the replay at once, so that a crash repeats less.
func TestRun_Replays(t *testing.T) {
	now := testkit.NewClock(time.UnixMilli(int64(last)))
	e := open(t, local.Config{Now: now.Now, Retention: 24 * time.Hour})
	tab := follow(t, e)
	var replayed, folded, saves atomic.Int64
	var crashed atomic.Bool
	c := config(t, e, func(p *spied) {
		p.save = func(context.Context, store.Checkpoint) error {
			if crashed.Load() {
				return derive.ErrInjected
			}
			return nil
		}
		p.saved = func() { saves.Add(1) }
	})
	c.Checkpoint, c.Fold = time.Hour, func(s *vehicle.State, x *vehicle.Sample, again bool) bool {
		map[bool]*atomic.Int64{true: &replayed, false: &folded}[again].Add(1)
		return s.Fold(x)
	}
	c.SetBucketBytes(250)
	const cars = 100
	for v := range cars {
		put(t, e, storetest.Speed(vehicle.ID(fmt.Sprint("car", v)), last, 50))
	}
	for at := range signal.UnixMilli(3) {
		put(t, e, storetest.Speed("car", int64(last+at), 50))
	}
	now.Advance(2 * time.Hour) // no node folds for so long
	put(t, e, storetest.Speed("car", int64(last+3), 50))
	stop := start(t, c)
	testkit.Await(t, "a checkpoint of each partition", func() bool { return saves.Load() == int64(e.Partitions()) })
	put(t, e, storetest.Speed("car", last+4, 50), storetest.Speed("car", last+5, 50))
	tab.wait(t, 1, last+5)
	crashed.Store(true)
	stop()
	crashed.Store(false)
	stop = start(t, c)
	ask(t, e, "car", store.AskState)
	stop()
	if replayed.Load() != cars+5 || folded.Load() != 3 {
		t.Errorf("%d samples were replayed and %d folded, want %d and 3", replayed.Load(), folded.Load(), cars+5)
	}
	check(t, e)
}

// A deriver ends with its context although no process follows its answers.
func TestRun_EndsUnfollowed(t *testing.T) {
	e, taken := open(t, local.Config{}), make(chan struct{}, 4)
	stop := start(t, config(t, e, func(*spied) { taken <- struct{}{} }))
	for range e.Partitions() {
		<-taken
	}
	stop()
}

// A car's clock was a day ahead and is then corrected, long after both samples were stored, with a
// stop in between or without. The state is that of the corrected clock.
func TestCorrectedClock(t *testing.T) {
	then := time.UnixMilli(1e12)
	for name, stop := range map[string]bool{"ReplayOfReset": false, "LateCorrection": true} {
		t.Run(name, func(t *testing.T) {
			e := open(t, local.Config{Now: func() time.Time { return then }})
			followBy(t, e, func(vehicle.ID, *store.Answer) {})
			put(t, e, storetest.Speed("car", then.Add(24*time.Hour).UnixMilli(), 50))
			if stop {
				stop := start(t, config(t, e, nil))
				ask(t, e, "car", store.AskState)
				stop()
			}
			put(t, e, storetest.Speed("car", then.UnixMilli(), 50))
			defer start(t, config(t, e, nil))()
			if s, err := codec.DecodeState(ask(t, e, "car", store.AskState).State); err != nil || s.Time != signal.At(then) {
				t.Errorf("got %+v, %v; want a state of %d", s, err, signal.At(then))
			}
		})
	}
}

func cars(e store.Engine, n int, end string) (ids []vehicle.ID) {
	for i := 0; len(ids) < n; i++ {
		if id := vehicle.ID(fmt.Sprintf("car%d%s", i, end)); codec.PartitionOf(id, e.Partitions()) == 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

// A vehicle that is silent for 30 days leaves memory and checkpoints while others report. A clock
// that is ahead for a moment drops none.
func TestSilentVehicles(t *testing.T) {
	now := testkit.NewClock(time.UnixMilli(1e12))
	e := open(t, local.Config{Now: now.Now})
	tab, ids := follow(t, e), cars(e, 3, "")
	var saves atomic.Int64
	c := config(t, e, func(p *spied) {
		p.save = func(_ context.Context, is store.Checkpoint) error { saves.Add(1); return nil }
	})
	c.Checkpoint = time.Hour
	stop := start(t, c)
	report := func(id vehicle.ID, after time.Duration) {
		now.Advance(after)
		put(t, e, storetest.Speed(id, now.Now().UnixMilli(), 50))
		tab.wait(t, 1, signal.At(now.Now()))
	}
	const day = 24 * time.Hour
	report(ids[0], 0)
	for range 29 {
		report(ids[1], day)
	}
	report(ids[2], 365*day)
	report(ids[1], time.Second-365*day)
	if all := stored(t, e, 0, ask(t, e, ids[0], store.AskCheckpoint).Checkpoint); len(all) != 3 {
		t.Errorf("after 29 days, states of %d vehicles are stored, want 3", len(all))
	}
	stop()
	c.Checkpoint = time.Millisecond
	stop = start(t, c)
	report(ids[1], day)
	report(ids[1], day)
	testkit.Await(t, "the vehicle leaves memory", func() bool {
		report(ids[1], time.Second)
		return !ask(t, e, ids[0], store.AskState).Had
	})
	for most := saves.Load() + 2*store.CheckpointCycle; saves.Load() < most; {
		report(ids[1], time.Second)
	}
	stop()
	kept, _ := storetest.Take(t, e, 0).Stored()
	all := stored(t, e, 0, kept...)
	if all[ids[0]] != "" || all[ids[1]] == "" || all[ids[2]] == "" {
		t.Errorf("stored %q, want the states of %s and %s", all, ids[1], ids[2])
	}
}

// A dropped vehicle leaves a marker, stored and published, until an erasure once it may go.
// AskDropAll drops exactly the forgotten vehicles.
func TestForget(t *testing.T) {
	e := open(t, local.Config{})
	ids := cars(e, 4, "")
	var gone, forget atomic.Bool
	c := config(t, e, nil)
	c.Covers = func(id vehicle.ID) (bool, error) { return forget.Load() && id == ids[1], nil }
	c.Gone = func(id vehicle.ID) bool { return gone.Load() && id == ids[0] }
	tab, stop := follow(t, e), start(t, c)
	for _, id := range ids[:3] {
		put(t, e, storetest.Speed(id, last, 50))
	}
	tab.wait(t, 3, last)
	for _, id := range []vehicle.ID{ids[0], ids[3]} {
		if r := ask(t, e, id, store.AskDrop); r.Had != (id == ids[0]) || ask(t, e, id, store.AskState).Had {
			t.Errorf("%s: got %+v, want had: %t, and no state after it", id, r, id == ids[0])
		}
	}
	forget.Store(true)
	ask(t, e, ids[0], store.AskDropAll)
	if got := tab.copy(); len(got) != 1 || got[ids[2]] == (store.Answer{}) {
		t.Errorf("published %+v, want an answer of %s", got, ids[2])
	}
	is := func(kind string, markers ...vehicle.ID) {
		t.Helper()
		got := stored(t, e, 0, ask(t, e, ids[0], kind).Checkpoint)
		want := derive.Packed{ids[2]: got[ids[2]]}
		for _, id := range markers {
			want[id] = ""
		}
		if !maps.Equal(got, want) || want[ids[2]] == "" {
			t.Errorf("%s: stored %q, want markers of %s", kind, got, markers)
		}
	}
	is(store.AskCheckpoint, ids[0], ids[1], ids[3])
	is(store.AskErase, ids[0], ids[1], ids[3])
	gone.Store(true)
	is(store.AskCheckpoint, ids[0], ids[1], ids[3])
	stop()
	defer start(t, c)()
	is(store.AskErase, ids[1], ids[3])
}

// A vehicle that keeps reporting is forgotten, erased, allowed, and forgotten again while samples
// are folded. None of its old data comes back, and another vehicle loses nothing.
func TestForget_WhileFolding(t *testing.T) {
	clock := testkit.NewClock(time.Now())
	c := store.Config{DataDir: t.TempDir(), Now: clock.Now}
	e, err := local.Open(t.Context(), local.Config{Config: c})
	testkit.NoError(t, err)
	n := storetest.Start(t, e, c) // closes it
	const gone, other, rounds = vehicle.ID("Gone"), vehicle.ID("Other"), 6
	now := time.Now().UnixMilli() - 1_000_000
	send := func(count int) {
		for range count {
			now += 100
			n.Put(t, storetest.Speed(other, now, 50), storetest.Speed(gone, now, 50))
		}
	}
	for range rounds {
		send(30)
		var forgetting sync.WaitGroup
		forgetting.Go(func() { n.MustForget(t, gone) })
		send(30)
		forgetting.Wait()
		if n.Knows(gone) {
			t.Error("the table when Forget returns: got the vehicle, want it gone")
		}
		now += 100
		n.Drive(t, now, gone, other)
		if _, ok := n.StateOf(t, gone); ok || n.Knows(gone) {
			t.Error("the vehicle after waiting samples: got it back, want it gone")
		}
		n.Erase(t, clock)
		n.MustAllow(t, gone)
		now += 100
		n.Drive(t, now, gone)
		s, _ := n.StateOf(t, gone)
		if want := vehicle.Observe(vehicle.State{}, storetest.Speed(gone, now, 50)); s.Time != want.Time || s.Traffic != want.Traffic {
			t.Errorf("after Allow: got %+v, want a state without a past", s)
		}
	}
	if s, ok := n.StateOf(t, other); !ok || int64(s.Time) != now-100 {
		t.Errorf("the other vehicle: got %+v, want a state of %d", s, now-100)
	}
}

// The pages of all answers have every vehicle as it was published, although new vehicles split
// buckets between the pages.
func TestAnswers_Pages(t *testing.T) {
	e := open(t, local.Config{})
	const before, after = 3000, 1000
	ids := cars(e, before+after, strings.Repeat("x", 240))
	c := config(t, e, nil)
	c.SetBucketBytes(2000)
	tab := follow(t, e)
	defer start(t, c)()
	add := func(ids []vehicle.ID) {
		var batch []vehicle.Sample
		for i, id := range ids {
			batch = append(batch, storetest.Speed(id, last, float64(i%100)))
		}
		put(t, e, batch...)
	}
	add(ids[:before])
	tab.wait(t, before, last)
	got, pages, want := make(map[vehicle.ID]store.Answer), 0, tab.copy()
	for from, more := 0, true; more; pages++ {
		r, err := e.Ask(t.Context(), 0, &store.Question{Kind: store.AskAnswers, From: from})
		testkit.NoError(t, err)
		testkit.NoError(t, store.DecodeAnswers(r.Answers, func(id vehicle.ID, a *store.Answer) { got[id] = *a }))
		if from, more = r.Next, r.Next != 0; pages == 0 {
			add(ids[before:])
			tab.wait(t, before+after, last)
		}
	}
	for id, a := range want {
		if got[id] != a {
			t.Errorf("%s: got %+v, want %+v", id, got[id], a)
		}
	}
	if pages < 3 {
		t.Errorf("got %d pages, want several", pages)
	}
}

// Restored states replace older ones, but no newer ones and none of a forgotten vehicle, and are
// published and stored.
func TestRestore(t *testing.T) {
	e := open(t, local.Config{})
	ids, c := cars(e, 4, ""), config(t, e, nil)
	c.Covers = func(id vehicle.ID) (bool, error) { return id == ids[3], nil }
	tab, stop := follow(t, e), start(t, c)
	put(t, e, storetest.Speed(ids[0], last, 50), storetest.Speed(ids[1], last+1, 50))
	tab.wait(t, 1, last+1)
	q := &store.Question{Kind: store.AskRestore}
	for _, id := range ids {
		s := vehicle.Observe(vehicle.State{}, storetest.Speed(id, last+1, 80))
		q.Entries = store.AppendEntry(q.Entries, store.Entry{Vehicle: id, State: codec.AppendState(nil, &s)})
	}
	r, err := e.Ask(t.Context(), 0, q)
	if err != nil || r.Restored != 2 || r.Kept != 1 {
		t.Fatalf("got %+v, %v; want 2 states restored and 1 kept", r, err)
	}
	tab.wait(t, 3, last+1)
	ask(t, e, ids[0], store.AskCheckpoint)
	stop()
	defer start(t, config(t, e, nil))()
	for i, id := range ids[:3] {
		want := map[bool]float32{true: 50, false: 80}[i == 1]
		if s, err := codec.DecodeState(ask(t, e, id, store.AskState).State); err != nil || s.Latest[signal.Speed].Value != want {
			t.Errorf("%s: got %+v, %v; want a speed of %v", id, s, err, want)
		}
	}
}

// The owner of a partition folds telemetry again in place of damaged checkpoints, and refuses the
// partition if that telemetry is gone. It stays until a checkpoint is stored that can be read.
func TestLoad_DamagedCheckpoints(t *testing.T) {
	for name, c := range map[string]struct {
		damaged int // newest checkpoints
		trim    bool
	}{"newest": {1, false}, "all": {9, false}, "newest, trimmed": {1, true}, "all, trimmed": {9, true}} {
		t.Run(name, func(t *testing.T) {
			e := open(t, local.Config{})
			id, want := cars(e, 1, "")[0], store.Reply{}
			follow(t, e)
			for i := range int64(3) {
				put(t, e, storetest.Speed(id, last+i, 50))
				stop := start(t, config(t, e, nil))
				want = ask(t, e, id, store.AskState)
				stop()
			}
			part := storetest.Take(t, e, 0)
			part.Close()
			all, newest := part.Stored()
			for _, is := range all[len(all)-min(c.damaged, len(all)):] {
				testkit.NoError(t, derive.Spoil(e, 0, is))
			}
			trimmed := func() bool {
				gone, err := e.TrimTo(t.Context(), []uint64{newest})
				testkit.NoError(t, err)
				return gone
			}
			if c.trim && !trimmed() {
				t.Fatal("the telemetry: got none of it trimmed, want some")
			}
			conf := config(t, e, func(p *spied) {
				first := true
				p.save = func(_ context.Context, is store.Checkpoint) error {
					if first && is.Seq > 0 && trimmed() {
						t.Error("telemetry that is folded again: got it trimmed, want it kept")
					}
					first = false
					return nil
				}
			})
			log := new(testkit.Buffer)
			conf.Log = slog.New(slog.NewTextHandler(log, nil))
			stop := start(t, conf)
			if c.trim {
				testkit.Await(t, "the partition is refused", func() bool {
					return log.Count("cannot read the states of partition 0") > 0 && log.Count("no longer stored") > 0
				})
				stop()
				return
			}
			for range 2 { // the second time from the checkpoint of the first
				if got := ask(t, e, id, store.AskState); string(got.State) != string(want.State) {
					t.Errorf("got %q, want %q", got.State, want.State)
				}
				stop()
				stop = start(t, conf)
			}
			stop()
			if n := log.Count("a checkpoint is damaged"); n != min(c.damaged, len(all)) {
				t.Errorf("%d damaged checkpoints were logged, want %d: %s", n, c.damaged, log)
			}
		})
	}
}
