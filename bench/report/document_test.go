package report

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fixture returns a document with at least one element of each kind.
func fixture() *Document {
	p := Part{Name: "query", Logf: func(string, ...any) {}}
	p.Add("nginx + lua", "server CPU a request", "µs", "", 9.25, 9.5, 10)
	p.Add("nginx + lua", "requests", "1/s", "wrk", 104_321.4)
	p.Add("carstate", "server CPU a request", "µs", "", 8)
	p.Add("carstate", "requests", "1/s", "wrk", 120_000)
	p.AtMost(0.9, "carstate", "CPU a request, over nginx + lua", "×", "", 0.842)
	p.AtMost(1.15, "carstate", "CPU with 10 M vehicles, over 1 k", "×", "", 1.25)
	p.Draw(Plot{File: "query-size", Title: "Cost & <size>", XAxis: "vehicles", YAxis: "µs", LogX: true,
		Lines: []Line{{Label: "one", X: []float64{1e3, 1e5, 1e7}, Y: []float64{8, 8.5, 9}},
			{Label: "other", X: []float64{1}, Y: []float64{8}}}})
	d := new(Document)
	d.Replace(Run{Part: "query", Machine: "a machine", Version: "v1", At: time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC),
		Took: 90 * time.Second, Rounds: 5}, &p)
	return d
}

func TestThePageHoldsTheFigures(t *testing.T) {
	page, err := fixture().page()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| a machine, version v1 | query (2026-11-20, 5 rounds, 1m30s) |",
		"| CPU a request, over nginx + lua | carstate | ≤ 0.9 × | 0.842 × | yes |",
		"| CPU with 10 M vehicles, over 1 k | carstate | ≤ 1.15 × | 1.25 × | **no** |",
		"| | server CPU a request, µs | requests, 1/s |",
		"| nginx + lua | 9.50 (9.25–10) | 104,321 |",
		"| carstate | 8 | 120,000 |",
		"| requests | wrk |\n",
		"**Result.** 1 of 2 aims are met.",
		"- A query costs 8 µs of the server's CPU, 0.842 times that of nginx with lua.",
		"![Cost & <size>](performance/query-size.svg)",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s\n%s", want, page)
		}
	}
	if strings.Contains(page, "## The sample") {
		t.Error("a part that was not measured has a section")
	}
}

func TestSaveAndLoad(t *testing.T) {
	docs := t.TempDir()
	if d, err := Load(docs); err != nil || len(d.Figures) > 0 {
		t.Fatalf("of an empty directory: %v, %v", d, err)
	}
	d := fixture()
	if err := d.Save(docs); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(docs, "performance.md"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := Load(docs)
	if err != nil {
		t.Fatal(err)
	}
	if same, err := again.page(); err != nil || same != string(page) {
		t.Errorf("the page of the stored results is different (%v):\n%s", err, same)
	}

	// The results of another part do not change this part's results; new results of the same
	// part replace them.
	sample := Part{Name: "sample", Logf: t.Logf}
	sample.Add("carstate", "acknowledged", "1/s", "", 1)
	again.Replace(Run{Part: "sample"}, &sample)
	if len(again.Figures) != len(d.Figures)+1 || len(again.Runs) != 2 {
		t.Errorf("after a run of another part: got %d figures, %d runs, want one more figure, 2 runs", len(again.Figures),
			len(again.Runs))
	}
	again.Replace(Run{Part: "query"}, new(Part))
	if len(again.Figures) != 1 || len(again.Plots) != 0 || len(again.Runs) != 2 {
		t.Errorf("after an empty run: got %d figures, %d plots, %d runs, want 1, 0, 2", len(again.Figures), len(again.Plots),
			len(again.Runs))
	}
	var out strings.Builder
	if err := again.Print(&out, "sample"); err != nil || !strings.Contains(out.String(), "acknowledged") {
		t.Errorf("printed %s, %v", &out, err)
	}

	if err := os.WriteFile(filepath.Join(docs, "performance", "results.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(docs); err == nil {
		t.Error("results that are cut off were accepted")
	}
}

// TestDocumentIsRendered checks that the page on performance equals what its template makes of the
// results.
func TestDocumentIsRendered(t *testing.T) {
	const docs = "../../docs"
	d, err := Load(docs)
	if err != nil {
		t.Fatal(err)
	}
	want, err := d.page()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(docs, pageFile))
	if err != nil || string(got) != want {
		t.Errorf("docs/%s differs from its rendered template (%v): run make bench BENCHFLAGS=-render", pageFile, err)
	}
	for _, wrong := range []string{"NaN", "Inf", "<no value>", "%!"} {
		if strings.Contains(want, wrong) {
			t.Errorf("docs/%s has %s", pageFile, wrong)
		}
	}
}

func TestPlotsAreXML(t *testing.T) {
	plots := fixture().Plots
	plots = append(plots, Plot{File: "empty"},
		Plot{LogX: true, LogY: true, Lines: []Line{{X: []float64{0, 1}, Y: []float64{0, 0.001}}}})
	for _, p := range plots {
		svg := p.svg()
		if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
			t.Errorf("%s: a place that is no number:\n%s", p.File, svg)
		}
		for d := xml.NewDecoder(strings.NewReader(svg)); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", p.File, err)
			}
		}
	}
}

func TestSlope_IgnoresOutliers(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{nil, 0}, {[]float64{7}, 0}, {[]float64{1, 3, 5, 7}, 2}, {[]float64{4, 3, 2}, -1},
		{[]float64{10, 10, 900, 10, 10, 10}, 0}, // one bad second is no trend
	} {
		var seconds []float64
		for i := range c.values {
			seconds = append(seconds, float64(i))
		}
		if got := Slope(seconds, c.values); got != c.want {
			t.Errorf("of %v: %v, not %v", c.values, got, c.want)
		}
	}
}
