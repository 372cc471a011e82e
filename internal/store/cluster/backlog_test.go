package cluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/clustertest"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

func measure(t *testing.T, e *Engine) {
	t.Helper()
	err := e.Scan(t.Context(), codec.States, []string{"cursor.*"}, func(r store.Record) error {
		p, _ := codec.PartitionOfCursor(r.Subject)
		want, err := decodeCursor(r, p)
		testkit.Await(t, "the copy of a cursor is current", func() bool {
			c := e.views[p].cursor.Load()
			return c != nil && (c.Generation > want.Generation || c.Generation == want.Generation && c.Next >= want.Next)
		})
		return err
	})
	testkit.NoError(t, err)
	testkit.NoError(t, e.measureBacklog(t.Context()))
}

func (e *Engine) backlogAge() (oldest time.Duration) {
	for p := range e.metrics.Backlogs {
		oldest = max(oldest, time.Duration(e.metrics.Backlogs[p].Load()))
	}
	return oldest
}

func trim(t *testing.T, e *Engine) {
	t.Helper()
	measure(t, e)
	for i := range e.streams {
		testkit.NoError(t, e.trim(t.Context(), i))
	}
}

func forgetful(t *testing.T, e *Engine) *Engine {
	t.Helper()
	return open(t, Config{Retention: time.Millisecond, Partitions: e.partitions, URLs: e.config.URLs})
}

func telemetry(t *testing.T, e *Engine) jetstream.StreamState {
	t.Helper()
	_, info := stream(t, e.js, e.TelemetryStream(partitionOfCar(e)))
	return info.State
}

func series(from int64, n int) []vehicle.Sample {
	batch := make([]vehicle.Sample, n)
	for i := range batch {
		batch[i] = sample("car", from+int64(i)+1)
	}
	return batch
}

func foldAll(t *testing.T, e *Engine, upTo int64) {
	t.Helper()
	p := take(t, e, partitionOfCar(e))
	defer p.Close()
	seq, samples := next(t, p)
	for int64(samples[len(samples)-1].Time) < upTo {
		seq, samples = next(t, p)
	}
	save(t, p, seq)
}

func TestBacklogByAge(t *testing.T) {
	t.Parallel()
	const retention = 2 * time.Second
	e := open(t, split(Config{Retention: retention}))
	storeSample(t, e, 1)
	testkit.Await(t, "the backlog is too old", func() bool { measure(t, e); return e.backlogAge() > retention/2 })
	if err := e.Append(t.Context(), []vehicle.Sample{sample("car", 2)}); !errors.Is(err, store.ErrBacklog) {
		t.Fatalf("Append while a sample waits too long: got %v, want %v", err, store.ErrBacklog)
	}
	foldAll(t, e, 1)
	measure(t, e)
	if age := e.backlogAge(); age != 0 {
		t.Fatalf("the backlog's age with nothing to fold: got %v, want 0", age)
	}
	storeSample(t, e, 2)
}

func TestBacklogByBytes(t *testing.T) {
	testkit.Slow(t, "it fills a stream")
	t.Parallel()
	const limit = 256 << 10
	e := open(t, split(Config{TelemetryBytes: 2 * limit}))
	at, refused := int64(0), false
	for !refused {
		err := e.Append(t.Context(), series(at, 100))
		if refused = errors.Is(err, store.ErrBacklog); !refused {
			if at += 100; err != nil {
				t.Fatalf("Append up to %d: got %v, want no error or %v", at, err, store.ErrBacklog)
			}
		}
		trim(t, e)
	}
	if s := telemetry(t, e); s.FirstSeq != 1 || s.Bytes < limit/2 || s.Bytes > limit*3/4 {
		t.Fatalf("the refusing stream: got %d bytes from %d on, want %d to %d from 1 on", s.Bytes, s.FirstSeq, limit/2,
			limit*3/4)
	}
	foldAll(t, e, at)
	measure(t, e)
	storeSample(t, e, at+1)
}

// Every acknowledged sample is stored, and samples are accepted again once those are folded and
// removed.
func TestTelemetryFull(t *testing.T) {
	t.Parallel()
	const limit = 64 << 10
	e := open(t, split(Config{TelemetryBytes: 2 * limit}))
	at := int64(0)
	err := e.Append(t.Context(), series(at, 900))
	for ; err == nil; err = e.Append(t.Context(), series(at, 900)) {
		at += 900
	}
	if !errors.Is(err, store.ErrBacklog) {
		t.Fatalf("Append to a full stream: got %v, want %v", err, store.ErrBacklog)
	}
	if err := e.Writable(); err != nil {
		t.Fatalf("Writable with a full stream: got %v, want no error", err)
	}
	storeSampleOf(t, e, "carA", 1) // in the other stream
	foldAll(t, e, at)
	trim(t, e) // the sample is young
	storeSample(t, e, at+1)
}

