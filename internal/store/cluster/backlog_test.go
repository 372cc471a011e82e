package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"carstate/internal/store"
	"carstate/internal/store/cluster/clustertest"
	"carstate/internal/store/codec"
	"carstate/internal/testkit"
	"carstate/internal/vehicle"
)

// clock is a clock that tests can move ahead of the real time.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time        { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *clock) move(by time.Duration) { c.ahead.Add(int64(by)) }

func measure(t *testing.T, e *Engine) {
	t.Helper()
	if err := e.measureBacklog(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func trim(t *testing.T, e *Engine) {
	t.Helper()
	measure(t, e)
	if err := e.trim(t.Context(), e.config.Retention); err != nil {
		t.Fatal(err)
	}
}

// forgetful returns an engine whose Trim removes all folded telemetry at once.
func forgetful(t *testing.T, url string, partitions int) *Engine {
	t.Helper()
	return openOne(t, Config{Retention: time.Millisecond, Partitions: partitions, URLs: url})
}

func storeSample(t *testing.T, e *Engine, at int64) {
	t.Helper()
	if err := e.Append(t.Context(), []vehicle.Sample{speedAt("car", at)}); err != nil {
		t.Fatal(err)
	}
}

// foldAll reads partition 0 up to the sample with the time upTo, and commits the cursor.
func foldAll(t *testing.T, e *Engine, upTo int64) {
	t.Helper()
	ctx, cancel := context.WithCancel(testkit.Context(t))
	defer cancel()
	p, err := e.take(ctx, 0, "test", store.Anyone)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for {
		seq, samples, err := p.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if int64(samples[len(samples)-1].Time) < upTo {
			continue
		}
		if err := p.Commit(ctx, seq, nil); err != nil {
			t.Fatal(err)
		}
		return
	}
}

func TestBacklogByAge(t *testing.T) {
	const retention = 2 * time.Second
	e := openOne(t, Config{Retention: retention})
	storeSample(t, e, 1)
	for began := time.Now(); e.backlog.age() <= retention/2; measure(t, e) {
		if time.Since(began) > testkit.Patience {
			t.Fatalf("the backlog's age is %v", e.backlog.age())
		}
	}
	if err := e.Append(t.Context(), []vehicle.Sample{speedAt("car", 2)}); !errors.Is(err, store.ErrBacklog) {
		t.Fatalf("with a sample that waits too long: %v", err)
	}
	foldAll(t, e, 1)
	measure(t, e)
	if age := e.backlog.age(); age != 0 {
		t.Fatalf("with nothing to fold the backlog's age is %v", age)
	}
	storeSample(t, e, 2)
}

// TestBacklogWithAWrongClock checks that the age of a waiting sample is measured by the server's
// clock, which stamped the sample. So a node whose own clock is wrong does not refuse samples for
// that reason.
func TestBacklogWithAWrongClock(t *testing.T) {
	var c clock
	e := openOne(t, Config{Now: c.now})
	for i, ahead := range []time.Duration{24 * time.Hour, -48 * time.Hour} {
		c.move(ahead)
		storeSample(t, e, int64(2*i+1))
		measure(t, e)
		storeSample(t, e, int64(2*i+2))
		if age := e.backlog.age(); age < 0 || age > store.DefaultRetention/2 {
			t.Errorf("%d: the backlog's age is %v", i, age)
		}
	}
}

func TestBacklogByBytes(t *testing.T) {
	const limit = 256 << 10
	e := openOne(t, Config{TelemetryBytes: limit})
	at, refused := int64(0), false
	for !refused {
		batch := make([]vehicle.Sample, 100)
		for i := range batch {
			at++
			batch[i] = speedAt("car", at)
		}
		err := e.Append(t.Context(), batch)
		if refused = errors.Is(err, store.ErrBacklog); refused {
			at -= int64(len(batch))
		} else if err != nil {
			t.Fatal(err)
		}
		trim(t, e)
	}
	if s := telemetryState(t, e); s.FirstSeq != 1 || s.Bytes < limit/2 || s.Bytes > limit*3/4 {
		t.Fatalf("refused with %d bytes of %d, from %d on", s.Bytes, limit, s.FirstSeq)
	}
	foldAll(t, e, at)
	measure(t, e)
	storeSample(t, e, at+1)
}

// TestTelemetryFull checks that if TELEMETRY fills up between two measurements of the backlog,
// samples are refused with the same error as for a large backlog.
func TestTelemetryFull(t *testing.T) {
	const limit = 64 << 10
	e := openOne(t, Config{TelemetryBytes: limit})
	var err error
	at := int64(0)
	for err == nil {
		batch := make([]vehicle.Sample, 900)
		for i := range batch {
			batch[i] = speedAt("car", at+int64(i)+1)
		}
		if err = e.Append(t.Context(), batch); err == nil {
			at += int64(len(batch))
		}
	}
	if !errors.Is(err, store.ErrBacklog) {
		t.Fatal(err)
	}
	if err := e.Writable(); err != nil {
		t.Fatalf("a full stream is no broken engine: %v", err)
	}
	foldAll(t, e, at) // succeeds only if every acknowledged sample is stored
	trim(t, e)        // the sample is folded, so it may be removed although it is young
	storeSample(t, e, at+1)
}

func TestTrim_KeepsUnfoldedAndYoung(t *testing.T) {
	url := clustertest.External(t)
	e := openOne(t, Config{URLs: url})
	for at := range int64(10) {
		storeSample(t, e, at+1)
	}
	foldAll(t, e, 6)
	trim(t, e)
	if first := telemetryState(t, e).FirstSeq; first != 1 {
		t.Fatalf("telemetry begins at %d, although all of it is young", first)
	}
	short := forgetful(t, url, 1)
	testkit.Await(t, "old commits are removed",
		func() bool { trim(t, short); return telemetryState(t, e).FirstSeq > 1 })
	trim(t, short)
	if s := telemetryState(t, e); s.FirstSeq != 7 || s.Msgs != 4 {
		t.Fatalf("telemetry begins at %d and has %d commits; want the 4 from 7 on that are not folded",
			s.FirstSeq, s.Msgs)
	}
	foldAll(t, e, 10)
	testkit.Await(t, "all old and folded commits are removed",
		func() bool { trim(t, short); return telemetryState(t, e).Msgs == 0 })
	storeSample(t, e, 11)
	foldAll(t, e, 11)
}

// TestTrimWithSeveralPartitions checks that telemetry is kept until the slowest partition has
// folded it.
func TestTrimWithSeveralPartitions(t *testing.T) {
	url := clustertest.External(t)
	e := openOne(t, Config{Partitions: 2, URLs: url})
	ids := make([]string, 2)
	for i := 0; ids[0] == "" || ids[1] == ""; i++ {
		id := fmt.Sprintf("car%d", i)
		ids[codec.PartitionOf(vehicle.ID(id), 2)] = id
	}
	for at := range int64(5) {
		for _, id := range ids {
			if err := e.Append(t.Context(), []vehicle.Sample{speedAt(id, at+1)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	foldAll(t, e, 5) // sequences 1, 3, … 9
	short := forgetful(t, url, 2)
	testkit.Await(t, "an old commit is removed",
		func() bool { trim(t, short); return telemetryState(t, e).FirstSeq > 1 })
	trim(t, short)
	if s := telemetryState(t, e); s.FirstSeq != 2 {
		t.Fatalf("telemetry begins at %d; partition 1 needs it from 2 on", s.FirstSeq)
	}
}

// TestTrimRaces checks that a trim concurrent with stores and folds never removes telemetry
// that is not folded, however old it is.
func TestTrimRaces(t *testing.T) {
	e := openOne(t, Config{Retention: time.Millisecond})
	ctx, cancel := context.WithCancel(testkit.Context(t))
	defer cancel()
	const n = 600
	var wg sync.WaitGroup
	done := make(chan struct{})
	wg.Go(func() {
		for at := int64(1); at <= n; at++ {
			e.backlog.over.Store(false) // lets Append accept samples although the age limit is exceeded
			if err := e.Append(ctx, []vehicle.Sample{speedAt("car", at)}); errors.Is(err, store.ErrBacklog) {
				at--
			} else if err != nil {
				t.Error(err)
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
			if err := errors.Join(e.measureBacklog(ctx), e.trim(ctx, e.config.Retention)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for at := int64(1); at <= n; {
		p, err := e.take(ctx, 0, "test", store.Anyone)
		if err != nil {
			t.Fatal(err)
		}
		for round := 0; round < 20 && at <= n; round++ {
			seq, samples, err := p.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range samples {
				if int64(x.Time) != at {
					t.Fatalf("%d came instead of %d", x.Time, at)
				}
				at++
			}
			if err := p.Commit(ctx, seq, nil); err != nil {
				t.Fatal(err)
			}
		}
		p.Close()
	}
	close(done)
	wg.Wait()
	testkit.Await(t, "all folded commits are removed",
		func() bool { trim(t, e); return telemetryState(t, e).Msgs == 0 })
}

// TestBacklogOfManyPartitions checks that a measurement of the backlog sends no request for a
// partition in which nothing has changed. It must still notice every change.
func TestBacklogOfManyPartitions(t *testing.T) {
	const partitions = 200
	e := openOne(t, Config{Partitions: partitions})
	asked := func() uint64 {
		measure(t, e)
		before := e.nc.Stats().OutMsgs
		measure(t, e)
		return e.nc.Stats().OutMsgs - before
	}
	if n := asked(); n > partitions/4 { // the number includes requests that store heartbeats
		t.Errorf("at rest, one look takes %d questions", n)
	}
	storeSample(t, e, 1) // the vid "car" does not belong to partition 0
	p := codec.PartitionOf("car", partitions)
	if n := asked(); n > partitions/4 {
		t.Errorf("with a sample that waits, one look takes %d questions", n)
	}
	if first := e.backlog.firstNeeded(); first != e.backlog.next[p].Load() || e.backlog.age() == 0 {
		t.Errorf("%d is the first that waits; the backlog's age is %v", first, e.backlog.age())
	}
	part, err := e.take(t.Context(), p, "test", store.Anyone)
	if err != nil {
		t.Fatal(err)
	}
	defer part.Close()
	seq, _, err := part.Next(testkit.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := part.Commit(t.Context(), seq, nil); err != nil {
		t.Fatal(err)
	}
	measure(t, e)
	if e.backlog.firstNeeded() != seq+1 || e.backlog.age() != 0 {
		t.Errorf("all is folded up to %d: the first that waits is %d, the backlog's age %v",
			seq, e.backlog.firstNeeded(), e.backlog.age())
	}
}

// TestBacklogWhileFolding checks that the first sequence that is not folded never decreases while
// samples are stored and folded. Otherwise retained telemetry that is folded already would count as
// waiting, and the age of the backlog would be far too great.
func TestBacklogWhileFolding(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	e := openOne(t, Config{})
	ctx, stop := context.WithCancel(testkit.Context(t))
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() {
		for at := int64(1); ctx.Err() == nil; at++ {
			if err := e.Append(ctx, []vehicle.Sample{speedAt("car", at)}); err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
		}
	})
	p, err := e.take(ctx, 0, "test", store.Anyone)
	if err != nil {
		t.Fatal(err)
	}
	running.Go(func() {
		defer p.Close()
		for {
			seq, _, err := p.Next(ctx)
			if err == nil {
				err = p.Commit(ctx, seq, nil)
			}
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	for before := uint64(0); before < 1000 && !t.Failed(); {
		measure(t, e)
		now := e.backlog.firstNeeded()
		if now < before {
			t.Fatalf("%d is the first that waits, after it had been %d", now, before)
		}
		before = now
	}
}

// TestTrimWithAWrongClock checks that Trim, too, measures the age of telemetry by the server's
// clock, which stamped the telemetry. So a node whose own clock is wrong keeps telemetry as long as
// the other nodes do.
func TestTrimWithAWrongClock(t *testing.T) {
	for _, ahead := range []time.Duration{24 * time.Hour, -24 * time.Hour} {
		var c clock
		c.move(ahead)
		url := clustertest.External(t)
		e := openOne(t, Config{Now: c.now, URLs: url})
		storeSample(t, e, 1)
		foldAll(t, e, 1)
		trim(t, e)
		if n := telemetryState(t, e).Msgs; n != 1 {
			t.Errorf("the clock is ahead by %s: %d young commits are left of 1", ahead, n)
		}
		short := openOne(t, Config{Now: c.now, Retention: time.Millisecond, URLs: url})
		testkit.Await(t, "an old commit is removed",
			func() bool { trim(t, short); return telemetryState(t, e).Msgs == 0 })
	}
}
