package cluster

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/clustertest"
	"example.org/carstate/internal/test/storetest"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

func TestMain(m *testing.M) {
	// The slow tests mostly wait for time-outs, which more of them in parallel would exceed.
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(tests{m})
}

type tests struct{ *testing.M }

// It ends the servers before goleak looks for goroutines.
func (m tests) Run() int {
	defer clustertest.End()
	return m.M.Run()
}

var (
	impatient = Timeouts{Try: time.Second, Beat: 100 * time.Millisecond}
	watchful  = Timeouts{Try: time.Hour, Beat: 100 * time.Millisecond}
	slowStore = store.Patience{Store: 50 * time.Second}
)

// onServer uses an empty account, and a long Try, because the machine may be busy.
func onServer(t testing.TB, c Config) Config {
	t.Helper()
	if c.URLs == "" {
		c.URLs = clustertest.Account(t)
		c.Timeouts.Try = cmp.Or(c.Timeouts.Try, time.Minute)
	}
	return c
}

// open follows the cursors, with one partition unless c says otherwise.
func open(t testing.TB, c Config) *Engine {
	t.Helper()
	c.Partitions = cmp.Or(c.Partitions, 1)
	opened, err := Open(t.Context(), onServer(t, c))
	e := testkit.Opened(t, opened, err)
	background(t, func(ctx context.Context) error {
		_ = e.FollowCursors(ctx, 0, func() {}) // fails in a test of a replaced stream
		return nil
	})
	testkit.Await(t, "the cursors are read", e.cursorsRead.Load)
	return e
}

// Of split, the vehicle "car" is in the second stream of telemetry.
func split(c Config) Config {
	c.Partitions, c.Streams = 2, 2
	return c
}

func partitionOfCar(e *Engine) int { return codec.PartitionOf("car", e.partitions) }

func take(t testing.TB, e *Engine, p int) *Partition {
	t.Helper()
	part := storetest.Take(t, e, p).(*Partition)
	t.Cleanup(part.Close)
	return part
}

func next(t *testing.T, p *Partition) (seq uint64, samples []vehicle.Sample) {
	t.Helper()
	g, err := p.Next(testkit.Context(t))
	if errors.Is(err, context.DeadlineExceeded) { // a request was lost with its connection
		g, err = p.Next(testkit.Context(t))
	}
	testkit.NoError(t, err)
	return g.Seq, g.Samples
}

func save(t testing.TB, p *Partition, seq uint64) {
	t.Helper()
	testkit.NoError(t, saveAs(t.Context(), p, store.Checkpoint{Number: seq + 1, First: seq + 1, Seq: seq}))
}

func saveAs(ctx context.Context, p *Partition, c store.Checkpoint, pieces ...string) error {
	_, err := p.Save(ctx, c, func(yield func(store.Piece) bool) {
		for _, piece := range pieces {
			if !yield(store.Piece{Seq: c.Seq, Entries: []byte(piece)}) {
				return
			}
		}
	}, false)
	return err
}

func sample(vid string, at int64) vehicle.Sample { return storetest.Speed(vehicle.ID(vid), at, 50) }

func background(t testing.TB, f func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := f(ctx); err != nil {
			t.Errorf("in the background: got %v, want no error", err)
		}
	}()
	stop = func() {
		cancel()
		<-ended
	}
	t.Cleanup(stop)
	return stop
}

func storeSample(t testing.TB, e *Engine, at int64) { storeSampleOf(t, e, "car", at) }

func storeSampleOf(t testing.TB, e *Engine, vid string, at int64) {
	t.Helper()
	testkit.NoError(t, e.Append(t.Context(), []vehicle.Sample{sample(vid, at)}))
}

func readCursor(t *testing.T, e *Engine) cursor {
	t.Helper()
	p := partitionOfCar(e)
	is, err := e.Last(t.Context(), codec.States, codec.CursorSubject(p))
	testkit.NoError(t, err)
	c, err := decodeCursor(is, p)
	testkit.NoError(t, err)
	return c
}

// FeedAge returns an error until each of fedStreams has delivered a heartbeat.
func (e *Engine) FeedAge() (time.Duration, error) {
	worst := time.Duration(0)
	for _, name := range fedStreams {
		at, ok := e.fed(name)
		if !ok {
			return 0, fmt.Errorf("the feed of %s has not caught up yet", name)
		}
		worst = max(worst, time.Since(at))
	}
	return worst, nil
}

func healthy(e *Engine) bool {
	age, err := e.FeedAge()
	return err == nil && age < time.Second && e.Writable() == nil
}

func stream(t testing.TB, js jetstream.JetStream, name string) (jetstream.Stream, *jetstream.StreamInfo) {
	t.Helper()
	s, err := js.Stream(t.Context(), name)
	testkit.NoError(t, err)
	return s, s.CachedInfo()
}

type node struct {
	*storetest.Node
	cluster *Engine
}

func startNode(t *testing.T, c Config) node {
	t.Helper()
	e, err := Open(t.Context(), onServer(t, c))
	testkit.NoError(t, err)
	return node{storetest.Start(t, e, c.Config), e}
}
