package evaluate_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

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

func TestShortNamesDiffer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		paths := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) string {
			return strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "x.csv"}), 1, 4).Draw(t, "parts"),
				"/")
		}), 1, 8, filepath.Clean).Draw(t, "paths")
		seen := map[string]bool{}
		for i, name := range evaluate.ShortNames(paths) {
			if seen[name] || name != paths[i] && !strings.HasSuffix(paths[i], "/"+name) {
				t.Fatalf("%q are called %q", paths, evaluate.ShortNames(paths))
			}
			seen[name] = true
		}
	})
}
