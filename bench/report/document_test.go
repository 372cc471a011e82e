package report_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.org/carstate/bench/report"
	"example.org/carstate/internal/test/testkit"
)

func TestSaveAndLoad(t *testing.T) {
	docs := t.TempDir()
	d, err := report.Load(docs)
	if err != nil || len(d.Figures) > 0 {
		t.Fatalf("of an empty directory: got %v, %v, want no figures", d, err)
	}
	part := func(name string, figures int) *report.Part {
		p := &report.Part{Name: name, Logf: t.Logf}
		for range figures {
			p.AtMost(0.9, "carstate", "requests", "1/s", "wrk", 1, 2, 3)
		}
		return p
	}
	for _, p := range []*report.Part{part("query", 3), part("sample", 1), part("query", 2)} {
		testkit.NoError(t, d.Save(report.Run{Part: p.Name}, p))
	}
	again, err := report.Load(docs)
	if err != nil || len(again.Figures) != 3 || len(again.Runs) != 2 {
		t.Errorf("got %+v, %v, want the 3 figures of the last runs of 2 parts", again, err)
	}
	var out strings.Builder
	const want = "carstate  requests  2 (1–3) 1/s  ≤ 0.9 1/s  no\n"
	if err := part("query", 1).Print(&out); err != nil || out.String() != want {
		t.Errorf("got %q, %v, want %q", &out, err, want)
	}
	testkit.NoError(t, os.WriteFile(filepath.Join(docs, "performance", "results.json"), []byte("{"), 0o600))
	if _, err := report.Load(docs); err == nil {
		t.Error("results that are cut off: got no error, want one")
	}
}

func TestPage_HasAims(t *testing.T) {
	d, err := report.Load("../../docs")
	testkit.NoError(t, err)
	page, err := os.ReadFile("../../docs/performance.md")
	testkit.NoError(t, err)
	for _, f := range d.Figures {
		row := " | " + f.Aim + " | " + f.Text() + " | "
		if f.Aim != "" && f.Part != "scale" && !strings.Contains(string(page), row) {
			t.Errorf("docs/performance.md: got no %q of %s, %s, want it", row, f.Subject, f.Name)
		}
	}
}
