package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"carstate/internal/access"
	"carstate/internal/store"
	"carstate/internal/store/cluster"
	"carstate/internal/store/cluster/clustertest"
	"carstate/internal/store/codec"
	"carstate/internal/store/storetest"
	"carstate/internal/testkit"
	"carstate/internal/vehicle"
)

func BenchmarkBackup(b *testing.B) { storetest.Backups(b, servers()) }

// TestConformance_OneServer runs the suite of storetest, with one NATS server for each store,
// configured as an operator would configure it.
func TestConformance_OneServer(t *testing.T) {
	t.Parallel()
	storetest.RunShort(t, servers())
}

func TestConformance_OneServerLong(t *testing.T) {
	testkit.Slow(t, "it takes real servers through half a minute of work")
	t.Parallel()
	storetest.RunLong(t, servers())
}

// servers returns a function that opens engines. All engines of the same directory use the same
// server.
func servers() storetest.Open {
	var mu sync.Mutex // guards urls
	urls := make(map[string]string)
	return func(t testing.TB, c store.Config) store.Engine {
		mu.Lock()
		url, ok := urls[c.DataDir]
		if !ok {
			url = clustertest.External(t)
			urls[c.DataDir] = url
		}
		mu.Unlock()
		e, err := cluster.Open(t.Context(), cluster.Config{Config: c, URLs: url})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
}

// TestConformance_ThreeServers runs the suite of storetest against three servers with three
// replicas of each stream, and with exactly the permissions that deploy/nats grants. It does not
// run in parallel with the package's other tests, which wait for time-outs.
func TestConformance_ThreeServers(t *testing.T) {
	shipped, err := os.ReadFile("../../../deploy/nats/nats.conf")
	if err != nil {
		t.Fatal(err)
	}
	rights := regexp.MustCompile(`(?s)permissions \{.*?\n        \}`).Find(shipped)
	if rights == nil {
		t.Fatal("deploy/nats/nats.conf grants no rights")
	}
	c := clustertest.StartClusterAs(t, fmt.Sprintf(`accounts { A { jetstream: enabled, users: [
	{ user: carstate, password: secret, %s },
	{ user: operator, password: secret }
] } }
`, rights), nats.UserInfo("operator", "secret"))
	urls := strings.ReplaceAll(c.URLs(), "nats://", "nats://carstate:secret@")
	storetest.RunOn(t, func(t *testing.T) store.Engine {
		c.Wipe()
		log := new(testkit.Buffer)
		e := open(t, cluster.Config{Partitions: 4, Log: slog.New(slog.NewTextHandler(log, nil)),
			URLs: urls, Replicas: 3})
		t.Cleanup(func() {
			if log.Count("violation") > 0 {
				t.Errorf("a right is missing:\n%s", log)
			}
		})
		return e
	})
}

func sample(vid string, ms int64, speed float64) vehicle.Sample {
	return storetest.Speed(vehicle.ID(vid), ms, speed)
}

// TestCursorsFollow checks a node that follows only cursors, not states. If a vehicle of its
// partition is forgotten, reading on must fail with store.ErrRecalled, so that the node takes the
// partition again. The node must also know how old its copies of the streams that it follows are.
func TestCursorsFollow(t *testing.T) {
	t.Parallel()
	e := open(t, cluster.Config{Partitions: 4, URLs: clustertest.External(t)})
	ctx, cancel := context.WithCancel(testkit.Context(t))
	vid := vehicle.ID("carA")
	k, _ := storetest.RunKeeper(t, e, store.Config{})
	part, err := e.Take(ctx, codec.PartitionOf(vid, e.Partitions()), "test", store.Anyone)
	if err != nil {
		t.Fatal(err)
	}
	defer part.Close()
	caughtUp, done := make(chan struct{}), make(chan error)
	go func() { done <- e.FollowCursors(ctx, func() { close(caughtUp) }) }()
	<-caughtUp
	state := vehicle.Observe(vehicle.State{}, sample(string(vid), 1, 10))
	if err := part.Commit(ctx, 1, map[vehicle.ID]*vehicle.State{vid: &state}); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Forget(ctx, vid); err != nil {
		t.Fatal(err)
	}
	_, _, err = part.Next(ctx)
	if !errors.Is(err, store.ErrRecalled) {
		t.Errorf("a vehicle of the partition was forgotten, and it reads on: %v", err)
	}
	testkit.Await(t, "the feeds have caught up", func() bool { _, err := e.FeedAge(); return err == nil })
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// TestUsageOfSeveralNodes checks that each node stores the usage that it has counted, and that any
// node can compute the sum.
func TestUsageOfSeveralNodes(t *testing.T) {
	url := clustertest.External(t)
	now := time.Now()
	first := open(t, cluster.Config{Partitions: 4, DataDir: t.TempDir(), URLs: url})
	second := open(t, cluster.Config{Partitions: 4, URLs: url}) // a node without a directory
	k, _ := storetest.RunKeeper(t, first, store.Config{})
	tok, _ := storetest.Issue(t, k, access.AllVehicles())
	for round := range 3 {
		for _, e := range []*cluster.Engine{first, second} {
			k, tables := storetest.RunKeeper(t, e, store.Config{})
			g, ok := tables.Tokens.Get(tok.Name)
			if !ok {
				t.Fatal("the token is not known")
			}
			g.Count(access.ThrottleSystem, access.Answered, now)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			k.KeepUsage(ctx) // stores once and ends
		}
		_, tables := storetest.RunKeeper(t, first, store.Config{}) // a node that starts now
		u := tables.Tokens.Usage(tok.Name, now)
		if got := u.Since(0)[1][access.Answered]; got != int64(2*(round+1)) {
			t.Errorf("round %d: %d calls", round, got)
		}
	}
}
