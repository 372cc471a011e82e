package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"sync"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/road"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/backup"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

// The road goes north for 12 km and crosses several tiles.
const (
	roadLatitude, roadLongitude = 44.5, 11.34
	roadMetres                  = 12_000
	roadTiles                   = 4 // the minimum that the road crosses
	roadBegan                   = signal.UnixMilli(1_795_000_000_000)
)

// Learn's cars drive along the road at kmh, and start quarter × 15 minutes after roadBegan. The map
// adds their speed to the free flow of a stretch as soon as a car drives there in a later quarter
// hour.
func Learn(m *road.Map, cars, quarter int, kmh float64) error {
	const every = 5 * time.Second
	begin := roadBegan + signal.UnixMilli(quarter)*15*60*1000
	for car := range cars {
		var s vehicle.State
		id := vehicle.ID(fmt.Sprintf("car%d", car))
		for i := 0; ; i++ {
			metres := kmh / 3.6 * every.Seconds() * float64(i)
			if metres > roadMetres {
				break
			}
			x := vehicle.Sample{Vehicle: id, Time: begin.Add(time.Duration(i) * every)}
			if err := errors.Join(
				x.Set(signal.Speed, kmh), x.Set(signal.CurrentLatitude, roadLatitude+metres/111_195),
				x.Set(signal.CurrentLongitude, roadLongitude),
			); err != nil {
				return err
			}
			m.Fold(&s, &x, false)
		}
	}
	return nil
}

// Learned returns each known free flow, in whole km/h, a day after roadBegan, when all drives are
// over.
func Learned(m *road.Map) map[driving.Stretch]float64 {
	known := make(map[driving.Stretch]float64)
	m.ConditionsIn(road.World, roadBegan+24*3600*1000, func(c road.Condition) {
		if c.FreeKmh != 0 {
			known[c.Stretch] = math.Round(c.FreeKmh)
		}
	})
	return known
}

// LearnedMap has a profile for every stretch of the road.
func LearnedMap(t *testing.T) *road.Map {
	t.Helper()
	m := new(road.Map)
	for q := range 6 {
		testkit.NoError(t, Learn(m, 6, q, 60))
	}
	return m
}

// KeepRoads returns once m has all stored profiles. end ends it in an orderly way.
func KeepRoads(t *testing.T, k *store.RecordStore, m *road.Map, folds bool) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	loaded := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() { k.KeepRoads(ctx, m, folds, func() { close(loaded) }) })
	<-loaded
	end = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(end)
	return end
}

// StoredRoads returns what a node that starts now learns from the stored profiles (see [Learned]).
func StoredRoads(t *testing.T, e store.Engine) map[driving.Stretch]float64 {
	t.Helper()
	m := new(road.Map)
	KeepRoads(t, idle(e), m, false)()
	return Learned(m)
}

// SameRoads requires at least one stretch for every 200 m of the road.
func SameRoads(t *testing.T, got, want map[driving.Stretch]float64) {
	t.Helper()
	if len(want) < roadMetres/200 {
		t.Fatalf("the stretches that the test has learned: got %d, want %d or more", len(want), roadMetres/200)
	}
	wrong := 0
	for s, kmh := range want {
		if got[s] != kmh {
			wrong++
		}
	}
	if wrong > 0 || len(got) != len(want) {
		t.Errorf(
			"%d stretches are known, %d of the %d that should be are not or have another free flow",
			len(got), wrong, len(want),
		)
	}
}

// The profiles that a node has learned are stored when it ends, and the next node loads them.
func roadsKept(t *testing.T, e store.Engine) {
	takeAll(t, e)
	if got := StoredRoads(t, e); len(got) != 0 {
		t.Fatalf("an empty store has %d stretches, want none", len(got))
	}
	m := LearnedMap(t)
	KeepRoads(t, idle(e), m, true)()
	SameRoads(t, StoredRoads(t, e), Learned(m))
	// Profiles that change after the first store are stored, too.
	for q := 6; q < 12; q++ {
		testkit.NoError(t, Learn(m, 6, q, 100))
	}
	KeepRoads(t, idle(e), m, true)()
	again, faster := StoredRoads(t, e), 0
	SameRoads(t, again, Learned(m))
	for _, kmh := range again {
		if kmh > 70 { // a few quarter hours raise a free flow of 60 km/h by a quarter
			faster++
		}
	}
	if faster < len(again)/2 {
		t.Errorf("the stretches that allow more than 70 km/h: got %d of %d, want at least half", faster, len(again))
	}
}

