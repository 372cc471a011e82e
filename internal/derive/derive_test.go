package derive

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/local"
	"example.org/carstate/internal/test/storetest"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// maxStates is the number of states that the engine stores in one batch.
const maxStates = 999

// spy records what a deriver reads and commits.
type spy struct {
	limit int // maximum number of states in a commit

	mu      sync.Mutex
	read    map[int]map[uint64][]vehicle.Sample // partition → sequence → samples
	commits int
	errs    []error // errors of commits, and of reads of a partition that another owner has taken
	fail    int     // how many of the next commits fail
}

func newSpy() *spy {
	return &spy{limit: maxStates, read: make(map[int]map[uint64][]vehicle.Sample)}
}

// spied is a partition that records its reads and commits in a spy.
type spied struct {
	store.Partition
	number int
	spy    *spy
}

func (p spied) Next(ctx context.Context) (uint64, []vehicle.Sample, error) {
	seq, samples, err := p.Partition.Next(ctx)
	if err == nil {
		p.spy.mu.Lock()
		defer p.spy.mu.Unlock()
		if p.spy.read[p.number] == nil {
			p.spy.read[p.number] = make(map[uint64][]vehicle.Sample)
		}
		p.spy.read[p.number][seq] = samples
	} else if errors.Is(err, store.ErrFenced) {
		p.spy.mu.Lock()
		p.spy.errs = append(p.spy.errs, err)
		p.spy.mu.Unlock()
	}
	return seq, samples, err
}

var errInjected = errors.New("the disk is on fire")

func (p spied) Commit(
	ctx context.Context, seq uint64, states map[vehicle.ID][]byte, more bool,
) error {
	p.spy.mu.Lock()
	p.spy.commits++
	fail := p.spy.fail > 0
	if fail {
		p.spy.fail--
	}
	p.spy.mu.Unlock()
	if fail {
		return errInjected
	}
	err := p.Partition.Commit(ctx, seq, states, more)
	if len(states) > p.spy.limit {
		err = fmt.Errorf("a commit of %d states", len(states))
	}
	if err != nil {
		p.spy.mu.Lock()
		p.spy.errs = append(p.spy.errs, err)
		p.spy.mu.Unlock()
	}
	return err
}

// expected folds all samples that were read, in the order in which they were stored, and returns
// the states.
func (s *spy) expected() map[vehicle.ID]vehicle.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	states := make(map[vehicle.ID]vehicle.State)
	for _, commits := range s.read {
		var order []uint64
		for seq := range commits {
			order = append(order, seq)
		}
		slices.Sort(order)
		for _, seq := range order {
			for _, x := range commits[seq] {
				states[x.Vehicle] = vehicle.Observe(states[x.Vehicle], x)
			}
		}
	}
	return states
}

// checkErrors checks that nothing has failed except by the end of its context. That error is
// permitted, because a test may stop a deriver when it sees the last state, before the commit of
// this state has returned.
func (s *spy) checkErrors(t *testing.T) {
	t.Helper()
	for _, err := range s.errs {
		if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	}
}

// world is a real engine, and take, by which a deriver takes ownership of a partition of it. Tests
// may replace take.
type world struct {
	*local.Engine
	take func(ctx context.Context, p int) (store.Partition, error)
}

func newWorld(t *testing.T) world {
	e := openStore(t)
	return world{e, func(ctx context.Context, p int) (store.Partition, error) {
		return e.Take(ctx, p, "node", store.Anyone)
	}}
}

// openStore opens a local store. It has several partitions, so that the tests notice if derive
// mixes them up.
func openStore(t *testing.T) *local.Engine {
	t.Helper()
	e, err := local.Open(t.Context(), local.Config{DataDir: t.TempDir(), Partitions: 4})
	return testkit.Opened(t, e, err)
}

// deriver returns a deriver of all partitions. Its reads and commits are recorded in s.
func (w world) deriver(s *spy) *Deriver {
	return New(Config{
		Partitions: w.Partitions(),
		MaxStates:  s.limit,
		Take: func(ctx context.Context, p int) (store.Partition, error) {
			part, err := w.take(ctx, p)
			if err != nil {
				return nil, err
			}
			return spied{part, p, s}, nil
		},
	})
}

