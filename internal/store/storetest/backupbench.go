package storetest

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/testkit"
	"example.org/carstate/internal/vehicle"
)

// fleetOn starts a node and stores one state for each of the given number of vehicles.
func fleetOn(b *testing.B, open Open, vehicles int) *Node {
	b.Helper()
	c := store.Config{DataDir: b.TempDir()}
	n := Start(b, open(b, c), c)
	s := vehicle.Observe(vehicle.State{}, Speed("X", time.Now().UnixMilli(), 50))
	states := make(map[vehicle.ID]*vehicle.State)
	for p := range n.Partitions() {
		t := Take(b, n.Engine, p)
		flush := func() {
			testkit.NoError(b, t.Commit(b.Context(), 0, Packed(states), false))
			clear(states)
		}
		for i := range vehicles {
			id := vehicle.ID(fmt.Sprintf("NHeN4UqVsohG%09d", i))
			if codec.PartitionOf(id, n.Partitions()) != p {
				continue
			}
			if states[id] = &s; len(states) == store.BatchStates {
				flush()
			}
		}
		flush()
		t.Close()
	}
	return n
}

// Backups measures how long it takes to take a backup of a fleet, to check it, and to restore it
// into the same store and into an empty store.
func Backups(b *testing.B, open Open) {
	const fleet = 100_000
	n := fleetOn(b, open, fleet)
	var file []byte
	b.Run("take", func(b *testing.B) {
		for b.Loop() {
			file = BackupOf(b, n)
		}
		b.ReportMetric(float64(b.N)*fleet/b.Elapsed().Seconds(), "vehicles/s")
		b.ReportMetric(float64(len(file))/fleet, "bytes/vehicle")
	})
	b.Run("check", func(b *testing.B) {
		for b.Loop() {
			_, err := store.CheckBackup(bytes.NewReader(file))
			testkit.NoError(b, err)
		}
		b.ReportMetric(float64(b.N)*fleet/b.Elapsed().Seconds(), "vehicles/s")
	})
	b.Run("restore/nothing-new", func(b *testing.B) {
		for b.Loop() {
			RestoreInto(b, n, file)
		}
	})
	b.Run("restore/empty", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			empty := fleetOn(b, open, 0)
			b.StartTimer()
			RestoreInto(b, empty, file)
		}
	})
}
