package nodes

import (
	"slices"
	"testing"
	"time"

	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/vehicle"
	"example.org/carstate/torture/row"
)

func attempt(t *testing.T) *row.Attempt { return &row.Attempt{Logf: t.Logf, Stop: func() {}} }

func TestMissing_FindsLostReadings(t *testing.T) {
	stored := func(at ...vehicle.UnixMilli) (all []vehicle.Sample) {
		for _, m := range at {
			all = append(all, vehicle.Sample{Vehicle: "A", Time: m})
		}
		return all
	}
	for _, c := range []struct {
		journal []vehicle.UnixMilli
		stored  []vehicle.Sample
		want    []vehicle.UnixMilli
	}{
		{nil, stored(1), nil},
		{[]vehicle.UnixMilli{1, 2, 3}, stored(1, 2, 3), nil},
		{[]vehicle.UnixMilli{2}, stored(1, 1, 2, 2, 3), nil}, // stored twice, or not acknowledged
		{[]vehicle.UnixMilli{1, 2, 3}, stored(1, 3), []vehicle.UnixMilli{2}},
		{[]vehicle.UnixMilli{1, 2}, nil, []vehicle.UnixMilli{1, 2}},
	} {
		if got := missing(c.journal, c.stored); !slices.Equal(got, c.want) {
			t.Errorf("of %v is missing %v, want %v", c.journal, got, c.want)
		}
	}
}

func TestFollowing_FindsStatesThatGoBack(t *testing.T) {
	a := attempt(t)
	f := &following{a: a, at: make(map[vehicle.ID]vehicle.UnixMilli)}
	for _, id := range layout.All() {
		f.put(id, &vehicle.State{Time: 10})
		f.put(id, &vehicle.State{Time: 10})
	}
	id := layout.All()[3]
	f.put(id, &vehicle.State{Time: 12})
	if f.newerThan(9) != nil || f.newerThan(10) == nil || f.reached(map[vehicle.ID]vehicle.UnixMilli{id: 12}) != nil ||
		f.reached(map[vehicle.ID]vehicle.UnixMilli{id: 13}) == nil {
		t.Error("it says wrongly how far the states are")
	}
	if o := a.Outcome(); !o.Passed() {
		t.Errorf("got findings %q, want none", o.Findings)
	}
	f.put(id, &vehicle.State{Time: 11})
	if o := a.Outcome(); o.Wrong != 1 {
		t.Errorf("got %+v, want one finding", o)
	}
}

func TestNothingMeasured(t *testing.T) {
	for i, p := range promised {
		for name, c := range map[string]struct {
			change func(measured)
			passed bool
		}{
			"all of it":        {func(measured) {}, true},
			"another one, too": {func(m measured) { m["a server stopped: x"] = time.Hour }, true},
			"not measured":     {func(m measured) { delete(m, p.name) }, false},
			"too long":         {func(m measured) { m[p.name] = 61 * time.Second }, false},
		} {
			a, m := attempt(t), make(measured)
			for _, p := range promised {
				m[p.name] = time.Second
			}
			c.change(m)
			m.report(a)
			if o := a.Outcome(); o.Passed() != c.passed {
				t.Errorf("limit %d, %s: got %+v, want passed: %t", i, name, o, c.passed)
			}
		}
	}
}

// A partition without cars could lose its owner unnoticed.
func TestEveryPartitionHasCars(t *testing.T) {
	has := make(map[int]int)
	for _, id := range layout.All() {
		has[codec.PartitionOf(id, partitions)]++
	}
	if len(has) != partitions {
		t.Errorf("of %d partitions only %d have cars: %v", partitions, len(has), has)
	}
}
