package cluster

import (
	"bytes"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/road"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/clustertest"
	"example.org/carstate/internal/test/storetest"
	"example.org/carstate/internal/test/testkit"
)

func checkNoTile(t *testing.T, log string) {
	t.Helper()
	for tile := range storetest.Tiles(t) {
		if bytes.Contains([]byte(log), []byte(tile)) {
			t.Errorf("the log: got the tile %s in it, want none:\n%s", tile, log)
			return
		}
	}
}

func TestRefusedRoads(t *testing.T) {
	t.Parallel()
	url := clustertest.Account(t)
	log, registry := new(testkit.Buffer), prometheus.NewRegistry()
	e := open(t, Config{URLs: url})
	nc := clustertest.JetStream(t, url).Conn()
	tiles := storetest.Tiles(t)
	for tile := range tiles {
		_, err := nc.Request("road."+tile, []byte("no profile"), time.Minute)
		testkit.NoError(t, err)
	}
	_, err := nc.Request("road.nowhere", []byte("no profile of no tile"), time.Minute)
	testkit.NoError(t, err)
	heard := new(road.Map)
	config := store.Config{Log: slog.New(slog.NewTextHandler(log, nil)), Registry: registry}
	storetest.KeepRoads(t, store.NewRecordStore(e, config, new(access.Tables)), heard, false)
	testkit.NoError(t, nc.Publish("carstate.roads.OTHER", []byte("no evidence, at 44.57321")))
	testkit.Await(t, "it is counted", func() bool {
		return counter(t, registry, "carstate_roads_refused_total", "profile") == float64(len(tiles)+1) &&
			counter(t, registry, "carstate_roads_refused_total", "evidence") == 1
	})
	if n := log.Count("ignoring damaged road profiles"); n != 1 || log.Count("nowhere") > 0 || log.Count("44.57321") > 0 {
		t.Errorf("lines about damaged profiles: got %d, want 1, without names:\n%s", n, log)
	}
	checkNoTile(t, log.String())
	if heard.Len() != 0 {
		t.Errorf("the stretches of damaged records: got %d, want 0", heard.Len())
	}
}

func counter(t *testing.T, r *prometheus.Registry, name, reason string) float64 {
	t.Helper()
	families, err := r.Gather()
	testkit.NoError(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && m.GetLabel()[0].GetValue() == reason {
				return m.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("%s: got no series of %s, want one", name, reason)
	return 0
}

// Nodes send each other the evidence of their cars, and only the owner of its partition stores a
// tile.
func TestRoadsOfSeveralNodes(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	url := clustertest.Account(t)
	const partitions = 16
	var engines []*Engine
	var maps []*road.Map
	for n := range 3 {
		e := open(t, Config{Partitions: partitions, URLs: url})
		for p := n; p < partitions && n < 2; p += 2 { // the third node owns no partition, like a console
			take(t, e, p)
		}
		engines, maps = append(engines, e), append(maps, new(road.Map))
	}
	var ends []func()
	for n, e := range engines {
		ends = append(ends, storetest.KeepRoads(t, store.NewRecordStore(e, store.Config{}, new(access.Tables)), maps[n], n < 2))
	}
	for q := range 6 {
		testkit.NoError(t, storetest.Learn(maps[0], 6, q, 60))
	}
	want := storetest.Learned(maps[0])
	for n := 1; n < 3; n++ {
		testkit.Await(t, fmt.Sprintf("node %d knows the road", n),
			func() bool { return len(storetest.Learned(maps[n])) == len(want) })
		storetest.SameRoads(t, storetest.Learned(maps[n]), want)
	}
	count := func() int {
		_, info := stream(t, engines[2].js, codec.Roads)
		return int(info.State.Msgs)
	}
	all := len(storetest.Tiles(t))
	ends[2]()
	if n := count(); n != 0 {
		t.Errorf("a console: got %d stored tiles, want 0", n)
	}
	ends[1]()
	some := count()
	if some == 0 || some == all {
		t.Errorf("one of two nodes: got %d stored tiles, want 1 to %d", some, all-1)
	}
	ends[0]()
	if n := count(); n != all {
		t.Errorf("two nodes: got %d stored tiles, want %d", n, all)
	}
	storetest.SameRoads(t, storetest.StoredRoads(t, engines[2]), want)
}
