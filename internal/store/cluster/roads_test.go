package cluster_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"carstate/internal/access"
	"carstate/internal/road"
	"carstate/internal/store/cluster"
	"carstate/internal/store/cluster/clustertest"
	"carstate/internal/store/codec"
	"carstate/internal/testkit"
	"carstate/internal/vehicle"
)

// A road that goes north for 12 km, over several tiles, and when it is first driven.
const (
	roadLatitude, roadLongitude = 44.5, 11.34
	roadMetres                  = 12_000
	roadTiles                   = 4 // at least
	roadBegan                   = vehicle.UnixMilli(1_795_000_000_000)
)

// learn drives cars along the road in a quarter hour, numbered from 1, at a speed. What
// they show counts when somebody drives there in a later one.
func learn(m *road.Map, cars, quarter int, kmh float64) error {
	const every = 5 * time.Second
	begin := roadBegan + vehicle.UnixMilli(quarter)*15*60*1000
	for car := range cars {
		var s vehicle.State
		id := vehicle.ID(fmt.Sprintf("car%d", car))
		for i := 0; ; i++ {
			metres := kmh / 3.6 * every.Seconds() * float64(i)
			if metres > roadMetres {
				break
			}
			x := vehicle.Sample{Vehicle: id, Time: begin.Add(time.Duration(i) * every)}
			if err := errors.Join(x.Set(vehicle.Speed, kmh), x.Set(vehicle.CurrentLatitude, roadLatitude+metres/111_195), x.Set(vehicle.CurrentLongitude, roadLongitude)); err != nil {
				return err
			}
			s = m.Observe(s, x)
		}
	}
	return nil
}

// learned is what a map knows of roads long after: the free flow of each stretch, km/h.
func learned(m *road.Map) map[vehicle.Stretch]float64 {
	known := make(map[vehicle.Stretch]float64)
	m.Conditions(roadBegan+24*3600*1000, func(c road.Condition) bool {
		if c.FreeKmh != 0 {
			known[c.Stretch] = math.Round(c.FreeKmh)
		}
		return true
	})
	return known
}

// learnedMap is a map on which every stretch of the road has a profile.
func learnedMap(t *testing.T) *road.Map {
	t.Helper()
	m := new(road.Map)
	for q := range 6 {
		if err := learn(m, 6, q, 60); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// keepRoads keeps a map, which has what is stored when it returns. The function ends it
// in order.
func keepRoads(t *testing.T, e *cluster.Engine, m *road.Map, judges bool) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	loaded := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() { e.KeepRoads(ctx, m, judges, func() { close(loaded) }) })
	<-loaded
	end = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(end)
	return end
}

// storedRoads is what a node that starts now knows of the roads.
func storedRoads(t *testing.T, e *cluster.Engine) map[vehicle.Stretch]float64 {
	t.Helper()
	m := new(road.Map)
	keepRoads(t, e, m, false)()
	return learned(m)
}

// sameRoads looks whether all of what one map knows is in another one.
func sameRoads(t *testing.T, got, want map[vehicle.Stretch]float64) {
	t.Helper()
	if len(want) < roadMetres/200 {
		t.Fatalf("the test knows %d stretches alone", len(want))
	}
	wrong := 0
	for s, kmh := range want {
		if got[s] != kmh {
			wrong++
		}
	}
	if wrong > 0 || len(got) != len(want) {
		t.Errorf("%d stretches are known, %d of the %d that should be are not or have another free flow", len(got), wrong, len(want))
	}
}

// roadsKept: what a node has learned is stored at its end, and known to the next.
func roadsKept(t *testing.T, e *cluster.Engine) {
	for p := range e.Partitions() {
		part, err := e.Take(t.Context(), p, "test")
		if err != nil {
			t.Fatal(err)
		}
		defer part.Close()
	}
	if got := storedRoads(t, e); len(got) != 0 {
		t.Fatalf("an empty store knows %d stretches", len(got))
	}
	m := learnedMap(t)
	keepRoads(t, e, m, true)()
	sameRoads(t, storedRoads(t, e), learned(m))
	// What has not changed is not stored again, and what has is.
	for q := 6; q < 12; q++ {
		if err := learn(m, 6, q, 100); err != nil {
			t.Fatal(err)
		}
	}
	keepRoads(t, e, m, true)()
	again, faster := storedRoads(t, e), 0
	sameRoads(t, again, learned(m))
	for _, kmh := range again {
		if kmh > 80 {
			faster++
		}
	}
	if faster < len(again)/2 {
		t.Errorf("cars have driven 100 km/h since, and %d of %d stretches are said to allow it", faster, len(again))
	}
}

