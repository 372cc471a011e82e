package evaluate_test

import (
	"slices"
	"testing"

	"example.org/carstate/internal/lab/evaluate"
)

func TestShortNames(t *testing.T) {
	for _, c := range []struct{ paths, want []string }{
		{[]string{"a/x.csv", "a/y.csv"}, []string{"x.csv", "y.csv"}},
		{[]string{"a/x.csv", "b/x.csv", "b/y.csv"}, []string{"a/x.csv", "b/x.csv", "y.csv"}},
		{[]string{"monday/a/x.csv", "tuesday/a/x.csv", "tuesday/b/x.csv"},
			[]string{"monday/a/x.csv", "tuesday/a/x.csv", "b/x.csv"}},
		{[]string{"x.csv", "./a/../b/x.csv"}, []string{"x.csv", "b/x.csv"}},
		{[]string{"x.csv", "x.csv"}, []string{"x.csv", "x.csv"}},
		{[]string{"/x.csv", "/b/x.csv", "../x.csv"}, []string{"x.csv", "b/x.csv", "../x.csv"}},
	} {
		if got := evaluate.ShortNames(c.paths); !slices.Equal(got, c.want) {
			t.Errorf("%q are called %q, want %q", c.paths, got, c.want)
		}
	}
}