// start runs a deriver until stop is called. stop returns once the deriver has ended.
func start(t *testing.T, d *Deriver) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { d.Run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// table is a copy of all states, maintained from the feed.
type table struct {
	mu     sync.Mutex
	states map[vehicle.ID]vehicle.State
}

func follow(t *testing.T, e *local.Engine) *table {
	t.Helper()
	tab := &table{states: make(map[vehicle.ID]vehicle.State)}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	caughtUp := make(chan struct{})
	running.Go(func() {
		err := e.FollowStates(ctx, func(id vehicle.ID, s *vehicle.State) {
			tab.mu.Lock()
			defer tab.mu.Unlock()
			if tab.states[id] = *s; *s == (vehicle.State{}) {
				delete(tab.states, id) // the vehicle was forgotten
			}
		}, func() { close(caughtUp) })
		if err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	<-caughtUp // wait, because the feed does not repeat answers given before it has caught up
	return tab
}

// wait waits until exactly n vehicles in the table have a state whose time is at, and returns a
// copy of the table.
func (tab *table) wait(t *testing.T, n int, at vehicle.UnixMilli) (copied map[vehicle.ID]vehicle.State) {
	t.Helper()
	testkit.Await(t, fmt.Sprintf("%d vehicles have a state of %d", n, at), func() bool {
		tab.mu.Lock()
		defer tab.mu.Unlock()
		there := 0
		for _, s := range tab.states {
			if s.Time == at {
				there++
			}
		}
		copied = maps.Clone(tab.states)
		return there == n
	})
	return copied
}

func equal(t *testing.T, got, want map[vehicle.ID]vehicle.State) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("got %d states, want %d", len(got), len(want))
	}
	for id, s := range want {
		if got[id] != s {
			t.Errorf("%s: got %+v, want %+v", id, got[id], s)
		}
	}
}

// last is the time of each vehicle's last sample.
const last = 1 << 40

// traffic stores random batches of samples, some of them late or repeated, and at the end one
// sample of each vehicle with the time last. It returns the number of vehicles.
func traffic(t *testing.T, e *local.Engine, writers, vehicles, batches int) int {
	var running sync.WaitGroup
	for w := range writers {
		running.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(w), 7))
			now := int64(1_000_000)
			var before []vehicle.Sample
			id := func(v int) vehicle.ID { return vehicle.ID(fmt.Sprintf("w%dcar%d", w, v)) }
			for range batches {
				var batch []vehicle.Sample
				for range 1 + rnd.IntN(60) {
					now += rnd.Int64N(2000)
					x := storetest.Speed(id(rnd.IntN(vehicles)), now, rnd.Float64()*120)
					switch rnd.IntN(5) {
					case 0:
						x.Time -= vehicle.UnixMilli(rnd.Int64N(100_000)) // a late sample
					case 1:
						if len(before) > 0 {
							x = before[rnd.IntN(len(before))] // a repeated sample
						}
					}
					batch = append(batch, x)
				}
				before = batch
				if err := e.Append(t.Context(), batch); err != nil {
					t.Error(err)
					return
				}
			}
			var batch []vehicle.Sample
			for v := range vehicles {
				batch = append(batch, storetest.Speed(id(v), last, 33))
			}
			if err := e.Append(t.Context(), batch); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	return writers * vehicles
}

// TestRun_RestartsLoseNothing checks that restarts at random moments neither lose a sample nor
// count one twice.
func TestRun_RestartsLoseNothing(t *testing.T) {
	s, w := newSpy(), newWorld(t)
	tab := follow(t, w.Engine)
	ctx, finished := context.WithCancel(t.Context())
	defer finished()
	var running sync.WaitGroup
	restarts := 0
	committed := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.commits - len(s.errs)
	}
	running.Go(func() {
		const short = 15 * time.Millisecond
		for most := short; ctx.Err() == nil; restarts++ {
			before := committed()
			life, cancel := context.WithTimeout(ctx, rand.N(most))
			w.deriver(s).Run(life)
			cancel()
			// On a busy machine a run may be too short for a single commit.
			if most *= 2; committed() > before {
				most = short
			}
		}
	})
	n := traffic(t, w.Engine, 4, 50, 60)
	got := tab.wait(t, n, last)
	finished()
	running.Wait()
	if restarts < 5 {
		t.Errorf("only %d restarts", restarts)
	}
	equal(t, got, s.expected())
	s.checkErrors(t)
}

// TestRun_FailedCommits checks that after a failed commit, the samples are folded again, so that
// the states are those of all samples.
func TestRun_FailedCommits(t *testing.T) {
	s, w := newSpy(), newWorld(t)
	s.fail = 3
	tab := follow(t, w.Engine)
	d := w.deriver(s)
	stop := start(t, d)
	vehicles := traffic(t, w.Engine, 2, 20, 20)
	got := tab.wait(t, vehicles, last)
	stop()
	equal(t, got, s.expected())
	s.checkErrors(t)
	if s.fail != 0 || d.Samples() == 0 {
		t.Errorf("%d injected failures did not occur, %d samples were counted", s.fail, d.Samples())
	}
}

