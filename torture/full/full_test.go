package full

import (
	"testing"

	"carstate/torture/row"
)

// A client kind that was never refused while the disk was full is a finding.
func TestMustHaveRefused(t *testing.T) {
	for name, c := range map[string]struct {
		while counts
		wrong int64
	}{
		"all":        {counts{answered: 1, posts: 1, mqtt: 1, deeds: 1}, 0},
		"no query":   {counts{posts: 1, mqtt: 1, deeds: 1}, 1},
		"only posts": {counts{answered: 1, posts: 1}, 2},
		"cut only":   {counts{answered: 1, posts: 1, cut: 1, deeds: 1}, 1},
		"nothing":    {counts{}, 4},
	} {
		a := &row.Attempt{Logf: t.Logf}
		(&torture{Attempt: a, while: c.while}).mustHaveRefused()
		if o := a.Outcome(); o.Wrong != c.wrong {
			t.Errorf("%s: %+v", name, o)
		}
	}
}
