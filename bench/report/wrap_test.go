package report

import (
	"strings"
	"testing"
)

func TestWrap_OnlyProse(t *testing.T) {
	word := strings.Repeat("x", 49)
	for name, c := range map[string]struct{ text, want string }{
		"short lines are joined":  {"a\nb\n\nc\n", "a b\n\nc\n"},
		"a long line is wrapped":  {word + " " + word + " é\n", word + " " + word + "\né\n"},
		"a list item is indented": {"- " + word + " " + word + "\n- b\n", "- " + word + "\n  " + word + "\n- b\n"},
		"no line becomes a list":  {word + " " + word + " - b\n", word + " " + word + " -\nb\n"},
		"a table":                 {"a\n| " + word + " " + word + " b |\n", "a\n| " + word + " " + word + " b |\n"},
		"a heading":               {"# a\nb\n", "# a\nb\n"},
		"code":                    {"```\na\n  b\n```\nc\nd\n", "```\na\n  b\n```\nc d\n"},
	} {
		if got := Wrap(c.text); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
		if got := Wrap(c.want); got != c.want {
			t.Errorf("%s: wrapped again: got %q, want %q", name, got, c.want)
		}
	}
}
