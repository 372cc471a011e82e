package reliability

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/carstate/torture/defects"
	"example.org/carstate/torture/row"
)

func TestDocument_RendersResults(t *testing.T) {
	met := false
	rows := []row.Row{
		{Number: 1, Name: "kill", Title: "Killed at any moment",
			Text: "Nothing in {{.Lives}} lives.\n\n{{.Results}}\n\n- A hole.", Fields: map[string]any{"Lives": 9},
			Counts: "kills",
			Controls: []defects.Control{{Defect: "early", Says: "answers early"}, {Defect: "late", Says: "answers late"},
				{Defect: "wrong", Says: "answers wrongly"}, {Defect: "dumb", Says: "says nothing"}}},
		{Number: 2, Name: "power", Title: "Power cut", Text: "{{.Results}}", Counts: "cuts"},
		{Number: 3, Name: "full", Title: "Full", Text: "{{.Results}}", Counts: "times full"},
	}
	docs := t.TempDir()
	d, err := Load(docs)
	if err != nil {
		t.Fatal(err)
	}
	d.Replace(Done{Row: "kill", Count: 1})
	d.Replace(Done{Row: "kill", Count: 1000, Seed: 7, Version: "v1", Machine: "a machine",
		At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Took: time.Minute,
		Outcome: row.Outcome{Offered: 1234567, Acknowledged: 1234000, Lost: 1, Findings: []string{"lost: X"},
			Figures: []row.Figure{{Name: "back after", Value: 7.5, Unit: "s", Aim: "≤ 5 s", Met: &met}}},
		Controls: []Control{{Defect: "early", Caught: true, By: "lost: a|b"}, {Defect: "wrong", By: "lost: x"},
			{Defect: "dumb"}},
	})
	undone := Done{Row: "full", Count: 3}
	undone.Outcome.NotDone(errors.New("no tmpfs"))
	d.Replace(undone)
	if line := undone.Line(); !strings.Contains(line, "could not be done: no tmpfs") {
		t.Errorf("got line %q, want why the row was not completed", line)
	}
	if err := d.Save(docs, rows); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(docs, "reliability.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := strings.Join(strings.Fields(string(text)), " ")
	for _, want := range []string{
		"**Result.** 2 of 3 rows have been run. Of 1,234,000 acknowledged items 1 was lost, and 0 answers were wrong.",
		"1 of 3 broken builds were caught.", "Not passed: Killed at any moment, Full.",
		"| 1 | [Killed at any moment](#1-killed-at-any-moment) | 1,000 kills | 1,234,567 | 1,234,000 | 1 | 0 | 1 of 3 |",
		"| 2 | [Power cut](#2-power-cut) | not yet |", "## 1. Killed at any moment", "It has not been run yet.",
		"Run on 2026-01-02 with seed 7: 1,000 kills in 1m0s. Version v1, a machine.",
		"| back after | 7.5 s | ≤ 5 s | **no** |",
		"| 3 | [Full](#3-full) | **not completed**: 3 times full |", "Tried, but **not completed**, on 0001-01-01",
		"- could not be done: no tmpfs",
		"- lost: X", "| answers early | yes | lost: a\\|b |", "| answers late | not run | |",
		"| answers wrongly | **no** | found instead: lost: x |", "| says nothing | **no** | found instead: nothing |",
		"Nothing in 9 lives.", "- A hole.",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	again, err := Load(docs)
	if err != nil || len(again.Rows) != 2 || again.Rows[0].Outcome.Passed() {
		t.Errorf("%+v, %v", again, err)
	}
}
