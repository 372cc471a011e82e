package main

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
)

func TestRefusals(t *testing.T) {
	for _, args := range [][]string{{"-rows", "nonsense"}, {"-count", "nonsense=3"}, {"-count", "3"}, {"-what"}} {
		var stderr bytes.Buffer
		if err := run(context.Background(), args, &stderr, &stderr); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// Every row says all that the document needs.
func TestRows(t *testing.T) {
	var names []string
	for i, r := range rows {
		if r.Title == "" || r.Promise == "" || r.How == "" || r.Counts == "" || r.CI < 1 || r.Long < r.CI || r.Run == nil || i > 0 && r.Number <= rows[i-1].Number {
			t.Errorf("row %q lacks something or is out of order", r.Name)
		}
		if len(r.Controls) == 0 && !r.FlagOnly {
			t.Errorf("row %q has no control", r.Name)
		}
		for _, c := range r.Controls {
			if c.Defect == "" || c.Says == "" {
				t.Errorf("row %q: a control says nothing", r.Name)
			}
		}
		names = append(names, r.Name)
	}
	slices.Sort(names)
	if len(slices.Compact(names)) != len(rows) {
		t.Error("two rows have one name")
	}
}