func TestTrim_KeepsUnfoldedAndYoung(t *testing.T) {
	t.Parallel()
	e := open(t, split(Config{}))
	for at := range int64(10) {
		storeSample(t, e, at+1)
	}
	foldAll(t, e, 6)
	trim(t, e)
	if first := telemetry(t, e).FirstSeq; first != 1 {
		t.Fatalf("the first of young telemetry: got %d, want 1", first)
	}
	short := forgetful(t, e)
	testkit.Await(t, "old commits are removed", func() bool { trim(t, short); return telemetry(t, e).FirstSeq > 1 })
	trim(t, short)
	if s := telemetry(t, e); s.FirstSeq != 7 || s.Msgs != 4 {
		t.Fatalf("telemetry begins at %d and has %d commits; want the 4 from 7 on that are not folded",
			s.FirstSeq, s.Msgs)
	}
	foldAll(t, e, 10)
	testkit.Await(t, "all old and folded commits are removed",
		func() bool { trim(t, short); return telemetry(t, e).Msgs == 0 })
	storeSample(t, e, 11)
	foldAll(t, e, 11)
}

func TestTrimWithSeveralPartitions(t *testing.T) {
	t.Parallel()
	// Partitions 1 and 3 are in one stream.
	e := open(t, Config{Partitions: 4, Streams: 2})
	ids := []string{"car", ""}
	for i := 0; codec.PartitionOf(vehicle.ID(ids[1]), 4) != 3; i++ {
		ids[1] = fmt.Sprintf("car%d", i)
	}
	for at := range int64(5) {
		for _, id := range ids {
			storeSampleOf(t, e, id, at+1)
		}
	}
	foldAll(t, e, 5)
	short := forgetful(t, e)
	testkit.Await(t, "an old commit is removed", func() bool { trim(t, short); return telemetry(t, e).FirstSeq > 1 })
	trim(t, short)
	if s := telemetry(t, e); s.FirstSeq != 2 {
		t.Fatalf("the first of telemetry that partition 3 needs: got %d, want 2", s.FirstSeq)
	}
}

// A trim beside stores and folds removes nothing that is not folded, however old.
func TestTrimRaces(t *testing.T) {
	testkit.Slow(t, "it stores 600 commits one by one")
	t.Parallel()
	e := open(t, split(Config{Retention: time.Millisecond}))
	ctx, cancel := context.WithCancel(testkit.Context(t))
	defer cancel()
	const n = 600
	var wg sync.WaitGroup
	done := make(chan struct{})
	wg.Go(func() {
		for at := int64(1); at <= n; at++ {
			e.backlogged.Store(false) // lets Append accept samples although the age limit is exceeded
			if err := e.Append(ctx, []vehicle.Sample{sample("car", at)}); errors.Is(err, store.ErrBacklog) {
				at--
			} else if err != nil {
				t.Errorf("Append: got %v, want no error", err)
				return
			}
		}
	})
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if err := errors.Join(e.measureBacklog(ctx), e.trim(ctx, 1)); err != nil {
				t.Errorf("the look and the trim: got %v, want no error", err)
				return
			}
		}
	})
	for at := int64(1); at <= n; {
		p := take(t, e, 1)
		for round := 0; round < 20 && at <= n; round++ {
			seq, samples := next(t, p)
			for _, x := range samples {
				if int64(x.Time) != at {
					t.Fatalf("the sample: got that of %d, want %d", x.Time, at)
				}
				at++
			}
			save(t, p, seq)
		}
		p.Close()
	}
	close(done)
	wg.Wait()
	testkit.Await(t, "all folded commits are removed", func() bool { trim(t, e); return telemetry(t, e).Msgs == 0 })
}

