package cluster_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"go.uber.org/goleak"

	"carstate/internal/store/cluster/clustertest"
)

// children are what this test binary does when a test starts it as a process
// of its own, to be killed or starved.
var children = map[string]func(dir string) error{
	"append": appendUntilKilled,
	"starve": starveOfDisk,
	"tear":   tearWrite,
	"freeze": appendUntilAsked,
	"nobody": openAsNobody,
}

const (
	childVariable = "CARSTATE_TEST_CHILD"
	dirVariable   = "CARSTATE_TEST_DIR"
)

func TestMain(m *testing.M) {
	if child, ok := children[os.Getenv(childVariable)]; ok {
		if err := child(os.Getenv(dirVariable)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// The slow tests wait for time-outs rather than compute. With more at once the others
	// come to theirs.
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	var err error
	if samples.dir, err = os.MkdirTemp("", "carstate-stream-"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(samples.dir)
		clustertest.RemoveServerBinary()
		os.Exit(code)
	}))
}

// childProcess prepares a process that runs one of children.
func childProcess(t *testing.T, name, dir string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self)
	c.Env = append(os.Environ(), childVariable+"="+name, dirVariable+"="+dir)
	return c
}
