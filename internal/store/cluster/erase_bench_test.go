package cluster

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"carstate/internal/access"
	"carstate/internal/store/codec"
	"carstate/internal/vehicle"
)

// benchFleet is how many vehicles the benchmarks of a whole store have.
const benchFleet = 100_000

// fleetOn stores a state of so many vehicles.
func fleetOn(b *testing.B, vehicles int) *Keeper {
	b.Helper()
	e, err := Open(b.Context(), Config{DataDir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { e.Close() })
	k := e.NewKeeper(new(access.Tables))
	ctx, cancel := context.WithCancel(context.Background())
	ready := make(chan struct{})
	ended := make(chan error, 1)
	go func() { ended <- k.RunSources(ctx, func() { close(ready) }) }()
	<-ready
	b.Cleanup(func() { cancel(); <-ended })
	s := vehicle.Observe(vehicle.State{}, speedSample("X", time.Now().UnixMilli()))
	states := make(map[vehicle.ID]vehicle.State)
	flush := func(t *Partition) {
		if err := t.Commit(ctx, 0, states); err != nil {
			b.Fatal(err)
		}
		clear(states)
	}
	for p := range e.partitions {
		t, err := e.Take(ctx, p, "bench")
		if err != nil {
			b.Fatal(err)
		}
		for i := range vehicles {
			id := vehicle.ID(fmt.Sprintf("NHeN4UqVsohG%09d", i))
			if codec.PartitionOf(id, e.partitions) != p {
				continue
			}
			if states[id] = s; len(states) == MaxStates {
				flush(t)
			}
		}
		flush(t)
		t.Close()
	}
	return k
}

// BenchmarkErase stores a whole fleet anew, as happens once for all vehicles that
// were forgotten in a while.
func BenchmarkErase(b *testing.B) {
	k := fleetOn(b, benchFleet)
	for b.Loop() {
		if err := k.erase(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*benchFleet/b.Elapsed().Seconds(), "vehicles/s")
}

// BenchmarkBackup takes a backup of a fleet, and restores it into itself.
func BenchmarkBackup(b *testing.B) {
	k := fleetOn(b, benchFleet)
	var file bytes.Buffer
	b.Run("take", func(b *testing.B) {
		for b.Loop() {
			file.Reset()
			if _, err := k.Backup(b.Context(), &file, "v-test"); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N)*benchFleet/b.Elapsed().Seconds(), "vehicles/s")
		b.ReportMetric(float64(file.Len())/benchFleet, "bytes/vehicle")
	})
	b.Run("check", func(b *testing.B) {
		for b.Loop() {
			if _, err := CheckBackup(bytes.NewReader(file.Bytes())); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N)*benchFleet/b.Elapsed().Seconds(), "vehicles/s")
	})
	restore := func(b *testing.B, k *Keeper) {
		if _, err := k.Restore(b.Context(), bytes.NewReader(file.Bytes()), unaudited, func(int, int) {}); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("restore/nothing-new", func(b *testing.B) {
		for b.Loop() {
			restore(b, k)
		}
	})
	b.Run("restore/empty", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			empty := fleetOn(b, 0)
			b.StartTimer()
			restore(b, empty)
		}
	})
}
