package fleet_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/fleet"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/throttle"
	"example.org/carstate/internal/vehicle"
)

var everyone = fleet.Question{
	Rank: func(vehicle.Outcome, vehicle.Outcome, driving.State, throttle.System) int8 { return 0 },
	Now:  func() signal.UnixMilli { return 0 },
}

func jams() fleet.Question {
	q := everyone
	q.Rank = func(_, _ vehicle.Outcome, state driving.State, _ throttle.System) int8 {
		if state != driving.Jam {
			return -1
		}
		return 0
	}
	return q
}

func beginning(prefix string, q fleet.Question) fleet.Question {
	q.Match = func(vid []byte) bool { return bytes.HasPrefix(vid, []byte(prefix)) }
	return q
}

// named puts every tenth vehicle into a jam. In groups of four, vehicles have the same time.
func named(vehicles int) *fleet.Table {
	t := fleet.New()
	t.KeepNames(1 << 40)
	for i := range vehicles {
		state := driving.Normal
		if i%10 == 0 {
			state = driving.Jam
		}
		t.Put(vehicle.ID(fmt.Sprintf("NHeN4UqVsohGS%08d", i)),
			fleet.Answer{Driving: vehicle.DrivingVerdict{State: state, Time: signal.UnixMilli(1 + i/4)}})
	}
	return t
}

func TestFirstPagesThroughAList(t *testing.T) {
	const vehicles = 5000
	table := named(vehicles)
	for _, c := range []struct {
		name string
		q    fleet.Question
		want int
	}{
		{"all", everyone, vehicles},
		{"jams", jams(), vehicles / 10},
		{"a prefix", beginning("NHeN4UqVsohGS000012", everyone), 100},
		{"a prefix of jams", beginning("NHeN4UqVsohGS000012", jams()), 10},
		{"a prefix of none", beginning("X", everyone), 0},
		{"a prefix longer than any vid", beginning(strings.Repeat("N", 300), everyone), 0},
	} {
		var place *fleet.Place
		seen, last := map[vehicle.ID]bool{}, signal.UnixMilli(vehicles)
		for pages := 0; ; pages++ {
			list, matched, next, err := table.First(t.Context(), c.q, place, 37)
			if err != nil || matched != c.want || len(list) > 37 || pages > c.want {
				t.Fatalf("%s: got %d matched, %d listed, error %v; want %d", c.name, matched, len(list), err, c.want)
			}
			for _, l := range list {
				if seen[l.ID] || l.Driving.Time > last || c.q.Match != nil && !c.q.Match([]byte(l.ID)) {
					t.Fatalf("%s: got %+v, want it once, at most of time %d", c.name, l, last)
				}
				seen[l.ID], last = true, l.Driving.Time
			}
			if place = next; place == nil {
				break
			}
		}
		if len(seen) != c.want {
			t.Errorf("%s: got %d vehicles, want %d", c.name, len(seen), c.want)
		}
		each := 0
		if err := table.Each(t.Context(), c.q, func(l fleet.Listed) error {
			if each++; !seen[l.ID] {
				return fmt.Errorf("%s is in no page", l.ID)
			}
			return nil
		}); err != nil || each != c.want {
			t.Errorf("%s: got an export of %d vehicles, error %v; want %d", c.name, each, err, c.want)
		}
	}
	ended := errors.New("ended")
	if err := table.Each(t.Context(), everyone, func(fleet.Listed) error { return ended }); !errors.Is(err, ended) {
		t.Errorf("error of Each: got %v, want %v", err, ended)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, _, err := table.First(ctx, everyone, nil, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("a list whose context has ended: got error %v, want it canceled", err)
	}
}

func all(t *testing.T, table *fleet.Table) (ids []vehicle.ID) {
	t.Helper()
	list, matched, _, err := table.First(t.Context(), everyone, nil, 10_000)
	if err != nil || matched != len(list) || matched != table.Len() {
		t.Fatalf("the list: got %d listed, %d matched, error %v; want %d", len(list), matched, err, table.Len())
	}
	for _, l := range list {
		ids = append(ids, l.ID)
	}
	slices.Sort(ids)
	return ids
}

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
		t.Errorf("after a delete: got %q, want B, C and the long one", ids)
	}
	table.Expire(noon.Add(time.Minute))
	if ids := all(t, table); !slices.Equal(ids, []vehicle.ID{"B"}) {
		t.Errorf("after an expiry: got %q, want B", ids)
	}
	table.Put("C", answer(noon))
	table.Put("A", answer(noon))
	if ids := all(t, table); !slices.Equal(ids, []vehicle.ID{"A", "B", "C"}) {
		t.Errorf("after some returned: got %q, want A, B and C", ids)
	}
	table.Expire(noon.Add(24 * time.Hour))
	table.Put("Z", answer(noon))
	if ids := all(t, table); !slices.Equal(ids, []vehicle.ID{"Z"}) {
		t.Errorf("after all expired: got %q, want Z", ids)
	}
}

func TestListOfVidsWithoutRoom(t *testing.T) {
	table := fleet.New()
	table.KeepNames(10)
	for i := range 20 {
		table.Put(vehicle.ID(fmt.Sprintf("V%d", i%10)), answer(noon))
	}
	seen, place := 0, (*fleet.Place)(nil)
	for {
		list, matched, next, err := table.First(t.Context(), everyone, place, 2)
		if err != nil || matched != 10 || table.Named() != 3 || table.Len() != 10 {
			t.Fatalf("got %d matched, %d named, %v; want 10 and 3", matched, table.Named(), err)
		}
		seen += len(list)
		if place = next; place == nil {
			break
		}
	}
	if seen != 3 {
		t.Errorf("got %d listed vehicles, want 3", seen)
	}
	table.Expire(noon.Add(24 * time.Hour))
	table.Put("W", answer(noon))
	if ids := all(t, table); !slices.Equal(ids, []vehicle.ID{"W"}) || table.Named() != 1 {
		t.Errorf("after all expired: got %q and %d names, want W", ids, table.Named())
	}
}

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
		t.Errorf("the list: got %d vehicles, perhaps some twice; want %d", len(ids), table.Len())
	}
}
