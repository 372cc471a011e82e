package main

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"example.org/carstate/internal/cmdline"
	"example.org/carstate/internal/test/testkit"
)

func TestHelpTextHasASectionForEachCommand(t *testing.T) {
	want := map[string]bool{"": true}
	placeholders := kong.PostBuild(func(k *kong.Kong) error {
		return kong.Visit(k.Model.Node, func(v kong.Visitable, next kong.Next) error {
			if f, ok := v.(*kong.Flag); ok {
				if _, name, ok := strings.Cut(f.Help, "${more_"); ok {
					want["more_"+strings.TrimSuffix(name, "}")] = true
				}
			}
			return next(nil)
		})
	})
	parser, err := kong.New(&commands{}, kong.Name("carstate"), placeholders, longHelp)
	testkit.NoError(t, err)
	for _, n := range parser.Model.Leaves(true) {
		want[n.Path()] = true
		if !strings.Contains(n.Detail, "Example") {
			t.Errorf("%s: got no example, want one", n.Path())
		}
	}
	got := cmdline.Sections(helpText)
	for name := range want {
		if name != "" && got[name] == "" {
			t.Errorf("%s: got no text, want one", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if !want[name] {
			t.Errorf("the section %s: got no command of this name, want one", name)
		}
	}
	if got[""] != "" {
		t.Errorf("before the first section: got %q, want nothing", got[""])
	}
	if len(want) < 60 {
		t.Errorf("the texts expected: got %d, want 60 or more", len(want))
	}
}
