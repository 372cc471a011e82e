package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.org/carstate/bench/must"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/torture/defects"
	"example.org/carstate/torture/row"
)

func TestRun_RefusesBadArguments(t *testing.T) {
	for _, args := range [][]string{{"-rows", "nonsense"}, {"-count", "nonsense=3"}, {"-count", "3"}, {"-what"}} {
		var stderr bytes.Buffer
		if err := run(context.Background(), args, &stderr, &stderr); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: got %v, want an error of one line", args, err)
		}
	}
}

func TestDefects_AreOfRows(t *testing.T) {
	for _, r := range rows {
		if len(r.Controls) == 0 {
			t.Errorf("the row %s: got no patch that names it, want one", r.Name)
		}
	}
	patches, err := filepath.Glob("defects/*.patch")
	testkit.NoError(t, err)
	beginning := regexp.MustCompile(`^Breaks: .+\.\nRow: (.+)\nDoes: `)
	for _, name := range patches {
		text, err := os.ReadFile(name)
		testkit.NoError(t, err)
		m := beginning.FindSubmatch(text)
		if m == nil {
			t.Fatalf("%s: got %.80q, want Breaks: PROMISE., Row: ROW, ROW and Does: ERROR, each on a line", name, text)
		}
		for of := range strings.SplitSeq(string(m[1]), ", ") {
			row, _, _ := strings.Cut(of, " ")
			if _, err := find(row); err != nil {
				t.Errorf("%s: got %v, want a row that exists", name, err)
			}
		}
	}
}

func TestAttempt_Outcome(t *testing.T) {
	before := rows
	t.Cleanup(func() { rows = before })
	for name, c := range map[string]struct {
		defect        string
		finds, fails  bool
		passed, found bool
		undone        string
	}{
		"nothing":                  {"", false, false, true, false, ""},
		"a finding":                {"", true, false, false, true, ""},
		"an error":                 {"", false, true, false, false, "could not be done: no disk; no net"},
		"a finding and an error":   {"", true, true, false, true, "ended early: no disk; no net"},
		"a control that is seen":   {"x", true, true, false, true, ""},
		"a control that is missed": {"y", true, false, false, true, ""},
		"a control that is late":   {"y", true, true, false, true, "ended early: no disk; no net"},
		"a control that is spoilt": {"x", false, true, false, false, "could not be done: no disk; no net"},
	} {
		rows = []row.Row{{Name: "fake", Controls: []defects.Control{{Defect: "x", By: []string{"lost: a sample"}},
			{Defect: "y", By: []string{"lost: a token"}}}, Run: func(ctx context.Context, a *row.Attempt) {
			if c.finds {
				a.Lost("a sample")
				if (c.defect == "x") != (ctx.Err() != nil) {
					t.Errorf("%s: got %v, want it ended: %t", name, ctx.Err(), c.defect == "x")
				}
			}
			if c.fails {
				must.Fail("no disk\nno net")
			}
		}}}
		text, err := json.Marshal(job{Row: "fake", Count: 1, Defect: c.defect})
		testkit.NoError(t, err)
		var printed bytes.Buffer
		testkit.NoError(t, attempt(t.Context(), string(text), &printed))
		var o row.Outcome
		testkit.NoError(t, json.Unmarshal(printed.Bytes(), &o))
		if (o.CaughtBy != "") != (c.defect == "x" && c.finds) {
			t.Errorf("%s: got caught by %q, want it caught: %t", name, o.CaughtBy, c.defect == "x" && c.finds)
		}
		if o.Passed() != c.passed || o.Found() != c.found || o.Undone != c.undone || (len(o.Findings) == 0) != c.passed {
			t.Errorf("%s: got %+v, want passed: %t, found: %t, undone: %q", name, o, c.passed, c.found, c.undone)
		}
	}
}

func TestDo_BadProcesses(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		limit  time.Duration
		lost   int64
		undone string
		by     string
	}{
		"done":    {`echo '{"lost":1,"findings":["lost: x"]}'`, time.Minute, 1, "", "lost: x"},
		"nothing": {`echo '{}'`, time.Minute, 0, "", ""},
		"a control seen": {`echo '{"lost":2,"findings":["wrong: x","lost: y"],"caught_by":"lost: y"}'`, time.Minute, 2, "",
			"lost: y"},
		"crashed": {`exit 2`, time.Minute, 0, "exit status 2", "could not be done: exit status 2"},
		"silent":  {`exit 0`, time.Minute, 0, "no output", "could not be done: the attempt has no output"},
		"no JSON": {`echo x`, time.Minute, 0, "invalid character", "could not be done: invalid character"},
		"it hangs": {`trap 'echo "{\"lost\":1}"; kill $!; exit' TERM; sleep 1000 >/dev/null 2>&1 & wait`, time.Second,
			1, "after 1s and was stopped", "ended early: it was not done"},
		"half done": {`echo '{"lost":1}'; exit 1`, time.Minute, 1, "exit status 1", "ended early: exit status 1"},
	} {
		s := &session{program: filepath.Join(t.TempDir(), "torture"), scratch: t.TempDir(), stderr: os.Stderr}
		testkit.NoError(t, os.WriteFile(s.program, []byte("#!/bin/sh\n"+c.script+"\n"), 0o700))
		o := s.do(t.Context(), job{Row: "fake"}, c.limit)
		if o.Lost != c.lost || !strings.Contains(o.Undone, c.undone) || (o.Undone == "") != (c.undone == "") {
			t.Errorf("%s: got %+v, want %d lost, undone: %q", name, o, c.lost, c.undone)
		}
		v := verdict(defects.Control{Defect: "x"}, o, 0)
		if v.Caught != (name == "a control seen") || !strings.HasPrefix(v.By, c.by) || (v.By == "") != (c.by == "") {
			t.Errorf("%s: got %+v, want it caught by %q", name, v, c.by)
		}
	}
}

func TestPage_HasResults(t *testing.T) {
	r, err := load("../docs")
	testkit.NoError(t, err)
	page, err := os.ReadFile("../docs/reliability.md")
	testkit.NoError(t, err)
	for _, d := range r.Rows {
		cells := fmt.Sprintf("| %d | %d | %d | %d | %d of %d |", d.Outcome.Offered, d.Outcome.Acknowledged, d.Outcome.Lost,
			d.Outcome.Wrong, d.caught(), len(d.Controls))
		if !strings.Contains(strings.ReplaceAll(string(page), ",", ""), cells) {
			t.Errorf("docs/reliability.md: got no results of the row %s, want %s", d.Row, cells)
		}
	}
}
