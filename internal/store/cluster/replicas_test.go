package cluster_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"carstate/internal/store/cluster"
	"carstate/internal/store/cluster/clustertest"
	"carstate/internal/store/codec"
	"carstate/internal/testkit"
)

// manager returns a connection to a cluster with the rights of an operator.
func manager(t *testing.T, urls string) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(urls)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// copies returns the number of replicas of each stream.
func copies(t *testing.T, js jetstream.JetStream) map[string]int {
	t.Helper()
	all := make(map[string]int)
	streams := js.ListStreams(t.Context())
	for info := range streams.Info() {
		all[info.Config.Name] = info.Config.Replicas
	}
	if err := streams.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func everyStream(n int) map[string]int {
	all := make(map[string]int)
	for _, name := range []string{
		codec.Telemetry, codec.States, codec.Tokens, codec.Sources, codec.Audit, codec.Roads,
	} {
		all[name] = n
	}
	return all
}

// small returns the configuration with low limits of the streams, so that they reserve little of
// the disk. A server releases the reservation of a deleted stream only after a while.
func small(c cluster.Config) cluster.Config {
	c.TelemetryBytes, c.StatesBytes = 1<<20, 1<<20
	return c
}

// TestReplicas_NeverReduced checks that the flags of one node never reduce the replicas for all
// nodes.
func TestReplicas_NeverReduced(t *testing.T) {
	t.Parallel()
	c := clustertest.StartCluster(t)
	js := manager(t, c.URLs())
	one := "nats://" + c.Nodes[0].Addr
	// start opens and closes a node, and checks the number of replicas of the streams.
	start := func(urls string, replicas, want int) {
		t.Helper()
		e, err := cluster.Open(t.Context(), small(cluster.Config{Partitions: 4, URLs: urls, Replicas: replicas}))
		if err != nil {
			t.Fatalf("--replicas %d: %v", replicas, err)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
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
	for _, name := range []string{codec.Audit, codec.Telemetry} {
		if err := js.DeleteStream(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		start(one, 0, 3)
	}
	err := refused(t, small(cluster.Config{URLs: one, Replicas: 1}), "TELEMETRY has 3 copies")
	if !errors.Is(err, cluster.ErrConfig) {
		t.Errorf("%v is not marked as an error of the configuration", err)
	}
	if got := copies(t, js); !maps.Equal(got, everyStream(3)) {
		t.Errorf("the node that was refused left %v", got)
	}
	c.Wipe()
	start(c.URLs(), 0, 3)
}

// TestALostServerShows checks that a lost server shows in the metrics while everything still works.
// The loss of a second server would stop all writes.
func TestALostServerShows(t *testing.T) {
	t.Parallel()
	c := clustertest.StartCluster(t)
	registry := prometheus.NewPedanticRegistry()
	config := small(cluster.Config{Partitions: 1, URLs: c.URLs(), Replicas: 3})
	config.Registry = registry
	open(t, config)
	missing := func(want float64) func() bool {
		return func() bool {
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			streams := 0
			for _, f := range families {
				for _, m := range f.GetMetric() {
					if f.GetName() == "carstate_stream_copies_missing" && m.GetGauge().GetValue() == want {
						streams++
					}
				}
			}
			return streams == len(codec.Streams)
		}
	}
	testkit.Await(t, "all streams have all copies", missing(0))
	lost := c.Nodes[0]
	lost.Kill()
	testkit.Await(t, "each stream lacks a copy", missing(1))
	lost.Start()
	testkit.Await(t, "all streams have all copies again", missing(0))
}

// TestNothingToChange checks that a node sends no update of a stream if the stream needs no change.
// Such an update could undo a change by another node.
func TestNothingToChange(t *testing.T) {
	t.Parallel()
	url := "nats://a:secret@" + clustertest.StartProcess(t, `jetstream {}
		accounts { A { jetstream: enabled, users: [
			{user: a, password: secret, permissions: { publish: { deny: "$JS.API.STREAM.UPDATE.*" } } }
		] } }`).Addr
	for range 2 {
		e, err := cluster.Open(t.Context(), cluster.Config{URLs: url})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	refused(t, cluster.Config{URLs: url, StatesBytes: 1 << 30},
		"lacks a right: Publish to $JS.API.STREAM.UPDATE.STATES")
}

// TestFirstStartsAtOnce starts nodes with different numbers of partitions at the same time. All
// nodes that open must agree on the number, and the other nodes must be refused.
func TestFirstStartsAtOnce(t *testing.T) {
	t.Parallel()
	c := clustertest.StartCluster(t)
	for kind, urls := range map[string]string{"one server": clustertest.External(t), "three servers": c.URLs()} {
		t.Run(kind, func(t *testing.T) {
			js := manager(t, urls)
			for range 5 {
				firstStarts(t, urls)
				for name := range everyStream(0) {
					if err := js.DeleteStream(t.Context(), name); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}

// TestStartsWhileAStreamIsRemade checks a node that starts while a stream is removed and created
// again. The node must wait for the stream. A server that is still removing a stream may fail to
// create it.
func TestStartsWhileAStreamIsRemade(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	urls := clustertest.External(t)
	js := manager(t, urls)
	first, err := cluster.Open(t.Context(), small(cluster.Config{URLs: urls}))
	if err != nil {
		t.Fatal(err)
	}
	made, err := js.Stream(t.Context(), codec.Tokens)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	for range 30 {
		var remaking sync.WaitGroup
		remaking.Go(func() {
			_ = js.DeleteStream(t.Context(), codec.Tokens)
			_, _ = js.CreateStream(t.Context(), made.CachedInfo().Config) // fails if the node has created the stream
		})
		e, err := cluster.Open(testkit.Context(t), small(cluster.Config{URLs: urls}))
		remaking.Wait()
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func firstStarts(t *testing.T, urls string) {
	t.Helper()
	var starting sync.WaitGroup
	var mu sync.Mutex
	opened := make(map[int]int) // how many engines were opened, by number of partitions
	for i := range 8 {
		starting.Go(func() {
			asked := 8 << (i % 4)
			e, err := cluster.Open(testkit.Context(t), small(cluster.Config{Partitions: asked, URLs: urls}))
			if err != nil {
				if !errors.Is(err, cluster.ErrConfig) || !strings.Contains(err.Error(), "which cannot change") {
					t.Errorf("with %d: %v", asked, err)
				}
				return
			}
			defer e.Close()
			mu.Lock()
			defer mu.Unlock()
			opened[e.Partitions()]++
			if e.Partitions() != asked {
				t.Errorf("%d partitions; asked for %d", e.Partitions(), asked)
			}
		})
	}
	starting.Wait()
	if len(opened) != 1 {
		t.Fatalf("nodes run with %v partitions", fmt.Sprint(opened))
	}
	for n := range opened {
		e, err := cluster.Open(testkit.Context(t), small(cluster.Config{URLs: urls}))
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		if e.Partitions() != n {
			t.Errorf("the streams have %d partitions; the nodes that made them %d", e.Partitions(), n)
		}
	}
}
