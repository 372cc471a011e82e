package main

import (
	"cmp"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.org/carstate/bench/report"
)

func TestRun_OnePartQuick(t *testing.T) {
	docs := t.TempDir()
	var out strings.Builder
	if err := run(t.Context(), []string{"-quick", "-parts", "restart", "-dir", t.TempDir(), "-docs", docs}, &out,
		io.Discard); err != nil {
		t.Fatalf("the part restart: got %v, want no error", err)
	}
	var d report.Document
	text, err := os.ReadFile(filepath.Join(docs, "performance", "results.json"))
	if err := cmp.Or(err, json.Unmarshal(text, &d)); err != nil {
		t.Fatalf("the results: got %v, want JSON\n%s", err, text)
	}
	if len(d.Figures) < 10 || !strings.Contains(out.String(), "ready, after kill -9") {
		t.Errorf("got %d figures and the output below, want 10 figures or more and times of starts:\n%s", len(d.Figures), &out)
	}
	for _, f := range d.Figures {
		if f.Value <= 0 || f.Unit == "" {
			t.Errorf("got %+v, want a positive value with a unit", f)
		}
	}
}