func TestBacklogOfManyPartitions(t *testing.T) {
	const partitions, streams = 300, 2
	e := open(t, Config{Partitions: partitions})
	if e.streams != streams {
		t.Errorf("%d streams, want %d", e.streams, streams)
	}
	asked := func() uint64 {
		measure(t, e)
		before := e.nc.Stats().OutMsgs
		measure(t, e)
		return e.nc.Stats().OutMsgs - before
	}
	if n := asked(); n > partitions/4 { // the number includes requests that store heartbeats
		t.Errorf("a look at rest: got %d questions, want at most %d", n, partitions/4)
	}
	storeSample(t, e, 1) // the vid "car" does not belong to partition 0
	p := codec.PartitionOf("car", partitions)
	if n := asked(); n > partitions/4 {
		t.Errorf("a look while a sample waits: got %d questions, want at most %d", n, partitions/4)
	}
	if first := e.needed[p%streams].Load(); first != e.views[p].seen.first || e.backlogAge() == 0 {
		t.Errorf("a sample that waits: got the first %d and age %v, want %d and an age", first, e.backlogAge(),
			e.views[p].seen.first)
	}
	part := take(t, e, p)
	seq, _ := next(t, part)
	save(t, part, seq)
	measure(t, e)
	if e.needed[p%streams].Load() != seq+1 || e.backlogAge() != 0 {
		t.Errorf("all folded: got the first %d and age %v, want %d and 0", e.needed[p%streams].Load(), e.backlogAge(),
			seq+1)
	}
}

// A node shows the partitions that it folds, and backlogs that no node folds.
func TestBacklogByPartition(t *testing.T) {
	t.Parallel()
	c := Config{Partitions: 2, URLs: clustertest.Account(t), Timeouts: impatient}
	c.Timeouts.Lease = time.Second
	metrics := []*prometheus.Registry{prometheus.NewRegistry(), prometheus.NewRegistry()}
	c.Registry = metrics[1]
	open(t, c)
	c.Registry = metrics[0]
	owner := open(t, c)
	storeSample(t, owner, 1)
	n := codec.PartitionOf("car", 2)
	shown := func(node int) bool {
		return testkit.Metric(t, metrics[node], store.MetricBacklog, "partition", strconv.Itoa(n)) > 0
	}
	testkit.Await(t, "both show what no node folds", func() bool { return shown(0) && shown(1) })
	p := take(t, owner, n)
	testkit.Await(t, "only the owner shows it", func() bool { return shown(0) && !shown(1) })
	p.Close()
	testkit.Await(t, "both show it again", func() bool { return shown(0) && shown(1) })
}

// If the first sequence that is not folded decreased, the backlog would seem far too old.
func TestBacklogWhileFolding(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	e := open(t, Config{})
	ctx, stop := context.WithCancel(testkit.Context(t))
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() {
		for at := int64(1); ctx.Err() == nil; at++ {
			if err := e.Append(ctx, []vehicle.Sample{sample("car", at)}); err != nil && ctx.Err() == nil {
				t.Errorf("Append: got %v, want no error", err)
				return
			}
		}
	})
	p := take(t, e, 0)
	running.Go(func() {
		defer p.Close()
		for {
			g, err := p.Next(ctx)
			if err == nil {
				err = saveAs(ctx, p, store.Checkpoint{Number: g.Seq, First: g.Seq, Seq: g.Seq})
			}
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				t.Errorf("the fold: got %v, want no error", err)
				return
			}
		}
	})
	for before := uint64(0); before < 1000 && !t.Failed(); {
		measure(t, e)
		now := e.needed[0].Load()
		if now < before {
			t.Fatalf("the first that waits: got %d after %d, want none that goes back", now, before)
		}
		before = now
	}
}

// Age counts by the server's clock, so a node whose clock is wrong behaves like the others.
func TestWrongClock(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{24 * time.Hour, -24 * time.Hour} {
		now := testkit.NewClock(time.Now().Add(ahead)).Now
		url := clustertest.Account(t)
		e := open(t, Config{Now: now, URLs: url})
		storeSample(t, e, 1)
		measure(t, e)
		storeSample(t, e, 2)
		if age := e.backlogAge(); age < 0 || age > store.DefaultRetention/2 {
			t.Errorf("the clock is ahead by %s: got the age %v, want 0 to %s", ahead, age, store.DefaultRetention/2)
		}
		foldAll(t, e, 2)
		trim(t, e)
		if n := telemetry(t, e).Msgs; n != 2 {
			t.Errorf("the clock is ahead by %s: got %d young commits, want 2", ahead, n)
		}
		short := open(t, Config{Now: now, Retention: time.Millisecond, URLs: url})
		testkit.Await(t, "old commits are removed", func() bool { trim(t, short); return telemetry(t, e).Msgs == 0 })
	}
}
