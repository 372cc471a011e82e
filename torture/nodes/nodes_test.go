package nodes

import (
	"slices"
	"testing"

	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/vehicle"
)

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
