package local

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"example.org/carstate/internal/derive"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

var seed = flag.Uint64("seed", 0, "first seed of the tests of failure; 0: by chance")

// workload writes what depends only on a seed, and notes what was acknowledged and answered.
type workload struct {
	seed  uint64
	e     *Engine
	ticks atomic.Int64
	log   testkit.Buffer

	mu sync.Mutex // guards the fields below
	// passed to the engine, and acknowledged by it
	sent  promise
	acked promise
	shown [workVehicles]store.Answer // what queries get
}

type promise struct {
	samples [workVehicles]int
	counter uint64
}

// After a crash, a store must hold at least what was acked and at most what was sent, and no states
// older than the answers shown.
type promises struct {
	acked, sent promise
	shown       [workVehicles]store.Answer
}

const (
	workVehicles = 12
	workSamples  = 400
	workTicks    = 100 // retention of the telemetry of a workload, see tick
	counterName  = "token.counter"
)

func workID(v int) vehicle.ID { return vehicle.ID(fmt.Sprintf("vehicle%d", v)) }

func workSample(seed uint64, v, n int) vehicle.Sample {
	r := rand.New(rand.NewPCG(seed, uint64(v)<<32|uint64(n)))
	return sample(string(workID(v)), int64(n+1)*1000, 120*r.Float64())
}

// element n is the state after n samples
func allFolds(seed uint64) *[workVehicles][]vehicle.State {
	var folds [workVehicles][]vehicle.State
	for v := range folds {
		folds[v] = make([]vehicle.State, 1, workSamples+1)
		for n := range workSamples {
			folds[v] = append(folds[v], vehicle.Observe(folds[v][n], workSample(seed, v, n)))
		}
	}
	return &folds
}

// Every second seed has two partitions.
func (w *workload) open(ctx context.Context, fs vfs.FS) (err error) {
	c := small(fs)
	c.Partitions, c.Retention, c.Now = 1+int(w.seed%2), workTicks*time.Second, w.tick
	c.Log = w.logger()
	w.e, err = Open(ctx, c)
	return err
}

func (w *workload) logger() *slog.Logger { return slog.New(slog.NewTextHandler(&w.log, nil)) }

// tick advances the clock by a second, mostly for a commit, so telemetry is soon trimmed.
func (w *workload) tick() time.Time { return time.Unix(workSamples+w.ticks.Add(1), 0) }

func (w *workload) promised() promises {
	w.mu.Lock()
	defer w.mu.Unlock()
	return promises{w.acked, w.sent, w.shown}
}

func (w *workload) put(id vehicle.ID, a *store.Answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for v := range workVehicles {
		if workID(v) == id {
			w.shown[v] = *a
		}
	}
}

func (w *workload) run(ctx context.Context) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	var working, folding sync.WaitGroup
	var errs [3]error
	folding.Go(func() {
		if err := w.fold(ctx, func() {}); !errors.Is(err, context.Canceled) {
			errs[0] = err
			end() // or the others would wait
		}
	})
	working.Go(func() { errs[1] = w.append(ctx, rand.New(rand.NewPCG(w.seed, 2))) })
	working.Go(func() { errs[2] = w.count(ctx, rand.New(rand.NewPCG(w.seed, 8))) })
	working.Wait()
	end()
	folding.Wait()
	return errors.Join(errs[:]...)
}

func (w *workload) append(ctx context.Context, r *rand.Rand) error {
	for left := workVehicles * workSamples; left > 0; {
		var batch []vehicle.Sample
		next := w.sent.samples
		for range 1 + r.IntN(30) {
			if v := r.IntN(workVehicles); next[v] < workSamples {
				batch = append(batch, workSample(w.seed, v, next[v]))
				next[v]++
			}
		}
		if len(batch) == 0 {
			continue
		}
		left -= len(batch)
		w.mu.Lock()
		w.sent.samples = next
		w.mu.Unlock()
		err := w.e.Append(ctx, batch)
		for errors.Is(err, store.ErrBacklog) && ctx.Err() == nil {
			time.Sleep(10 * time.Millisecond)
			err = w.e.Append(ctx, batch)
		}
		if err != nil {
			return err
		}
		w.mu.Lock()
		w.acked.samples = next
		w.mu.Unlock()
	}
	return nil
}

