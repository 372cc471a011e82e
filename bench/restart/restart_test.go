package restart

import (
	"os/exec"
	"path/filepath"
	"testing"

	"carstate/bench/report"
)

// The measurement runs, and its figures make sense.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	binary := filepath.Join(dir, "carstate")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./cmd/carstate")
	build.Dir = "../.." // a module of its own
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("the program cannot be built: %v\n%s", err, out)
	}
	var r report.Results
	if err := Run(t.Context(), report.Options{Quick: true, Rounds: 1, Dir: dir, Binary: binary, Logf: t.Logf}, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Figures) < 10 || len(r.Plots) != 2 {
		t.Errorf("%d figures, %d plots", len(r.Figures), len(r.Plots))
	}
	for _, f := range r.Figures {
		t.Logf("%-14s %-50s %10.2f %s  %s", f.Subject, f.Name, f.Value, f.Unit, f.Remark)
		if f.Value <= 0 || f.Unit == "" {
			t.Errorf("%+v", f)
		}
	}
	for _, p := range r.Plots {
		for _, l := range p.Lines {
			if len(l.X) != 2 || len(l.Y) != 2 || l.Label == "" {
				t.Errorf("%s: %+v", p.File, l)
			}
		}
	}
}