// TestTakeover_FencesFirstOwner checks that once a second deriver has taken the partitions, the
// first one stores nothing more, and the states are those of all samples.
func TestTakeover_FencesFirstOwner(t *testing.T) {
	first, second, w := newSpy(), newSpy(), newWorld(t)
	tab := follow(t, w.Engine)
	// The first deriver takes each partition once, and never again.
	w1 := w
	once := make([]sync.Once, w.Partitions())
	w1.take = func(ctx context.Context, p int) (part store.Partition, err error) {
		again := true
		once[p].Do(func() {
			again = false
			part, err = w.take(ctx, p)
		})
		if again {
			return nil, silence(ctx)
		}
		return part, err
	}
	stopFirst := start(t, w1.deriver(first))
	vehicles := traffic(t, w.Engine, 2, 20, 10)
	tab.wait(t, vehicles, last)

	taken := make(chan struct{}, w.Partitions())
	w2 := w
	w2.take = func(ctx context.Context, p int) (store.Partition, error) {
		part, err := w.take(ctx, p)
		taken <- struct{}{}
		return part, err
	}
	stopSecond := start(t, w2.deriver(second))
	for range w.Partitions() {
		<-taken
	}
	first.mu.Lock()
	reads := first.read // collects the reads of both derivers, because the second continues where the first stopped
	first.mu.Unlock()
	const later = last + 1000
	var batch []vehicle.Sample
	for id := range first.expected() {
		batch = append(batch, storetest.Speed(id, later, 66))
	}
	if err := w.Append(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	got := tab.wait(t, vehicles, later)
	testkit.Await(t, "the first deriver is fenced out of every partition", func() bool {
		first.mu.Lock()
		defer first.mu.Unlock()
		return len(first.errs) >= w.Partitions()
	})
	stopFirst()
	stopSecond()
	for _, err := range first.errs {
		if !strings.Contains(err.Error(), "another node has taken") {
			t.Error(err)
		}
	}
	for p, commits := range second.read {
		maps.Copy(reads[p], commits)
	}
	equal(t, got, first.expected())
}

// TestManyDirtyVehicles checks that if more states have changed than one commit may hold, they are
// stored in several commits.
func TestManyDirtyVehicles(t *testing.T) {
	s, w := newSpy(), newWorld(t)
	s.limit = 250
	const vehicles, each = 4000, 100
	for v := 0; v < vehicles; v += each {
		var batch []vehicle.Sample
		for i := range each {
			batch = append(batch, storetest.Speed(vehicle.ID(fmt.Sprintf("car%d", v+i)), last, 50))
		}
		if err := w.Append(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	tab := follow(t, w.Engine)
	d := w.deriver(s)
	stop := start(t, d)
	got := tab.wait(t, vehicles, last)
	stop()
	equal(t, got, s.expected())
	s.checkErrors(t)
	if s.commits < vehicles/s.limit {
		t.Errorf("%d commits for %d vehicles", s.commits, vehicles)
	}
}

// TestRun_EndsWithContext checks that a deriver returns as soon as its context ends, whether it is
// idle, takes a partition, or pauses after an error.
func TestRun_EndsWithContext(t *testing.T) {
	w := newWorld(t)
	blocked := func(ctx context.Context, _ int) (store.Partition, error) { return nil, silence(ctx) }
	refused := func(context.Context, int) (store.Partition, error) { return nil, errInjected }
	for name, take := range map[string]func(context.Context, int) (store.Partition, error){
		"idle": w.take, "taking": blocked, "resting": refused,
	} {
		t.Run(name, func(t *testing.T) {
			reached := make(chan struct{}, 1)
			w := world{w.Engine, func(ctx context.Context, p int) (store.Partition, error) {
				select {
				case reached <- struct{}{}:
				default:
				}
				return take(ctx, p)
			}}
			stop := start(t, w.deriver(newSpy()))
			<-reached
			stop() // returns once the deriver has ended
		})
	}
}

// TestCorrectedClock folds a sample of a car whose clock was a day ahead and then one of its
// corrected clock, long after both were stored, with a stop in between or without. The state must
// be that of the corrected clock, because a fold reads no clock but that of the log.
func TestCorrectedClock(t *testing.T) {
	const car = "car"
	then := time.UnixMilli(1e12)
	for name, stop := range map[string]bool{"ReplayOfReset": false, "LateCorrection": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, err := local.Open(t.Context(), local.Config{DataDir: t.TempDir(), Now: func() time.Time { return then }})
			w := world{Engine: testkit.Opened(t, e, err)}
			w.take = func(ctx context.Context, p int) (store.Partition, error) {
				return w.Take(ctx, p, "node", store.Anyone)
			}
			foldUntil := func(at time.Time) {
				defer start(t, w.deriver(newSpy()))()
				testkit.Await(t, "the sample is folded", func() bool {
					s, ok, err := store.State(t.Context(), w.Engine, car)
					return err == nil && ok && s.Time == vehicle.At(at)
				})
			}
			ahead := then.Add(24 * time.Hour)
			testkit.NoError(t, w.Append(t.Context(), []vehicle.Sample{sampleOf(car, vehicle.At(ahead))}))
			if stop {
				foldUntil(ahead)
			}
			testkit.NoError(t, w.Append(t.Context(), []vehicle.Sample{sampleOf(car, vehicle.At(then))}))
			foldUntil(then)
		})
	}
}
