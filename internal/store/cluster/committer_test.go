package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/store/engine"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

func commits(t *testing.T, e *Engine, n int) (all [][]vehicle.Sample) {
	t.Helper()
	p := take(t, e, 0)
	for got := 0; got < n; {
		_, samples := next(t, p)
		got, all = got+len(samples), append(all, samples)
	}
	return all
}

func TestLoneSample(t *testing.T) {
	t.Parallel()
	e := open(t, Config{})
	const n = 50
	for i := range n {
		storeSample(t, e, int64(i+1))
	}
	if got := telemetry(t, e).Msgs; got != n {
		t.Errorf("samples one after the other: got %d commits, want %d", got, n)
	}
}

func TestSharedCommits(t *testing.T) {
	t.Parallel()
	e := open(t, Config{})
	const writers, each = 64, 50
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				if err := e.Append(t.Context(),
					[]vehicle.Sample{sample(fmt.Sprintf("car%d", w), int64(i+1))}); err != nil {
					t.Errorf("Append: got %v, want no error", err)
					return
				}
			}
		})
	}
	wg.Wait()
	if got := telemetry(t, e).Msgs; got > writers*each/4 {
		t.Errorf("got %d commits for %d samples, want at most %d", got, writers*each, writers*each/4)
	}
	commits(t, e, writers*each)
}

// Each message must be below the limit of NATS.
func TestLargeBatches(t *testing.T) {
	t.Parallel()
	fat := strings.Repeat("v", vehicle.MaxReportingID)
	codes := make([]signal.TroubleCode, 65535)
	for i := range codes {
		codes[i] = signal.TroubleCode{'P', '0', '1', '2', byte('0' + i%10)}
	}
	cases := map[string]struct {
		n    int
		make func(i int) vehicle.Sample
	}{
		"10,000 small ones": {10_000, func(i int) vehicle.Sample { return sample("car", int64(i+1)) }},
		"long names":        {5_000, func(i int) vehicle.Sample { return sample(fat, int64(i+1)) }},
		"the largest there are": {12, func(i int) vehicle.Sample {
			x := sample(fat, int64(i+1))
			testkit.NoError(t, x.SetCodes(codes))
			return x
		}},
		"large ones among small ones": {2_000, func(i int) vehicle.Sample {
			x := sample("car", int64(i+1))
			if i%100 == 99 {
				if err := x.SetCodes(codes[:8192]); err != nil { // the number of codes that fits into 64 KiB of JSON
					t.Fatalf("SetCodes: got %v, want no error", err)
				}
			}
			return x
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := open(t, Config{})
			batch := make([]vehicle.Sample, c.n)
			for i := range batch {
				batch[i] = c.make(i)
			}
			testkit.NoError(t, e.Append(t.Context(), batch))
			at := signal.UnixMilli(0)
			for _, samples := range commits(t, e, c.n) {
				if len(samples) > engine.ChunkSamples {
					t.Errorf("the commit: got %d samples, want at most %d", len(samples), engine.ChunkSamples)
				}
				for _, x := range samples {
					if at++; x.Time != at {
						t.Fatalf("the sample: got that of %d, want %d", x.Time, at)
					}
					if want := batch[at-1]; x.Vehicle != want.Vehicle || len(x.Codes) != len(want.Codes) {
						t.Fatalf("sample %d: got %s with %d codes, want %s with %d", at, x.Vehicle, len(x.Codes),
							want.Vehicle, len(want.Codes))
					}
				}
			}
			if got := telemetry(t, e); got.Bytes/got.Msgs > payloadBytes || got.Msgs < uint64(c.n/engine.ChunkSamples) {
				t.Errorf("got %d bytes in %d commits, want at least %d commits of at most %d bytes",
					got.Bytes, got.Msgs, c.n/engine.ChunkSamples, payloadBytes)
			}
		})
	}
}

// The largest commit must leave 4 KiB for headers.
func TestCommitFitsPayload(t *testing.T) {
	t.Parallel()
	if worst := engine.ChunkBytes + engine.MaxSampleBytes + codec.SealBytes; worst > payloadBytes-(4<<10) {
		t.Errorf("the largest commit: got %d bytes, want at most %d", worst, payloadBytes-(4<<10))
	}
	x := sample(strings.Repeat("x", vehicle.MaxReportingID), 1)
	testkit.NoError(t, x.SetCodes(make([]signal.TroubleCode, 65_535))) // the maximum
	if n := len(codec.AppendSample(nil, &x)); n > engine.MaxSampleBytes {
		t.Errorf("a sample may have %d bytes; want %d at most", n, engine.MaxSampleBytes)
	}
}

