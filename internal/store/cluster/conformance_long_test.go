//go:build !race

package cluster

import (
	"testing"

	"example.org/carstate/internal/test/storetest"
	"example.org/carstate/internal/test/testkit"
)

func TestConformance_OneServerLong(t *testing.T) {
	testkit.Slow(t, "it takes real servers through half a minute of work")
	t.Parallel()
	storetest.RunLong(t, servers())
}
