package fleet_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"example.org/carstate/internal/fleet"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

// `make bench` uses the metrics. The delays of reads of an unchanged table are those of the machine.
func BenchmarkTable(b *testing.B) {
	for _, size := range []struct {
		name string
		n    int
	}{{"100k", 100_000}, {"1M", 1_000_000}, {"10M", 10_000_000}} {
		b.Run("vehicles="+size.name, func(b *testing.B) {
			for b.Loop() {
				measureTable(b, size.n)
			}
		})
	}
}

func BenchmarkFill(b *testing.B) {
	const n = 1_000_000
	ids := make([]vehicle.ID, n)
	for i := range ids {
		ids[i] = vehicle.ID(fmt.Sprintf("NHeN4UqVsohGS%08d", i))
	}
	for name, room := range map[string]int{"growing": 0, "sized": n} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				t := fleet.New()
				t.Grow(room)
				for _, id := range ids {
					t.Put(id, answer(noon))
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/vehicle")
		})
	}
}

func measureTable(b *testing.B, n int) {
	late := func(read, grow *fleet.Table) []time.Duration {
		reading, stop := context.WithCancel(b.Context())
		read.Put("NHeN4UqVsohGS00000000", answer(noon))
		all := make(chan []time.Duration, 1)
		go func() { all <- readOnSchedule(reading, read, n) }()
		for i := range n {
			grow.Put(vehicle.ID(fmt.Sprintf("NHeN4UqVsohGS%08d", i)), answer(noon))
		}
		stop()
		took := <-all
		slices.Sort(took)
		return took
	}
	milliseconds := func(d time.Duration) float64 { return d.Seconds() * 1e3 }
	quantile := func(took []time.Duration, q float64) float64 {
		return milliseconds(took[int(q*float64(len(took)-1))])
	}

	still := late(fleet.New(), fleet.New())
	b.ReportMetric(quantile(still, 0.999), "still-p99.9-ms")
	still = nil
	empty, idle := heapInUse(), collectionCPU()
	table := fleet.New()
	reads := late(table, table)
	b.ReportMetric(quantile(reads, 0.999), "read-p99.9-ms")
	b.ReportMetric(quantile(reads, 1), "read-max-ms")
	reads = nil
	full := heapInUse() - empty
	b.ReportMetric(float64(full)/float64(n), "B/vehicle")
	b.ReportMetric(milliseconds(max(0, collectionCPU()-idle)), "collection-ms")
	for i := n / 10; i < n; i++ {
		table.Delete(vehicle.ID(fmt.Sprintf("NHeN4UqVsohGS%08d", i)))
	}
	b.ReportMetric(100*float64(heapInUse()-empty)/float64(full), "%left")
	runtime.KeepAlive(table)
}

// The delay of a read includes waiting for the one before.
func readOnSchedule(ctx context.Context, t *fleet.Table, vehicles int) (late []time.Duration) {
	random := rand.New(rand.NewPCG(1, 2))
	vid := []byte("NHeN4UqVsohGS00000000")
	begin := time.Now()
	for n := time.Duration(0); n%1000 != 0 || n == 0 || ctx.Err() == nil; n++ {
		due := n * 10 * time.Microsecond
		for time.Since(begin) < due {
			runtime.Gosched() // other goroutines use this processor as well
		}
		for k, d := len(vid)-1, random.IntN(vehicles); k > 12; k, d = k-1, d/10 {
			vid[k] = '0' + byte(d%10)
		}
		t.Get(vid)
		late = append(late, time.Since(begin)-due)
	}
	return late
}

func heapInUse() uint64 {
	debug.FreeOSMemory() // runs a garbage collection
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}

// Other work only adds to the time, so the least of several measurements counts.
func collectionCPU() time.Duration {
	least := time.Duration(math.MaxInt64)
	for range 5 {
		before := testkit.ProcessorTime()
		runtime.GC()
		least = min(least, testkit.ProcessorTime()-before)
	}
	return least
}
