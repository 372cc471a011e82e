package cluster

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/test/clustertest"
	"example.org/carstate/internal/test/storetest"
	"example.org/carstate/internal/test/testkit"
)

func TestConformance_OneServer(t *testing.T) {
	t.Parallel()
	storetest.RunShort(t, servers())
}

// All engines of the same directory use the same account.
func servers() storetest.Open {
	var mu sync.Mutex
	urls := make(map[string]string)
	return func(t testing.TB, c store.Config) store.Engine {
		mu.Lock()
		url, ok := urls[c.DataDir]
		if !ok {
			url = clustertest.Account(t)
			urls[c.DataDir] = url
		}
		mu.Unlock()
		e, err := Open(t.Context(), Config{Config: c, URLs: url, Streams: 3})
		testkit.NoError(t, err)
		return e
	}
}

// It has exactly the permissions that deploy/nats grants.
func TestConformance_ThreeServers(t *testing.T) {
	c := startWithRights(t, shippedRights(t))
	urls := strings.ReplaceAll(c.URLs(), "nats://", "nats://carstate:secret@")
	storetest.RunOn(t, func(t *testing.T) store.Engine {
		c.Wipe()
		log := new(testkit.Buffer)
		e := open(t, Config{Partitions: 4, Streams: 3, Log: slog.New(slog.NewTextHandler(log, nil)), URLs: urls, Replicas: 3})
		t.Cleanup(func() {
			if log.Count("violation") > 0 {
				t.Errorf("the log: got a violation of rights, want none:\n%s", log)
			}
		})
		return e
	})
}

func TestUsageOfSeveralNodes(t *testing.T) {
	t.Parallel()
	url := clustertest.Account(t)
	now := time.Now()
	k, _ := storetest.RunKeeper(t, open(t, Config{Partitions: 4, URLs: url}), store.Config{})
	tok, _ := storetest.Issue(t, k, access.AllVehicles())
	var storing sync.WaitGroup
	for range 5 {
		k, tables := storetest.RunKeeper(t, open(t, Config{Partitions: 4, URLs: url}), store.Config{})
		g, ok := tables.Tokens.Get(tok.Name)
		if !ok {
			t.Fatalf("the token %s: got none, want it", tok.Name)
		}
		storing.Go(func() {
			ended, cancel := context.WithCancel(context.Background())
			cancel()
			for range 4 {
				g.Count(access.Answered, now)
				k.KeepUsage(ended) // stores once and ends
			}
		})
	}
	storing.Wait()
	_, tables := storetest.RunKeeper(t, open(t, Config{Partitions: 4, URLs: url}), store.Config{})
	g, _ := tables.Tokens.Get(tok.Name)
	if got := g.Usage(now).Calls; got != 20 {
		t.Errorf("got %d calls, want 20", got)
	}
}