func stalled(t *testing.T, e *Engine) (q *engine.Queue, start func()) {
	q = engine.NewQueue(maxWaitingBytes, engine.ChunkSamples, engine.ChunkBytes)
	e.queues[0] = q
	return q, func() {
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		wg.Go(func() { e.runQueue(ctx, 0, q) })
		t.Cleanup(func() { cancel(); wg.Wait() })
	}
}

// An Append that exceeds the bound is refused as a whole, and a waiting one can be canceled.
func TestAppend_RefusedWhenQueueIsFull(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	e := open(t, Config{})
	_, start := stalled(t, e)
	codes := make([]signal.TroubleCode, 60_000) // 300,000 bytes
	big := func(at int64) vehicle.Sample {
		x := sample("big", at)
		testkit.NoError(t, x.SetCodes(codes))
		return x
	}
	waiting, cancel := context.WithCancel(t.Context())
	results := make(chan error, 100)
	fits := maxWaitingBytes / (300_000 + 20)
	for i := range fits {
		// To keep the order, each chunk is queued before the next one.
		k := pack(big(int64(i + 1)))
		w := engine.NewWaiter(k)
		testkit.NoError(t, e.queues[0].Add(k...))
		go func() { <-w.Done(); results <- nil }()
	}
	go func() { results <- e.Append(waiting, []vehicle.Sample{sample("patient", 1)}) }()
	// The first sample is too large for the remaining space; the second is small.
	batch := []vehicle.Sample{big(1000), big(1001), sample("big", 2000)}
	if err := e.Append(t.Context(), batch); !errors.Is(err, store.ErrOverloaded) {
		t.Fatalf("Append over the limit: got %v, want %v", err, store.ErrOverloaded)
	}
	cancel()
	if err := <-results; !errors.Is(err, context.Canceled) {
		t.Fatalf("Append after the cancellation: got %v, want %v", err, context.Canceled)
	}
	start()
	for range fits {
		<-results
	}
	if err := e.Append(t.Context(), []vehicle.Sample{sample("last", 1)}); err != nil {
		t.Fatalf("Append after the overload: got %v, want no error", err)
	}
	for _, samples := range commits(t, e, fits+1) {
		for _, x := range samples {
			if x.Vehicle == "big" && x.Time >= 1000 {
				t.Errorf("the sample of %d: got it stored, want none after the refused one of its batch", x.Time)
			}
			if x.Vehicle == "last" {
				return
			}
		}
	}
}

func pack(x vehicle.Sample) []engine.Chunk { return engine.Pack([]vehicle.Sample{x}, 1) }

// If an older part of a batch fails and a younger one is stored, the older is ignored when it is
// sent again.
func TestNoYoungerWithoutOlder(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	e := open(t, Config{})
	q, start := stalled(t, e)
	k := pack(sample("car", 2))
	young := engine.NewWaiter(k)
	testkit.NoError(t, q.Add(k...))
	both := make([]engine.Chunk, 2)
	w := engine.NewWaiter(both)
	w.Finish(errors.New("the first part was not stored"))
	k[0].Waiter = w
	testkit.NoError(t, q.Add(k...))

	late := engine.NewWaiter(both)
	k[0].Waiter = late
	testkit.NoError(t, q.Add(k...))
	late.Finish(errors.New("another partition failed"))
	start()
	<-w.Done()
	<-late.Done()
	<-young.Done()
	if got := telemetry(t, e).Msgs; got != 1 {
		t.Fatalf("%d commits; want the one that nothing spoke against", got)
	}
	if n := len(commits(t, e, 1)[0]); n != 1 {
		t.Fatalf("%d samples were stored; want 1", n)
	}
	// A chunk that is larger than the queue is accepted only if no bytes wait.
	if err := q.Add(engine.Chunk{Packed: make([]byte, maxWaitingBytes+1), Waiter: w}); err != nil {
		t.Fatalf("Add after all chunks are finished: got %v, want no error", err)
	}
}

func TestAppendAroundClose(t *testing.T) {
	t.Parallel()
	e := open(t, Config{})
	var wg sync.WaitGroup
	running := make(chan struct{}, 8)
	for w := range 8 {
		wg.Go(func() {
			for i := int64(1); ; i++ {
				if err := e.Append(context.Background(),
					[]vehicle.Sample{sample(fmt.Sprintf("car%d", w), i)}); err != nil {
					if !errors.Is(err, engine.ErrClosed) {
						t.Errorf("Append: got %v, want %v", err, engine.ErrClosed)
					}
					return
				}
				if i == 5 {
					running <- struct{}{}
				}
			}
		})
	}
	for range 8 {
		<-running
	}
	testkit.NoError(t, e.Close())
	wg.Wait()
	if err := e.Append(t.Context(), []vehicle.Sample{sample("car", 1)}); !errors.Is(err, engine.ErrClosed) {
		t.Fatalf("Append after Close: got %v, want %v", err, engine.ErrClosed)
	}
}
