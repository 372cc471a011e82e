package fleet_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/fleet"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/throttle"
	"example.org/carstate/internal/vehicle"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func answer(t time.Time) fleet.Answer {
	return fleet.Answer{
		Driving:  vehicle.DrivingVerdict{State: driving.Jam, Time: signal.At(t)},
		Throttle: vehicle.ThrottleVerdict{System: throttle.Normal, Time: signal.At(t)},
	}
}

func TestTableIsAMap(t *testing.T) {
	ids := rapid.SampledFrom([]vehicle.ID{"A", "a", "B", "AB", "BA", "0", vehicle.ID(strings.Repeat("Z", 256))})
	// A driving time beyond 2⁵⁹ is stored as 2⁵⁹.
	verdictTime := rapid.Map(rapid.OneOf(rapid.Int64Range(0, 100), rapid.Int64Range(-1<<59+1, 1<<59-1)),
		func(n int64) signal.UnixMilli { return signal.UnixMilli(n) })
	rapid.Check(t, func(t *rapid.T) {
		table, model := fleet.New(), map[vehicle.ID]fleet.Answer{}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				id := ids.Draw(t, "id")
				a := fleet.Answer{
					Driving: vehicle.DrivingVerdict{
						State:      driving.State(rapid.IntRange(0, 3).Draw(t, "state")),
						NotDriving: rapid.Bool().Draw(t, "not driving"),
						Time:       verdictTime.Draw(t, "driving time"),
					},
					Throttle: vehicle.ThrottleVerdict{
						System: throttle.System(rapid.IntRange(0, 1).Draw(t, "throttle")),
						Time:   verdictTime.Draw(t, "throttle time"),
					},
				}
				table.Put(id, a)
				model[id] = a
			},
			"delete": func(t *rapid.T) {
				id := ids.Draw(t, "id")
				table.Delete(id)
				delete(model, id)
			},
			"expire": func(t *rapid.T) {
				before, want := verdictTime.Draw(t, "before"), 0
				for id, a := range model {
					if a.Driving.Time < before && a.Throttle.Time < before {
						delete(model, id)
						want++
					}
				}
				if n := table.Expire(before.Time()); n != want {
					t.Fatalf("expired %d, want %d", n, want)
				}
			},
			"": func(t *rapid.T) {
				if table.Len() != len(model) {
					t.Fatalf("len %d, want %d", table.Len(), len(model))
				}
				id := ids.Draw(t, "asked")
				if got := table.Get([]byte(id)); got != model[id] {
					t.Fatalf("%s: %+v, want %+v", id, got, model[id])
				}
			},
		})
	})
}

func TestGetAllocatesNothing(t *testing.T) {
	table := fleet.New()
	known, unknown := []byte(strings.Repeat("A", 200)), []byte("B")
	table.Put(vehicle.ID(known), answer(noon))
	for _, vid := range [][]byte{known, unknown} {
		if n := testing.AllocsPerRun(100, func() { table.Get(vid) }); n != 0 {
			t.Errorf("%d bytes of vid: got %v allocations, want 0", len(vid), n)
		}
	}
}

// An answer's two verdicts have the same time, so a reader can tell whole answers.
func TestConcurrent(t *testing.T) {
	table := fleet.New()
	steady := vehicle.ID("STEADY")
	table.Put(steady, answer(noon))
	stop := make(chan struct{})
	var writers, others sync.WaitGroup
	for w := range 3 {
		writers.Go(func() {
			for i := range 2000 {
				id := vehicle.ID(fmt.Sprintf("V%d", i%50))
				table.Put(id, answer(noon.Add(time.Duration(w)*time.Minute)))
				table.Put(steady, answer(noon.Add(time.Duration(i)*time.Second)))
				if i%7 == 0 {
					table.Delete(id)
				}
			}
		})
	}
	until := func(f func()) {
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					f()
				}
			}
		})
	}
	for range 2 {
		until(func() {
			a := table.Get([]byte(steady))
			if a.Driving.Time != a.Throttle.Time || a.Driving.Time < signal.At(noon) {
				t.Errorf("got %+v, want one of the answers that were put", a)
			}
		})
	}
	until(func() { table.Expire(noon); table.Len() })
	writers.Wait()
	close(stop)
	others.Wait()
}
