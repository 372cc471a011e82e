package cluster

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/clustertest"
	"example.org/carstate/internal/test/testkit"
)

func copies(t *testing.T, js jetstream.JetStream) map[string]int {
	t.Helper()
	all := make(map[string]int)
	streams := js.ListStreams(t.Context())
	for info := range streams.Info() {
		all[info.Config.Name] = info.Config.Replicas
	}
	testkit.NoError(t, streams.Err())
	return all
}

func everyStream(n int) map[string]int {
	all := make(map[string]int)
	for _, name := range append(codec.Streams, telemetryName(1)) {
		all[name] = n
	}
	return all
}

func TestThreeServers(t *testing.T) {
	t.Parallel()
	c := clustertest.StartCluster(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *clustertest.Cluster)
	}{
		{"replicas are never reduced", replicasNeverReduced},
		{"first starts at once", func(t *testing.T, c *clustertest.Cluster) { firstStartsAtOnce(t, c.URLs()) }},
		{"a checkpoint in progress", saveInProgress},
		{"a lost server shows", aLostServerShows},
	} {
		c.Wipe()
		t.Run(test.name, func(t *testing.T) { test.run(t, c) })
	}
}

// One node's flags never reduce the replicas for all nodes.
func replicasNeverReduced(t *testing.T, c *clustertest.Cluster) {
	js := clustertest.JetStream(t, c.URLs())
	one := "nats://" + c.Nodes[0].Addr
	start := func(urls string, replicas, want int) {
		t.Helper()
		e, err := Open(t.Context(), Config{Partitions: 4, Streams: 2, URLs: urls, Replicas: replicas})
		if err != nil {
			t.Fatalf("Open with %d replicas: got %v, want no error", replicas, err)
		}
		e.Close()
		if got := copies(t, js); !maps.Equal(got, everyStream(want)) {
			t.Fatalf("--replicas %d left %v; want %d", replicas, got, want)
		}
	}
	start(one, 0, 1)
	start(c.URLs(), 0, 1) // unchanged
	start(one, 3, 3)
	start(one, 0, 3)
	start(one, 3, 3)
	// A missing stream gets as many replicas as the others.
	for _, name := range []string{codec.Audit, codec.Telemetry, telemetryName(1)} {
		testkit.NoError(t, js.DeleteStream(t.Context(), name))
		start(one, 0, 3)
	}
	err := refused(t, Config{URLs: one, Replicas: 1}, "TELEMETRY has 3 copies")
	if !errors.Is(err, store.ErrConfig) {
		t.Errorf("Open with 1 replica: got %v, want %v", err, store.ErrConfig)
	}
	if got := copies(t, js); !maps.Equal(got, everyStream(3)) {
		t.Errorf("the copies after a refused node: got %v, want %v", got, everyStream(3))
	}
	c.Wipe()
	start(c.URLs(), 0, 3)
}

func aLostServerShows(t *testing.T, c *clustertest.Cluster) {
	registry := prometheus.NewPedanticRegistry()
	e := open(t, Config{Partitions: 2, Streams: 2, URLs: c.URLs(), Replicas: 3, Registry: registry})
	missing := func(want float64) func() bool {
		return func() bool {
			families, err := registry.Gather()
			testkit.NoError(t, err)
			streams := 0
			for _, f := range families {
				for _, m := range f.GetMetric() {
					if f.GetName() == "carstate_stream_copies_missing" && m.GetGauge().GetValue() == want {
						streams++
					}
				}
			}
			return streams == len(e.configs)
		}
	}
	testkit.Await(t, "all streams have all copies", missing(0))
	lost := c.Nodes[0]
	lost.Kill()
	testkit.Await(t, "each stream lacks a copy", missing(1))
	lost.Start()
	testkit.Await(t, "all streams have all copies again", missing(0))
}

func TestFirstStartsAtOnce_OneServer(t *testing.T) {
	t.Parallel()
	firstStartsAtOnce(t, clustertest.Account(t))
}

// All nodes that open agree on the number of partitions, or are refused.
func firstStartsAtOnce(t *testing.T, urls string) {
	js := clustertest.JetStream(t, urls)
	for range 5 {
		firstStarts(t, urls)
		for name := range copies(t, js) {
			testkit.NoError(t, js.DeleteStream(t.Context(), name))
		}
	}
}

// A server that is still removing a stream may fail to create it.
func TestStartsWhileAStreamIsRemade(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	first := open(t, Config{})
	_, made := stream(t, first.js, codec.Tokens)
	for range 30 {
		var remaking sync.WaitGroup
		remaking.Go(func() {
			_ = first.js.DeleteStream(t.Context(), codec.Tokens)
			_, _ = first.js.CreateStream(t.Context(), made.Config)
		})
		e, err := Open(testkit.Context(t), Config{URLs: first.config.URLs})
		remaking.Wait()
		testkit.NoError(t, err)
		e.Close()
	}
}

func firstStarts(t *testing.T, urls string) {
	t.Helper()
	var starting sync.WaitGroup
	var mu sync.Mutex
	opened := make(map[int]int)
	for i := range 8 {
		starting.Go(func() {
			asked := 8 << (i % 4)
			e, err := Open(testkit.Context(t), Config{Partitions: asked, Streams: 3, URLs: urls})
			if err != nil {
				if !errors.Is(err, store.ErrConfig) || !strings.Contains(err.Error(), "which cannot change") {
					t.Errorf("Open with %d partitions: got %v, want none or %v", asked, err, store.ErrConfig)
				}
				return
			}
			defer e.Close()
			mu.Lock()
			defer mu.Unlock()
			opened[e.Partitions()]++
			if e.Partitions() != asked {
				t.Errorf("the partitions: got %d, want %d", e.Partitions(), asked)
			}
		})
	}
	starting.Wait()
	if len(opened) != 1 {
		t.Fatalf("the numbers of partitions of all nodes: got %v, want one", fmt.Sprint(opened))
	}
	for n := range opened {
		e, err := Open(testkit.Context(t), Config{URLs: urls})
		testkit.NoError(t, err)
		defer e.Close()
		if e.Partitions() != n {
			t.Errorf("the partitions of the streams: got %d, want %d as the nodes that made them", e.Partitions(), n)
		}
	}
}
