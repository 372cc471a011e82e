package cluster

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"

	"example.org/carstate/internal/store"
	"example.org/carstate/internal/test/testkit"
)

// A subscription that is silent although a commit waits must be replaced.
func TestSilentSubscription(t *testing.T) {
	t.Parallel()
	e := open(t, split(Config{Patience: slowStore, Timeouts: watchful}))
	p := take(t, e, 1)
	storeSample(t, e, 1)
	next(t, p)
	p.unsubscribe()
	silent, err := e.nc.SubscribeSync("nobody.speaks.here")
	testkit.NoError(t, err)
	p.sub = &subscription{Subscription: silent}
	storeSample(t, e, 2)
	if _, samples := next(t, p); samples[0].Time != 2 {
		t.Fatalf("the group: got %v, want the sample of 2", samples)
	}
}

func recreate(t *testing.T, e *Engine, name string, n int64) {
	t.Helper()
	testkit.NoError(t, e.js.DeleteStream(t.Context(), name))
	_, err := ensureStreams(t.Context(), e.js, e.config)
	testkit.NoError(t, err)
	for at := range n {
		storeSample(t, e, 100+at)
	}
}

// New commits then have sequences below the cursor.
func TestTelemetryBehindCursor(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	for name, lose := range map[string]func(*testing.T, *Engine){
		"re-created":           func(t *testing.T, e *Engine) { recreate(t, e, e.TelemetryStream(1), 0) },
		"re-created and grown": func(t *testing.T, e *Engine) { recreate(t, e, e.TelemetryStream(1), 20) },
		// The test cannot shorten the stream.
		"its end lost": func(t *testing.T, e *Engine) { save(t, take(t, e, 1), 1000) },
	} {
		t.Run(name, func(t *testing.T) {
			e := open(t, split(Config{}))
			for at := range int64(10) {
				storeSample(t, e, at+1)
			}
			foldAll(t, e, 10)
			lose(t, e)
			storeSample(t, e, 1000)
			trim(t, forgetful(t, e))
			foldAll(t, e, 1000) // returns only if the sample is read
			measure(t, e)
			if age := e.backlogAge(); age != 0 {
				t.Errorf("the backlog's age: got %v, want 0", age)
			}
		})
	}
}

func TestTelemetryReplaced(t *testing.T) {
	t.Parallel()
	for _, grown := range []int64{1, 30} {
		t.Run(fmt.Sprint(grown), func(t *testing.T) {
			t.Parallel()
			e := open(t, split(Config{Patience: slowStore, Timeouts: watchful}))
			p := take(t, e, 1)
			for at := range int64(10) {
				storeSample(t, e, at+1)
				next(t, p)
			}
			recreate(t, e, e.TelemetryStream(1), grown)
			if g, err := p.Next(testkit.Context(t)); !errors.Is(err, store.ErrReplaced) {
				t.Fatalf("Next: got %v, error %v; want %v", g, err, store.ErrReplaced)
			}
		})
	}
}

// A server's default limit of consumers of a stream is 1,000.
func TestEveryPartitionIsRead(t *testing.T) { // not in parallel, because it keeps the whole machine busy
	const partitions = 1001
	e := open(t, Config{Partitions: partitions})
	for p := range partitions {
		sub, err := e.subscribe(e.TelemetryStream(p), requestTimeout, nats.StartSequence(1))
		if err != nil {
			t.Fatalf("partition %d of %d: got %v, want no error", p, partitions, err)
		}
		defer sub.Unsubscribe()
	}
}
