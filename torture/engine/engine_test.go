package engine

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"example.org/carstate/bench/must"
	"example.org/carstate/torture/row"
)

func TestRunning_ReadsTestOutput(t *testing.T) {
	const lost = "-seed 7: power cut 3: vehicle 1 has 2 samples of 3 that were acknowledged"
	for name, c := range map[string]struct {
		script   string
		done     int64
		findings []string
		fails    bool
	}{
		"done": {`echo "    x_test.go:1: -seed 7"; echo "    x_test.go:2: done 30 power cuts"; echo PASS`, 30, nil,
			false},
		"refusals": {`echo "    x_test.go:2: done 30 damages: 4 of them refused"`, 30, nil, false},
		"too few":  {`echo "    x_test.go:2: done 29 power cuts"`, 29, nil, true},
		"lost":     {`echo "    x_test.go:2: ` + lost + `"; exit 1`, 0, []string{"lost: " + lost}, false},
		"wrong": {`echo "    x_test.go:2: -seed 7: power cut 3: it does not open: why"; exit 1`, 0,
			[]string{"wrong: -seed 7: power cut 3: it does not open: why"}, false},
		"it panics": {`echo "panic: halt" >&2; exit 2`, 0, []string{"wrong: the engine ends its process: panic: halt"},
			false},
		"nothing": {`exit 1`, 0, nil, true},
	} {
		a := &row.Attempt{Count: 30, Binary: filepath.Join(t.TempDir(), "tests"), Dir: t.TempDir(), Logf: t.Logf}
		if err := os.WriteFile(a.Binary, []byte("#!/bin/sh\n"+c.script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		err := must.Caught(func() { Power.Run(t.Context(), a) })
		if o := a.Outcome(); (err != nil) != c.fails || o.Acknowledged != c.done || !slices.Equal(o.Findings, c.findings) ||
			(len(o.Figures) == 1) != (name == "refusals") {
			t.Errorf("%s: got %v, %+v, want %d done, findings %q", name, err, o, c.done, c.findings)
		}
	}
}