// Between the updates, count trims, stores all states, or erases.
func (w *workload) count(ctx context.Context, r *rand.Rand) error {
	ask := func(kind string) error {
		_, err := w.e.Ask(ctx, r.IntN(w.e.Partitions()), &store.Question{Kind: kind})
		if errors.Is(err, store.ErrNoOwner) {
			return nil
		}
		return err
	}
	for n := uint64(1); n <= workSamples; n++ {
		record := codec.Seal(counterName, binary.BigEndian.AppendUint64([]byte{0}, n))
		w.mu.Lock()
		w.sent.counter = n
		w.mu.Unlock()
		once := fmt.Sprintf("token.%d", n)
		writes := []store.Write{{Subject: counterName, Record: record}, {Subject: once, Record: codec.Seal(once, []byte{0})}}
		if _, err := w.e.Store(ctx, codec.Tokens, writes); err != nil {
			return err
		}
		w.mu.Lock()
		w.acked.counter = n
		w.mu.Unlock()
		err := w.await(func() error {
			switch k := r.IntN(200); {
			case k == 0:
				return w.e.Erased(ctx)
			case k == 1:
				return ask(store.AskErase)
			case k < 4:
				return ask(store.AskCheckpoint)
			case k < 10:
				return w.e.trim()
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Once the store cannot be written, do may never return.
func (w *workload) await(do func() error) error {
	done := make(chan error, 1)
	w.e.running.Go(func() { done <- do() }) // Close waits for it, as for the product's own trim
	for {
		select {
		case err := <-done:
			return err
		case <-time.After(10 * time.Millisecond):
			if err := w.e.Writable(); err != nil {
				return err
			}
		}
	}
}

func deriver(e *Engine, checkpoint time.Duration, log *slog.Logger) *derive.Deriver {
	return derive.New(derive.Config{
		Partitions: e.Partitions(), Records: e, Log: log, Checkpoint: checkpoint,
		Take: func(ctx context.Context, p int, owner store.Owner) (store.Partition, error) {
			return e.Take(ctx, p, "folder", owner, store.Anyone)
		},
	})
}

// fold calls ready when the node would become ready.
func (w *workload) fold(ctx context.Context, ready func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	d := deriver(w.e, time.Duration(1+w.seed%30)*time.Millisecond, w.logger())
	var folding sync.WaitGroup
	folding.Go(func() { d.Run(ctx) })
	folding.Go(func() { _ = w.e.FollowAnswers(ctx, w.put, ready) })
	select {
	case <-ctx.Done():
	case err := <-w.e.Failed():
		cancel(err)
	}
	folding.Wait()
	return context.Cause(ctx)
}

func small(fs vfs.FS) Config { return Config{FS: fs, DataDir: "/data", MemoryBytes: 1 << 19} }

// check compares what the node has, once all is folded, with what was promised.
func check(
	ctx context.Context, fs vfs.FS, seed uint64, folds *[workVehicles][]vehicle.State, p promises,
) (log string, err error) {
	w := &workload{seed: seed}
	if err := w.open(ctx, fs); err != nil {
		return "", fmt.Errorf("it does not open: %w", err)
	}
	defer func() { err = errors.Join(err, w.e.Close()) }()
	folding, cancel := context.WithTimeout(ctx, testkit.Patience)
	defer cancel()
	var differs error
	if err := w.fold(folding, func() { differs = w.compare(ctx, folds, p); cancel() }); !errors.Is(err, context.Canceled) {
		return "", fmt.Errorf("it does not fold: %w: %s", err, &w.log)
	}
	return w.log.String(), differs
}

func (w *workload) compare(ctx context.Context, folds *[workVehicles][]vehicle.State, p promises) error {
	ready := w.promised().shown
	for v := range workVehicles {
		s, _, err := store.State(ctx, w.e, workID(v))
		if err != nil {
			return fmt.Errorf("vehicle %d cannot be read: %w", v, err)
		}
		n, answer := int(s.Time)/1000, store.Answer{}
		if n > 0 {
			answer = store.AnswerOf(&s)
		}
		switch {
		case n > p.sent.samples[v]:
			return fmt.Errorf("vehicle %d has %d samples of %d that were sent", v, n, p.sent.samples[v])
		case s != folds[v][n]:
			return fmt.Errorf("vehicle %d has a state after %d samples that is not theirs", v, n)
		case n < p.acked.samples[v]:
			return fmt.Errorf("vehicle %d has %d samples of %d that were acknowledged", v, n, p.acked.samples[v])
		case ready[v] != answer:
			return fmt.Errorf("vehicle %d is judged %+v when the node is ready, want %+v", v, ready[v], answer)
		case ready[v].Driving.Time < p.shown[v].Driving.Time:
			return fmt.Errorf("vehicle %d was judged at %d and is judged at %d when the node is ready", v,
				p.shown[v].Driving.Time, ready[v].Driving.Time)
		}
	}
	r, err := w.e.Last(ctx, codec.Tokens, counterName)
	if err != nil {
		return err
	}
	counter := uint64(0)
	if r.Seq != 0 {
		counter = binary.BigEndian.Uint64(r.Body)
	}
	switch {
	case counter > p.sent.counter:
		return fmt.Errorf("the counter is %d, and %d was sent", counter, p.sent.counter)
	case counter < p.acked.counter:
		return fmt.Errorf("the counter is %d, and %d was acknowledged", counter, p.acked.counter)
	}
	others := uint64(0)
	err = w.e.Scan(ctx, codec.Tokens, []string{"token.*"}, func(store.Record) error { others++; return nil })
	if err == nil && others != counter+min(1, counter) {
		err = fmt.Errorf("there are %d records of %d that were acknowledged", others, counter+min(1, counter))
	}
	return err
}

// Few enough for the race detector.
func TestSomePowerCuts(t *testing.T) { cutPower(t, 50, 30) }
func TestSomeFullDisks(t *testing.T) { fillDisks(t, 15) }

// Unsynced data is lost in full, in part, or not at all. Of a workload, every n-th sync is cut.
func cutPower(t *testing.T, cuts, every int64) {
	t.Parallel()
	ctx := testkit.Context(t)
	var done atomic.Int64
	for s := firstSeed(t); done.Load() < cuts && !t.Failed(); s++ {
		cutSyncs(ctx, t, s, every, &done)
	}
	t.Logf("done %d power cuts", done.Load())
}

// cutSyncs cuts the power before every n-th sync of a workload.
func cutSyncs(ctx context.Context, t *testing.T, seed uint64, every int64, done *atomic.Int64) {
	folds := allFolds(seed)
	mem := vfs.NewCrashableMem()
	w := &workload{seed: seed}
	var checking sync.WaitGroup
	places := make(chan struct{}, runtime.GOMAXPROCS(0))
	r := rand.New(rand.NewPCG(seed, 4))
	var mu sync.Mutex
	var syncs int64 // guarded by mu
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
		default:
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if syncs++; syncs%every != 0 {
			return nil
		}
		p := w.promised()
		clone := mem.CrashClone(vfs.CrashCloneCfg{
			UnsyncedDataPercent: []int{0, 20, 50, 100}[r.IntN(4)],
			RNG:                 rand.New(rand.NewPCG(seed, r.Uint64())),
		})
		p.sent = w.promised().sent
		places <- struct{}{}
		checking.Go(func() {
			defer func() { <-places }()
			if _, err := check(ctx, clone, seed, folds, p); err != nil {
				t.Errorf("-seed %d: power cut %d: %v", seed, done.Load(), err)
			}
			done.Add(1)
		})
		return nil
	}))
	testkit.NoError(t, w.open(ctx, fs))
	if err := errors.Join(w.run(ctx), w.e.Close()); err != nil {
		t.Errorf("-seed %d: the workload: %v", seed, err)
	}
	checking.Wait()
}