// The roads in a box are forgotten by a node that starts before their tiles are stored again, by a
// running node, and in a backup, and are learned again.
func roadsForgotten(t *testing.T, e store.Engine) {
	takeAll(t, e)
	m := LearnedMap(t)
	want := Learned(m)
	k := idle(e)
	KeepRoads(t, k, m, true)()
	south := road.Box{West: 11, South: 44, East: 12, North: roadLatitude + roadMetres/2/111_195.}
	testkit.NoError(t, k.ForgetRoads(t.Context(), south))
	maps.DeleteFunc(want, func(s driving.Stretch, _ float64) bool {
		latitude, _ := road.Centre(s)
		return latitude <= south.North
	})
	if n := len(Learned(m)); len(want) == 0 || len(want) > n*2/3 {
		t.Fatalf("the stretches left: got %d of %d, want some, and two thirds at most", len(want), n)
	}
	SameRoads(t, StoredRoads(t, e), want)
	for range 2 { // a map that knows them, and the tiles that it then stores
		KeepRoads(t, idle(e), m, true)()
		SameRoads(t, Learned(m), want)
		SameRoads(t, StoredRoads(t, e), want)
	}
	_, err := e.Store(t.Context(), "ROADS", []store.Write{{Subject: "road.forgotten", Record: []byte("damaged")}})
	testkit.NoError(t, err)
	end := KeepRoads(t, k, m, true)
	testkit.NoError(t, k.ForgetRoads(t.Context(), road.World))
	testkit.Await(t, "the running node has forgotten", func() bool { return len(Learned(m)) == 0 })
	for q := range 6 {
		testkit.NoError(t, Learn(m, 6, q, 60))
	}
	end()
	testkit.Await(t, "a server that may lag has the roads", func() bool {
		KeepRoads(t, k, m, true)() // the last store of a node has a limit of time
		return maps.Equal(StoredRoads(t, e), Learned(m))
	})
	if info, err := backup.Check(bytes.NewReader(BackupOf(t, backups(k, e)))); err != nil || info.Kinds["road"] != len(Tiles(t)) {
		t.Errorf("Check: got %+v, error %v, want %d tiles", info, err, len(Tiles(t)))
	}
}

// The feeds of idle do not run.
func idle(e store.Engine) *store.RecordStore {
	return store.NewRecordStore(e, store.Config{}, new(access.Tables))
}

func backups(k *store.RecordStore, e store.Engine) *backup.Service {
	return backup.New(k, e, store.Config{}, new(access.Tables))
}

// A node stores only the profiles of roads in partitions that it owns.
func takeAll(t *testing.T, e store.Engine) {
	t.Helper()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for p := range e.Partitions() {
		part := Take(t, e, p)
		t.Cleanup(part.Close)
		part.Live(ended, nil) // replies to questions
	}
}

// Profiles survive several restarts.
func restartKeepsRoads(t *testing.T, open Open) {
	dir := t.TempDir()
	m := LearnedMap(t)
	for round := range 3 {
		e := open(t, store.Config{DataDir: dir})
		if round == 0 {
			var parts []store.Partition
			for p := range e.Partitions() {
				parts = append(parts, Take(t, e, p))
			}
			KeepRoads(t, idle(e), m, true)()
			for _, p := range parts {
				p.Close()
			}
		} else {
			SameRoads(t, StoredRoads(t, e), Learned(m))
		}
		testkit.NoError(t, e.Close())
	}
}

// A running node uses restored profiles at once, and keeps its own.
func restoreKeepsRoads(t *testing.T, open Open) {
	a := opened(t, open, store.Config{DataDir: t.TempDir()})
	m := LearnedMap(t)
	takeAll(t, a)
	KeepRoads(t, idle(a), m, true)()
	file := BackupOf(t, backups(idle(a), a))
	tiles := len(Tiles(t))

	b := opened(t, open, store.Config{DataDir: t.TempDir()})
	k, _ := RunKeeper(t, b, store.Config{})
	takeAll(t, b)
	restored := new(road.Map)
	end := KeepRoads(t, k, restored, true)
	for range 2 {
		report := RestoreInto(t, backups(k, b), file)
		if n := report.Kinds["road"]; n != (access.RestoreCount{Restored: tiles}) && n != (access.RestoreCount{Kept: tiles}) {
			t.Errorf("roads: got %+v, want %d restored or kept", n, tiles)
		}
		testkit.Await(t, "the running node knows the roads", func() bool { return len(Learned(restored)) == len(Learned(m)) })
		SameRoads(t, Learned(restored), Learned(m))
	}
	end()
	SameRoads(t, StoredRoads(t, b), Learned(m))
}

func Tiles(t *testing.T) map[string]bool {
	t.Helper()
	tiles := make(map[string]bool)
	for tile := range LearnedMap(t).Changed(func(road.Tile) bool { return true }) {
		tiles[tile.String()] = true
	}
	if len(tiles) < roadTiles {
		t.Fatalf("the tiles that the road crosses: got %d, want at least %d", len(tiles), roadTiles)
	}
	return tiles
}
