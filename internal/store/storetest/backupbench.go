package storetest

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"carstate/internal/access"
	"carstate/internal/store"
	"carstate/internal/store/codec"
	"carstate/internal/vehicle"
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
			if err := t.Commit(b.Context(), 0, states); err != nil {
				b.Fatal(err)
			}
			clear(states)
		}
		for i := range vehicles {
			id := vehicle.ID(fmt.Sprintf("NHeN4UqVsohG%09d", i))
			if codec.PartitionOf(id, n.Partitions()) != p {
				continue
			}
			if states[id] = &s; len(states) == store.MaxStates {
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
	var file bytes.Buffer
	b.Run("take", func(b *testing.B) {
		for b.Loop() {
			file.Reset()
			if _, err := n.Backup(b.Context(), &file, "v-test"); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N)*fleet/b.Elapsed().Seconds(), "vehicles/s")
		b.ReportMetric(float64(file.Len())/fleet, "bytes/vehicle")
	})
	b.Run("check", func(b *testing.B) {
		for b.Loop() {
			if _, err := store.CheckBackup(bytes.NewReader(file.Bytes())); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N)*fleet/b.Elapsed().Seconds(), "vehicles/s")
	})
	restore := func(b *testing.B, n *Node) {
		if _, err := n.Restore(
			b.Context(), bytes.NewReader(file.Bytes()), access.BackupTrust{Anybody: true}, unaudited,
			func(int, int) {},
		); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("restore/nothing-new", func(b *testing.B) {
		for b.Loop() {
			restore(b, n)
		}
	})
	b.Run("restore/empty", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			empty := fleetOn(b, open, 0)
			b.StartTimer()
			restore(b, empty)
		}
	})
}
