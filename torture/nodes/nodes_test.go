package nodes

import (
	"testing"

	"example.org/carstate/internal/store/codec"
)

// A partition without cars could lose its owner unnoticed.
func TestEveryPartitionHasCars(t *testing.T) {
	has := make(map[int]int)
	for _, id := range layout.All() {
		has[codec.PartitionOf(id, partitions)]++
	}
	if len(has) != partitions {
		t.Errorf("the partitions that have cars: got %d, want %d: %v", len(has), partitions, has)
	}
}
