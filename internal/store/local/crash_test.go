package local

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"carstate/internal/store"
	"carstate/internal/store/codec"
	"carstate/internal/testkit"
	"carstate/internal/vehicle"
)

var (
	powerCuts = flag.Int("powercuts", 10_000, "power cuts of TestPowerCuts")
	seed      = flag.Uint64("seed", 0, "first seed of the tests of failure; 0: by chance")
)

// workload writes telemetry, states and records, which depend only on a seed, and notes what the
// engine has acknowledged and answered.
type workload struct {
	seed uint64
	e    *Engine

	mu sync.Mutex // guards the fields below
	// sent is what was passed to the engine, and acked is what the engine has acknowledged.
	sent  promise
	acked promise
	shown [workVehicles]int64 // newest event time of an answer, by vehicle
}

// promise is the number of samples of each vehicle, and the last value of the workload's counter.
type promise struct {
	samples [workVehicles]int
	counter uint64
}

const (
	workVehicles = 12
	workSamples  = 400 // per vehicle
	counterName  = "token.counter"
)

// workSample returns the sample number n of vehicle v.
func workSample(seed uint64, v, n int) vehicle.Sample {
	r := rand.New(rand.NewPCG(seed, uint64(v)<<32|uint64(n)))
	return sample(fmt.Sprintf("vehicle%d", v), int64(n+1)*1000, 120*r.Float64())
}

// foldsOf returns the states of vehicle v: element n is the state after n of its samples.
func foldsOf(seed uint64, v int) []vehicle.State {
	states := make([]vehicle.State, 1, workSamples+1)
	for n := range workSamples {
		states = append(states, vehicle.Observe(states[n], workSample(seed, v, n)))
	}
	return states
}

// promised returns what the engine has acknowledged and answered so far.
func (w *workload) promised() (promise, [workVehicles]int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.acked, w.shown
}

// run appends samples, folds, and updates the counter record. It returns when everything is done,
// the context ends, or the engine refuses a write.
func (w *workload) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var working, folding sync.WaitGroup
	// The fold ends with the context or with the engine.
	folding.Go(func() { _, _ = w.fold(ctx, math.MaxUint64, rand.New(rand.NewPCG(w.seed, 1))) })
	working.Go(func() { w.append(ctx, rand.New(rand.NewPCG(w.seed, 2))) })
	working.Go(func() { w.count(ctx) })
	working.Wait()
	cancel()
	folding.Wait()
}

func (w *workload) append(ctx context.Context, r *rand.Rand) {
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
		if w.e.Append(ctx, batch) != nil {
			return
		}
		w.mu.Lock()
		w.acked.samples = next
		w.mu.Unlock()
	}
}

func (w *workload) count(ctx context.Context) {
	for n := uint64(1); n <= workSamples; n++ {
		record := codec.Seal(counterName, binary.BigEndian.AppendUint64([]byte{0}, n))
		w.mu.Lock()
		w.sent.counter = n
		w.mu.Unlock()
		if _, err := w.e.Store(ctx, codec.Tokens, []store.Write{{Subject: counterName, Record: record}}); err != nil {
			return
		}
		w.mu.Lock()
		w.acked.counter = n
		w.mu.Unlock()
	}
}

// fold folds the partition up to the sequence upTo, or until the context ends. It commits the
// states at random times, and returns the newest state of each vehicle that it has folded or read.
func (w *workload) fold(ctx context.Context, upTo uint64, r *rand.Rand) (map[vehicle.ID]vehicle.State, error) {
	p, err := w.e.Take(ctx, 0, "folder", func(string) bool { return true })
	if err != nil {
		return nil, err
	}
	defer p.Close()
	known, dirty := make(map[vehicle.ID]vehicle.State), make(map[vehicle.ID]*vehicle.State)
	for v := range workVehicles {
		id := vehicle.ID(fmt.Sprintf("vehicle%d", v))
		if err := p.Load(ctx, []vehicle.ID{id}, func(_ int, s vehicle.State) { known[id] = s }); err != nil {
			return nil, err
		}
	}
	for seq := w.e.partitions[0].cursor.Load(); seq < upTo; {
		var samples []vehicle.Sample
		if seq, samples, err = p.Next(ctx); err != nil {
			return nil, err
		}
		for _, x := range samples {
			known[x.Vehicle] = vehicle.Observe(known[x.Vehicle], x)
			dirty[x.Vehicle] = new(known[x.Vehicle])
		}
		w.mu.Lock()
		for v := range workVehicles {
			w.shown[v] = int64(known[vehicle.ID(fmt.Sprintf("vehicle%d", v))].Time)
		}
		w.mu.Unlock()
		if r.IntN(4) == 0 || seq == upTo {
			if err := p.Commit(ctx, seq, dirty); err != nil {
				return nil, err
			}
			clear(dirty)
		}
	}
	return known, nil
}

