package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"carstate/internal/fleet"
	"carstate/internal/vehicle"
)

// newestFirst lists every vehicle.
func newestFirst(a fleet.Answer) (fleet.Order, bool) {
	return fleet.Order{0, -int64(a.Driving.Time)}, true
}

func jamsOnly(a fleet.Answer) (fleet.Order, bool) {
	return fleet.Order{0, -int64(a.Driving.Time)}, a.Driving.State == vehicle.TrafficJam
}

// named returns a table that keeps vids, with a number of vehicles: each tenth is in a jam, and
// four share each time.
func named(vehicles int) *fleet.Table {
	t := fleet.New()
	t.KeepNames(1 << 40)
	for i := range vehicles {
		state := vehicle.NormalDriving
		if i%10 == 0 {
			state = vehicle.TrafficJam
		}
		t.Put(vehicle.ID(fmt.Sprintf("NHeN4UqVsohGS%08d", i)), fleet.Answer{Driving: vehicle.DrivingVerdict{State: state, Time: vehicle.UnixMilli(1 + i/4)}})
	}
	return t
}

// TestFirstPagesThroughAList: the pages of a list hold every vehicle of it once and in order.
func TestFirstPagesThroughAList(t *testing.T) {
	const vehicles = 5000
	table := named(vehicles)
	for _, c := range []struct {
		name string
		q    fleet.Question
		want int
	}{
		{"all", fleet.Question{Match: newestFirst}, vehicles},
		{"jams", fleet.Question{Match: jamsOnly}, vehicles / 10},
		{"a prefix", fleet.Question{Match: newestFirst, Prefix: "NHeN4UqVsohGS000012"}, 100},
		{"a prefix of jams", fleet.Question{Match: jamsOnly, Prefix: "NHeN4UqVsohGS000012"}, 10},
		{"a prefix of none", fleet.Question{Match: newestFirst, Prefix: "X"}, 0},
		{"a prefix longer than any vid", fleet.Question{Match: newestFirst, Prefix: strings.Repeat("N", 300)}, 0},
	} {
		var place *fleet.Place
		seen, last := map[vehicle.ID]bool{}, vehicle.UnixMilli(vehicles)
		for pages := 0; ; pages++ {
			list, matched, next, err := table.First(t.Context(), c.q, place, 37)
			if err != nil || matched != c.want || len(list) > 37 || pages > c.want {
				t.Fatalf("%s: %d of %d matched, %d listed, %v", c.name, matched, c.want, len(list), err)
			}
			for _, l := range list {
				if seen[l.ID] || l.Driving.Time > last || !strings.HasPrefix(string(l.ID), c.q.Prefix) {
					t.Fatalf("%s: %+v comes twice, or after %d", c.name, l, last)
				}
				seen[l.ID], last = true, l.Driving.Time
			}
			if place = next; place == nil {
				break
			}
		}
		if len(seen) != c.want {
			t.Errorf("%s: %d of %d vehicles", c.name, len(seen), c.want)
		}
		each := 0
		if err := table.Each(t.Context(), c.q, func(l fleet.Listed) error {
			if each++; !seen[l.ID] {
				return fmt.Errorf("%s is in no page", l.ID)
			}
			return nil
		}); err != nil || each != c.want {
			t.Errorf("%s: an export has %d of %d vehicles: %v", c.name, each, c.want, err)
		}
	}
	ended := errors.New("ended")
	if err := table.Each(t.Context(), fleet.Question{Match: newestFirst}, func(fleet.Listed) error { return ended }); !errors.Is(err, ended) {
		t.Errorf("the error of an export is %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, _, err := table.First(ctx, fleet.Question{Match: newestFirst}, nil, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("a list for somebody who has gone: %v", err)
	}
}

func all(t *testing.T, table *fleet.Table) (ids []vehicle.ID) {
	t.Helper()
	list, matched, _, err := table.First(t.Context(), fleet.Question{Match: newestFirst}, nil, 10_000)
	if err != nil || matched != len(list) || matched != table.Len() {
		t.Fatalf("%d listed, %d matched, %d known: %v", len(list), matched, table.Len(), err)
	}
	for _, l := range list {
		ids = append(ids, l.ID)
	}
	slices.Sort(ids)
	return ids
}

// TestListAfterVehiclesWent: what is deleted, expired or cleared is in no list, and what comes
// back is in it once.
func TestListAfterVehiclesWent(t *testing.T) {
	table := fleet.New()
	table.KeepNames(1 << 40)
	for _, id := range []vehicle.ID{"A", "B", "C", vehicle.ID(strings.Repeat("D", vehicle.MaxReportingID))} {
		table.Put(id, answer(noon))
	}
	table.Put("B", answer(noon.Add(time.Hour)))
	table.Delete("A")
	table.Delete("Nobody")
	if ids := all(t, table); len(ids) != 3 || ids[0] != "B" || ids[1] != "C" || len(ids[2]) != vehicle.MaxReportingID {
		t.Errorf("after a delete: %q", ids)
	}
	table.Expire(noon.Add(time.Minute))
	if ids := all(t, table); !slices.Equal(ids, []vehicle.ID{"B"}) {
		t.Errorf("after some expired: %q", ids)
	}
	table.Put("C", answer(noon))
	table.Put("A", answer(noon))
	if ids := all(t, table); !slices.Equal(ids, []vehicle.ID{"A", "B", "C"}) {
		t.Errorf("after some came back: %q", ids)
	}
	table.Clear()
	table.Put("Z", answer(noon))
	if ids := all(t, table); !slices.Equal(ids, []vehicle.ID{"Z"}) {
		t.Errorf("after all was cleared: %q", ids)
	}
}

// TestListOfVidsWithoutRoom leaves them out, counts them, and has room again for others once
// vehicles went.
func TestListOfVidsWithoutRoom(t *testing.T) {
	table := fleet.New()
	table.KeepNames(10)
	for i := range 20 {
		table.Put(vehicle.ID(fmt.Sprintf("V%d", i%10)), answer(noon))
	}
	seen, place := 0, (*fleet.Place)(nil)
	for {
		list, matched, next, err := table.First(t.Context(), fleet.Question{Match: newestFirst}, place, 2)
		if err != nil || matched != 10 || table.Named() != 3 || table.Len() != 10 {
			t.Fatalf("%d matched, %d named, %v", matched, table.Named(), err)
		}
		seen += len(list)
		if place = next; place == nil {
			break
		}
	}
	if seen != 3 {
		t.Errorf("%d vehicles are listed", seen)
	}
	table.Clear()
	table.Put("W", answer(noon))
	if ids := all(t, table); !slices.Equal(ids, []vehicle.ID{"W"}) || table.Named() != 1 {
		t.Errorf("%q", ids)
	}
}

// TestListWhileVehiclesComeAndGo: however they meet, a list has in the end what the table has.
func TestListWhileVehiclesComeAndGo(t *testing.T) {
	table := fleet.New()
	table.KeepNames(1 << 40)
	var working sync.WaitGroup
	for w := range 4 {
		working.Go(func() {
			for i := range 20_000 {
				id := vehicle.ID(fmt.Sprintf("V%d", (i*7+w)%50))
				if (i+w)%2 == 0 {
					table.Put(id, answer(noon))
				} else {
					table.Delete(id)
				}
			}
		})
	}
	working.Wait()
	if ids := all(t, table); len(slices.Compact(ids)) != table.Len() {
		t.Errorf("%d of %d vehicles are listed", len(ids), table.Len())
	}
}

// BenchmarkFirst measures the first page of a list of a million vehicles, and what their
// vids cost.
func BenchmarkFirst(b *testing.B) {
	const vehicles = 1_000_000
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	table := named(vehicles)
	runtime.GC()
	runtime.ReadMemStats(&after)
	for _, c := range []struct {
		name string
		q    fleet.Question
	}{
		{"all", fleet.Question{Match: newestFirst}},
		{"tenth", fleet.Question{Match: jamsOnly}},
		{"prefix of few", fleet.Question{Match: newestFirst, Prefix: "NHeN4UqVsohGS0000012"}},
		{"prefix of all", fleet.Question{Match: newestFirst, Prefix: "N"}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			began := processorTime()
			for b.Loop() {
				if _, _, _, err := table.First(b.Context(), c.q, nil, 100); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/vehicles, "B/vehicle")
			b.ReportMetric(float64((processorTime()-began).Microseconds())/1000/float64(b.N), "cpu-ms/op")
		})
	}
}

// processorTime is what this process has had of all processors: a wall clock says little on a
// busy machine.
func processorTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err) // the arguments are right
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
