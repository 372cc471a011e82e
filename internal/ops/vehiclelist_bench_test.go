package ops_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/fleet"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/throttle"
	"example.org/carstate/internal/vehicle"
)

// 1 million and 10 million vehicles, and the heap per vehicle with its vid.
func BenchmarkVehicles(b *testing.B) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	table := fleet.New()
	table.KeepNames(1 << 40)
	p := ops.New(ops.Config{
		Fleet: table, Filled: func() error { return nil }, MaxAge: 5 * time.Minute, Tables: new(access.Tables),
		Now: func() time.Time { return now },
	})
	known, empty := 0, heap()
	for _, size := range []int{1_000_000, 10_000_000} {
		for ; known < size; known++ {
			table.Put(vehicle.ID(fmt.Sprintf("NHeN4UqVsohGS%08d", known)), mixed(now, known))
		}
		each := float64(heap()-empty) / float64(size)
		for name, q := range map[string]ops.VehicleQuery{
			"trouble":       {},
			"newest":        {Sort: "newest"},
			"oldest":        {Sort: "oldest"},
			"jams":          {Driving: "jam"},
			"normal":        {Driving: "normal", Throttle: "normal", Sort: "newest"},
			"unknown":       {Reason: "unknown"},
			"thousand":      {Reason: "stale", Sort: "oldest", Limit: ops.MaxVehicles},
			"prefix of few": {Prefix: "NHeN4UqVsohGS0000012"},
			"prefix of all": {Prefix: "N"},
		} {
			b.Run(fmt.Sprintf("vehicles=%d/%s", size, name), func(b *testing.B) {
				b.ReportAllocs()
				began := testkit.ProcessorTime()
				for b.Loop() {
					if page, err := p.Vehicles(b.Context(), q); err != nil || len(page.Vehicles) == 0 {
						b.Fatalf("%+v: got %d vehicles, %v; want some", q, len(page.Vehicles), err)
					}
				}
				b.ReportMetric(each, "B/vehicle")
				b.ReportMetric(float64((testkit.ProcessorTime()-began).Microseconds())/1000/float64(b.N), "cpu-ms/op")
			})
		}
	}
}

// in bytes
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// 10 % are in a jam, 10 % stale, 10 % not driving, 6 % slow, 2 % with an anomaly, 2 % without
// telemetry.
func mixed(now time.Time, i int) fleet.Answer {
	ago := time.Duration(i*7919%300_000) * time.Millisecond
	a := fleet.Answer{
		Driving:  vehicle.DrivingVerdict{State: driving.Normal},
		Throttle: vehicle.ThrottleVerdict{System: throttle.Normal},
	}
	switch i % 50 {
	case 0:
		return fleet.Answer{}
	case 1:
		a.Throttle.System = throttle.Anomaly
	case 2, 3, 4, 5, 6:
		ago += time.Hour
	case 7, 8, 9, 10, 11:
		a.Driving = vehicle.DrivingVerdict{NotDriving: true}
	case 12, 13, 14, 15, 16:
		a.Driving.State = driving.Jam
	case 17, 18, 19:
		a.Driving.State = driving.Slow
	}
	a.Driving.Time = signal.At(now.Add(-ago))
	a.Throttle.Time = a.Driving.Time
	return a
}
