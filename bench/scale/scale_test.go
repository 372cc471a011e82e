package scale

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"carstate/bench/report"
)

// The measurement runs, and its figures make sense.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	binary := filepath.Join(dir, "carstate")
	build := exec.Command("go", "build", "-o", binary, "./cmd/carstate")
	build.Dir = "../.." // a module of its own
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("the program cannot be built: %v\n%s", err, out)
	}
	var r report.Results
	if err := Run(t.Context(), report.Options{Quick: true, Rounds: 1, Dir: dir, Binary: binary, Logf: t.Logf}, &r); err != nil {
		t.Fatal(err)
	}
	// Whatever the page wants of this part is measured.
	var d report.Document
	d.Replace(report.Run{Part: part}, &r)
	if err := d.Save(dir); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "scale.md"))
	if err != nil {
		t.Fatal(err)
	}
	if _, lacking, ok := strings.Cut(string(page), "are lacking: "); !ok || strings.Contains(lacking, part) {
		t.Errorf("the page says:\n%s", page)
	}
	for _, f := range r.Figures {
		if f.Name == "lag, growth" || f.Name == "backlog when the last sample was acknowledged" || f.Name == "processors in use by others" {
			continue // any slope will do, nothing need be left, and nobody else be there
		}
		// On so small a load CPU times may be below what the kernel counts, and a quarter of
		// the time may have brought nothing.
		if f.Value < 0 || f.Value == 0 && f.Name != "lag of the last quarter, over the first" && f.Unit != "µs" && f.Unit != "% of a core" && f.Unit != "B" {
			t.Errorf("%+v", f)
		}
	}
	if len(r.Plots) != 1 || len(r.Plots[0].Lines) != 2 {
		t.Errorf("the plots are %+v", r.Plots)
	}
}

// What fails as a test fails, ends and is cleaned up after.
func TestOutside(t *testing.T) {
	o := &outside{logf: t.Logf}
	var order []int
	err := o.run(func() error {
		o.Cleanup(func() { order = append(order, 1) })
		o.Cleanup(func() { order = append(order, 2) })
		o.Fatalf("no %s", "luck")
		return nil
	})
	if err == nil || err.Error() != "no luck" || !o.Failed() {
		t.Errorf("it failed of %v", err)
	}
	if len(order) != 2 || order[0] != 2 {
		t.Errorf("cleaned up in the order %v", order)
	}
	want := errors.New("told")
	if err := (&outside{}).run(func() error { return want }); !errors.Is(err, want) {
		t.Errorf("got %v", err)
	}
}

func TestSlope(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{nil, 0}, {[]float64{7}, 0}, {[]float64{1, 3, 5, 7}, 2}, {[]float64{4, 3, 2}, -1},
		{[]float64{10, 10, 900, 10, 10, 10}, 0}, // one bad second is no trend
	} {
		if got := slope(c.values); got != c.want {
			t.Errorf("of %v: %v, not %v", c.values, got, c.want)
		}
	}
}

func TestLags(t *testing.T) {
	l := newLags()
	for i := range 100 {
		at := l.from.Add(time.Duration(i) * time.Second)
		l.ms, l.after = append(l.ms, float64(i)), append(l.after, at.Sub(l.from))
	}
	if got := quantile(l.ms, 0.99); got != 98 {
		t.Errorf("p99 is %v", got)
	}
	if got := l.between(10*time.Second, 20*time.Second); len(got) != 10 || got[0] != 10 {
		t.Errorf("of the second ten seconds: %v", got)
	}
	if got := l.medians(3500 * time.Millisecond); !slices.Equal(got, []float64{0, 1, 2}) {
		t.Errorf("the medians of three seconds: %v", got)
	}
	if got := quantile(nil, 0.5); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
}
