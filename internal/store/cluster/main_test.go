package cluster_test

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"

	"carstate/internal/store/cluster/clustertest"
)

func TestMain(m *testing.M) {
	// The slow tests wait for time-outs rather than compute. With more at once the others
	// come to theirs.
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		clustertest.RemoveServerBinary()
		os.Exit(code)
	}))
}