// A restart keeps profiles, however often.
func TestRestartKeepsRoads(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	dir := t.TempDir()
	m := learnedMap(t)
	for round := range 3 {
		e, err := cluster.Open(t.Context(), cluster.Config{DataDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if round == 0 {
			keepRoads(t, e, m, true)()
		} else {
			sameRoads(t, storedRoads(t, e), learned(m))
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Kill -9 at any moment keeps what was stored before it.
func TestKilledKeepsRoads(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	dir := t.TempDir()
	m := learnedMap(t)
	for range 3 {
		c := childProcess(t, "roads", dir)
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		var complaints bytes.Buffer
		c.Stderr = &complaints
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		said := bufio.NewScanner(out).Scan()
		pause := time.Duration(rand.Int64N(int64(50 * time.Millisecond)))
		<-time.After(pause) // the moment of the kill is drawn
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		c.Wait()
		if !said {
			t.Fatalf("nothing was stored: %s", complaints.String())
		}
		e, err := cluster.Open(t.Context(), cluster.Config{DataDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		got, want := storedRoads(t, e), learned(m)
		for s := range want {
			if got[s] < want[s] { // it may have learned more since
				t.Errorf("of a stretch of %g km/h is known: %g", want[s], got[s])
			}
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// learnUntilKilled says once what learnedMap knows is stored, and goes on learning.
func learnUntilKilled(dir string) error {
	ctx := context.Background()
	e, err := cluster.Open(ctx, cluster.Config{DataDir: dir, Patience: cluster.Patience{Roads: 5 * time.Millisecond}})
	if err != nil {
		return err
	}
	m := new(road.Map)
	for q := range 6 {
		if err := learn(m, 6, q, 60); err != nil {
			return err
		}
	}
	loaded := make(chan struct{})
	go e.KeepRoads(ctx, m, true, func() { close(loaded) })
	<-loaded
	for want := len(learned(m)); ; {
		is := new(road.Map)
		reading, stop := context.WithCancel(ctx)
		e.KeepRoads(reading, is, false, stop)
		if len(learned(is)) == want {
			break
		}
	}
	fmt.Println("stored")
	for q := 6; ; q++ {
		if err := learn(m, 6, q, 60+float64(q%10)); err != nil {
			return err
		}
	}
}

// roadDir is a data directory with roads in it.
func roadDir(t *testing.T, crashed bool) (dir string, known map[vehicle.Stretch]float64) {
	t.Helper()
	running := filepath.Join(t.TempDir(), "running")
	e, err := cluster.Open(t.Context(), cluster.Config{DataDir: running})
	if err != nil {
		t.Fatal(err)
	}
	m := learnedMap(t)
	keepRoads(t, e, m, true)()
	dir = running
	if crashed {
		dir = copyDir(t, running)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, learned(m)
}

// What is damaged of the roads keeps no node from starting, and is nowhere named: a
// tile is a place.
func TestDamagedRoads(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	for name, crashed := range map[string]bool{"closed": false, "crashed": true} {
		whole, known := roadDir(t, crashed)
		content := block(t, whole, codec.Roads)
		streamDir := filepath.Join("engine", "jetstream", "$G", "streams", codec.Roads)
		const flipped = "bit %d of byte %d, the %d. of all"
		deeds := map[string]func(dir string) error{
			"no stream":      func(dir string) error { return os.RemoveAll(filepath.Join(dir, streamDir)) },
			"no records":     func(dir string) error { return os.RemoveAll(filepath.Join(dir, streamDir, "msgs")) },
			"no block":       func(dir string) error { return os.Remove(blockFile(t, dir, codec.Roads)) },
			"a short block":  func(dir string) error { return os.Truncate(blockFile(t, dir, codec.Roads), int64(len(content)/2)) },
			"no description": func(dir string) error { return os.Remove(filepath.Join(dir, streamDir, "meta.inf")) },
			"no sense": func(dir string) error {
				return os.WriteFile(filepath.Join(dir, streamDir, "meta.inf"), []byte("{"), 0o600)
			},
			"a wrong sum": func(dir string) error {
				return os.WriteFile(filepath.Join(dir, streamDir, "meta.sum"), []byte("0011223344556677"), 0o600)
			},
			"garbage for an index": func(dir string) error {
				return os.WriteFile(filepath.Join(dir, streamDir, "msgs", "index.db"), []byte("garbage"), 0o600)
			},
		}
		rnd := rand.New(rand.NewPCG(1, 2))
		for i := range 12 {
			at, bit := rnd.IntN(len(content)), rnd.IntN(8)
			deeds[fmt.Sprintf(flipped, bit, at, i)] = func(dir string) error {
				bad := bytes.Clone(content)
				bad[at] ^= 1 << bit
				return os.WriteFile(blockFile(t, dir, codec.Roads), bad, 0o600)
			}
		}
		for deed, do := range deeds {
			t.Run(name+"/"+deed, func(t *testing.T) {
				t.Parallel()
				dir := copyDir(t, whole)
				if err := do(dir); err != nil {
					t.Fatal(err)
				}
				log := new(testkit.Buffer)
				e, err := cluster.Open(t.Context(), cluster.Config{DataDir: dir, Log: slog.New(slog.NewTextHandler(log, nil))})
				if err != nil {
					t.Fatal(err)
				}
				defer e.Close()
				got := storedRoads(t, e)
				for s, kmh := range got {
					if known[s] != kmh {
						t.Errorf("a stretch of %g km/h has %g", known[s], kmh)
					}
				}
				if strings.HasPrefix(deed, flipped[:4]) && len(got) < len(known)/2 {
					t.Errorf("%d of %d stretches are known: one tile is damaged", len(got), len(known))
				}
				// It learns, and stores, again.
				m := learnedMap(t)
				keepRoads(t, e, m, true)()
				sameRoads(t, storedRoads(t, e), learned(m))
				checkNoTile(t, log.String(), m)
			})
		}
	}
}

// checkNoTile looks for the names of tiles in a log.
func checkNoTile(t *testing.T, log string, m *road.Map) {
	t.Helper()
	for tile := range tilesOf(t, m) {
		if bytes.Contains([]byte(log), []byte(tile)) {
			t.Errorf("the log names a tile:\n%s", log)
			return
		}
	}
}

// tilesOf are the names of the tiles of a map, as another one would store them.
func tilesOf(t *testing.T, m *road.Map) map[string]bool {
	t.Helper()
	tiles := make(map[string]bool)
	for tile := range learnedMap(t).Changed(func(road.Tile) bool { return true }) {
		tiles[tile.String()] = true
	}
	if len(tiles) < roadTiles || m.Len() == 0 {
		t.Fatalf("the road is on %d tiles", len(tiles))
	}
	return tiles
}

// A profile that was never one is left out, counted, and said once; so is a message.
func TestRefusedRoads(t *testing.T) {
	t.Parallel()
	url := clustertest.External(t)
	log, registry := new(testkit.Buffer), prometheus.NewRegistry()
	e, err := cluster.Open(t.Context(), cluster.Config{URLs: url, Partitions: 1, Log: slog.New(slog.NewTextHandler(log, nil)), Registry: registry})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	m := learnedMap(t)
	tiles := tilesOf(t, m)
	for tile := range tiles {
		if _, err := nc.Request("road."+tile, []byte("no profile"), time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := nc.Request("road.nowhere", []byte("no profile of no tile"), time.Minute); err != nil {
		t.Fatal(err)
	}
	heard := new(road.Map)
	keepRoads(t, e, heard, false)
	if err := nc.Publish("carstate.roads.OTHER", []byte("no evidence, at 44.5")); err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, "it is counted", func() bool {
		return counter(t, registry, "carstate_roads_refused_total", "profile") == float64(len(tiles)+1) && counter(t, registry, "carstate_roads_refused_total", "evidence") == 1
	})
	if n := log.Count("profiles of roads are damaged"); n != 1 || log.Count("nowhere") > 0 || log.Count("44.5") > 0 {
		t.Errorf("it is said %d times:\n%s", n, log)
	}
	checkNoTile(t, log.String(), m)
	if heard.Len() != 0 {
		t.Errorf("%d stretches came of it", heard.Len())
	}
	var backup bytes.Buffer
	if _, err := e.Backup(t.Context(), &backup, "v-test"); err != nil {
		t.Fatal(err)
	}
	if info, err := cluster.CheckBackup(&backup); err != nil || info.Kinds["road"] != 0 {
		t.Errorf("in the backup: %+v, %v", info, err)
	}
}

func counter(t *testing.T, r *prometheus.Registry, name, reason string) float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && m.GetLabel()[0].GetValue() == reason {
				return m.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("%s has no %s", name, reason)
	return 0
}

// Nodes of a cluster tell each other what their cars show, and nobody hears himself.
// Each tile is stored by the node that folds its partition.
func TestRoadsOfSeveralNodes(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	url := clustertest.External(t)
	const partitions = 16
	var engines []*cluster.Engine
	var maps []*road.Map
	for n := range 3 {
		e, err := cluster.Open(t.Context(), cluster.Config{URLs: url, Partitions: partitions})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
		for p := n; p < partitions && n < 2; p += 2 { // the third is a console
			part, err := e.Take(t.Context(), p, fmt.Sprint(n))
			if err != nil {
				t.Fatal(err)
			}
			defer part.Close()
		}
		engines, maps = append(engines, e), append(maps, new(road.Map))
	}
	var ends []func()
	for n, e := range engines {
		ends = append(ends, keepRoads(t, e, maps[n], n < 2))
	}
	for q := range 6 { // the first node's cars alone show something
		if err := learn(maps[0], 6, q, 60); err != nil {
			t.Fatal(err)
		}
	}
	want := learned(maps[0])
	for n := 1; n < 3; n++ {
		testkit.Await(t, fmt.Sprintf("node %d knows the road", n), func() bool { return len(learned(maps[n])) == len(want) })
		sameRoads(t, learned(maps[n]), want)
	}
	count := func() int {
		var backup bytes.Buffer
		if _, err := engines[2].Backup(t.Context(), &backup, "v-test"); err != nil {
			t.Fatal(err)
		}
		info, err := cluster.CheckBackup(&backup)
		if err != nil {
			t.Fatal(err)
		}
		return info.Kinds["road"]
	}
	all := len(tilesOf(t, maps[0]))
	ends[2]()
	if n := count(); n != 0 {
		t.Errorf("a console has stored %d tiles", n)
	}
	ends[1]()
	some := count()
	if some == 0 || some == all {
		t.Errorf("one of two nodes has stored %d tiles of %d", some, all)
	}
	ends[0]()
	if n := count(); n != all {
		t.Errorf("two nodes have stored %d tiles of %d", n, all)
	}
	sameRoads(t, storedRoads(t, engines[2]), want)
}

// A restored node knows its roads at once, and keeps what it has learned itself.
func TestRestoreKeepsRoads(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	a := clustertest.Embedded(t)
	m := learnedMap(t)
	keepRoads(t, a, m, true)()
	var backup bytes.Buffer
	if _, err := a.Backup(t.Context(), &backup, "v-test"); err != nil {
		t.Fatal(err)
	}
	tiles := len(tilesOf(t, m))

	b := clustertest.Embedded(t)
	k, _ := keeper(t, b)
	restored := new(road.Map)
	end := keepRoads(t, b, restored, true)
	for range 2 {
		report, err := k.Restore(t.Context(), bytes.NewReader(backup.Bytes()), func(_ access.BackupInfo, merge func() error) error { return merge() }, func(int, int) {})
		if err != nil {
			t.Fatal(err)
		}
		if n := report.Kinds["road"]; n != (access.RestoreCount{Restored: tiles}) && n != (access.RestoreCount{Kept: tiles}) {
			t.Errorf("restored: %+v", n)
		}
		testkit.Await(t, "the running node knows the roads", func() bool { return len(learned(restored)) == len(learned(m)) })
		sameRoads(t, learned(restored), learned(m))
	}
	end()
	sameRoads(t, storedRoads(t, b), learned(m))
}
