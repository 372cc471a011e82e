package sample

import (
	"fmt"
	"os"
	"testing"
	"time"

	"carstate/bench/report"
)

func TestTry(t *testing.T) {
	o := report.Options{Dir: t.TempDir(), Binary: os.Getenv("BIN"), Logf: t.Logf}
	for _, per := range []int{10, 1} {
		n, err := startNode(t.Context(), o, fmt.Sprint("flood", per))
		if err != nil {
			t.Fatal(err)
		}
		f, err := runFlood(t.Context(), n, floodBodies(10000, per), 4, 4*time.Second)
		t.Logf("%d: %+v %v", per, f, err)
		n.stop()
	}
}

func TestStages(t *testing.T) {
	for _, per := range []int{10, 1} {
		os.Setenv("KEEP_PROFILE", fmt.Sprintf("/tmp/sc-%d.pprof", per))
		of, err := runStages(t.Context(), t.TempDir(), floodBodies(10000, per), 4, 4*time.Second)
		if err != nil { t.Fatal(err) }
		sum := time.Duration(0)
		for _, s := range stages { t.Logf("%d %-45s %v", per, s.name, of[s.name]); sum += of[s.name] }
		t.Logf("%d sum %v", per, sum)
	}
}
