package cluster_test

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"

	"carstate/internal/store/cluster"
	"carstate/internal/store/cluster/clustertest"
	"carstate/internal/testkit"
)

func TestMain(m *testing.M) {
	// The slow tests mostly wait for time-outs and compute little. If more of them ran in parallel,
	// the time-outs of other tests would expire.
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		clustertest.RemoveServerBinary()
		os.Exit(code)
	}))
}

// open opens an engine and closes it with the test.
func open(t testing.TB, c cluster.Config) *cluster.Engine {
	t.Helper()
	e, err := cluster.Open(t.Context(), c)
	return testkit.Opened(t, e, err)
}
