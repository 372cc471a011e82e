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
			t.Errorf("%s has no example", n.Path())
		}
	}
	got := cmdline.Sections(helpText)
	for name := range want {
		if name != "" && got[name] == "" {
			t.Errorf("there is no text for %s", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if !want[name] {
			t.Errorf("nothing has the name of the section %s", name)
		}
	}
	if got[""] != "" {
		t.Errorf("text before the first section: %q", got[""])
	}
	if len(want) < 60 {
		t.Errorf("only %d texts were expected", len(want))
	}
}
