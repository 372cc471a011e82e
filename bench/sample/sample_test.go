package sample

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"carstate/bench/report"
)

// binary is carstate, built once.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "carstate-bench-test-")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "carstate")
	build := exec.Command("go", "build", "-o", binary, "./cmd/carstate")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		panic(string(out))
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// A short run measures everything: each figure that must be more than nothing is.
func TestRun(t *testing.T) {
	var r report.Results
	o := report.Options{Quick: true, Rounds: 1, Dir: t.TempDir(), Binary: binary, Logf: t.Logf}
	if err := Run(t.Context(), o, &r); err != nil {
		t.Fatal(err)
	}
	subjects := make(map[string]int)
	for _, f := range r.Figures {
		t.Logf("%-32s %-45s %12.4g %-4s %s", f.Subject, f.Name, f.Value, f.Unit, f.Aim)
		subjects[f.Subject]++
		if f.Part != part || f.Subject == "" || f.Name == "" || f.Value < 0 && f.Unit != "kB" { // memory may shrink
			t.Errorf("an odd figure: %+v", f)
		}
		if f.Value == 0 && (f.Unit == "1/s" || f.Unit == "ms" || f.Unit == "ns") {
			t.Errorf("%s: %s is 0", f.Subject, f.Name)
		}
		if (f.Aim == "") != (f.Met == nil) {
			t.Errorf("%s: %s has the aim %q, and met is %v", f.Subject, f.Name, f.Aim, f.Met)
		}
	}
	for subject, n := range map[string]int{
		"carstate": 1, "valyala/fastjson": 1, "the disk": 2, "JetStream alone": 3,
		"HTTP, 2000 cars, 10 samples a car": 4, "HTTP, 2000 cars, 1 sample a car": 4,
		"stages, 10 a car": len(stages), "stages, 1 a car": len(stages),
		"lone samples, 1000/s": 3, "published to answered, 10000/s": 3, "MQTT QoS 1, 100 connected cars": 5,
	} {
		if subjects[subject] != n {
			t.Errorf("%s has %d figures, want %d", subject, subjects[subject], n)
		}
	}
	if len(r.Plots) != 2 {
		t.Errorf("%d plots", len(r.Plots))
	}
}
