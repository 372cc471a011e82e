package sample

import (
	"fmt"
	"os"
	"strings"
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
		if err != nil {
			t.Fatal(err)
		}
		sum := time.Duration(0)
		for _, s := range stages {
			t.Logf("%d %-45s %v", per, s.name, of[s.name])
			sum += of[s.name]
		}
		t.Logf("%d sum %v", per, sum)
	}
}

func TestLatency(t *testing.T) {
	dir := t.TempDir()
	for i, bin := range strings.Fields(os.Getenv("BINS")) {
		bin, parts, _ := strings.Cut(bin, ":")
		o := report.Options{Dir: dir, Binary: bin, Logf: t.Logf}
		fs, _ := fsyncs(dir, 500)
		t.Logf("%s %s fsync p50 %.3f p99 %.3f ms", bin, parts, fs.quantile(.5), fs.quantile(.99))
		n, err := startNode(t.Context(), o, fmt.Sprint("latency", i), "--partitions", parts)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range []float64{1000, 3000} {
			c0, _ := n.cpu()
			f, err := runLone(t.Context(), n, r, 2*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			c1, _ := n.cpu()
			t.Logf("lone %v: p50 %.2f p99 %.2f commit %.1f cpu %v", r, f.acks.quantile(.5), f.acks.quantile(.99), f.commit, c1-c0)
		}
		for _, r := range []float64{1000, 10000, 30000} {
			b, _ := n.metrics()
			c0, _ := n.cpu()
			l, err := runAnswered(t.Context(), n, r, 3*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			a, _ := n.metrics()
			c1, _ := n.cpu()
			t.Logf("answered %v: p50 %.2f p90 %.2f p99 %.2f  cpu %v states/fold %.1f folds %.0f samples/commit %.1f", r, l.quantile(.5), l.quantile(.9), l.quantile(.99), c1-c0, a.since(b, "carstate_states_stored_total")/a.since(b, "carstate_fold_commit_duration_seconds_count"),
				a.since(b, "carstate_fold_commit_duration_seconds_count"),
				a.since(b, "carstate_commit_samples_sum")/a.since(b, "carstate_commit_samples_count"))
		}
		n.stop()
		n, err = startNode(t.Context(), o, fmt.Sprint("flood", i), "--partitions", parts)
		if err != nil {
			t.Fatal(err)
		}
		for _, per := range []int{10, 1} {
			bodies := floodBodies(10000, per)
			f, err := runFlood(t.Context(), n, bodies, 4, 2*time.Second)
			t.Logf("%d: %+v %v", per, f, err)
			n.stop()
			n, err = startNode(t.Context(), o, fmt.Sprint("flood", i, "-", per), "--partitions", parts)
			if err != nil {
				t.Fatal(err)
			}
		}
		n.stop()
	}
}