// small returns a configuration in which the tables of the store are so small that a workload
// writes many of them.
func small(fs vfs.FS) Config {
	return Config{FS: fs, DataDir: "/data", MemoryBytes: 1 << 19}
}

// check opens the engine and compares the data that it holds with what was promised.
func check(
	ctx context.Context, fs vfs.FS, seed uint64, folds *[workVehicles][]vehicle.State, acked promise,
	shown [workVehicles]int64,
) error {
	e, err := Open(ctx, small(fs))
	if err != nil {
		return fmt.Errorf("it does not open: %w", err)
	}
	w := &workload{seed: seed, e: e}
	states, err := w.fold(ctx, e.partitions[0].stored(), rand.New(rand.NewPCG(seed, 3)))
	if err != nil {
		return errors.Join(fmt.Errorf("it does not fold: %w", err), e.Close())
	}
	for v := range workVehicles {
		s := states[vehicle.ID(fmt.Sprintf("vehicle%d", v))]
		n := int(s.Time) / 1000
		switch {
		case n < acked.samples[v]:
			err = fmt.Errorf("vehicle %d has %d samples of %d that were acknowledged", v, n, acked.samples[v])
		case int64(s.Time) < shown[v]:
			err = fmt.Errorf("vehicle %d was judged at %d and is judged at %d now", v, shown[v], s.Time)
		case s != folds[v][n]:
			err = fmt.Errorf("vehicle %d has a state after %d samples that is not theirs", v, n)
		}
		if err != nil {
			return errors.Join(err, e.Close())
		}
	}
	r, err := e.Last(ctx, codec.Tokens, counterName)
	if err == nil && r.Seq != 0 {
		if n := binary.BigEndian.Uint64(r.Body); n < acked.counter {
			err = fmt.Errorf("the counter is %d, and %d was acknowledged", n, acked.counter)
		}
	} else if err == nil && acked.counter > 0 {
		err = fmt.Errorf("the counter is lost, and %d was acknowledged", acked.counter)
	}
	return errors.Join(err, e.Close())
}

// TestPowerCuts checks that after a power cut a store holds all data that it has acknowledged or
// answered from. It simulates a power cut before every sync of a workload. Data that was not synced
// is lost in full, in part, or not at all.
func TestPowerCuts(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	first := *seed
	if first == 0 {
		first = rand.Uint64()
	}
	t.Logf("-seed %d", first)
	cuts := *powerCuts
	switch {
	case raceDetector:
		cuts /= 100 // make test runs all of them without the race detector
	case testing.Short():
		cuts /= 20
	}
	var done atomic.Int64
	for s := first; done.Load() < int64(cuts) && !t.Failed(); s++ {
		cutEverySync(ctx, t, s, &done)
	}
	t.Logf("done %d power cuts", done.Load())
}

func cutEverySync(ctx context.Context, t *testing.T, seed uint64, done *atomic.Int64) {
	var folds [workVehicles][]vehicle.State
	for v := range folds {
		folds[v] = foldsOf(seed, v)
	}
	mem := vfs.NewCrashableMem()
	w := &workload{seed: seed}
	var checking sync.WaitGroup
	places := make(chan struct{}, runtime.GOMAXPROCS(0))
	r := rand.New(rand.NewPCG(seed, 4))
	var mu sync.Mutex // one power cut at a time
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
		default:
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		acked, shown := w.promised()
		clone := mem.CrashClone(vfs.CrashCloneCfg{
			UnsyncedDataPercent: []int{0, 20, 50, 100}[r.IntN(4)],
			RNG:                 rand.New(rand.NewPCG(seed, r.Uint64())),
		})
		places <- struct{}{}
		checking.Go(func() {
			defer func() { <-places }()
			if err := check(ctx, clone, seed, &folds, acked, shown); err != nil {
				t.Errorf("-seed %d: power cut %d: %v", seed, done.Load(), err)
			}
			done.Add(1)
		})
		return nil
	}))
	e, err := Open(ctx, small(fs))
	if err != nil {
		t.Fatal(err)
	}
	w.e = e
	w.run(ctx)
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	checking.Wait()
}
