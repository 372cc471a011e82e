package archtest_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// In backticks, such as `docs/telemetry.md` or, in docs/, `telemetry.md`.
	mentions = regexp.MustCompile("`((?:[a-zA-Z-]+/)*[a-zA-Z0-9_-]+\\.(?:md|go|yml|yaml|json|conf|service|sh))`")
	links    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	headings = regexp.MustCompile(`(?m)^#+ +(.+)$`)
)

func TestLinks_LeadSomewhere(t *testing.T) {
	followed := 0
	for _, name := range documents(t) {
		text := read(t, name)
		for _, m := range links.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			followed++
			if complaint := deadLink(t, name, m[1]); complaint != "" {
				t.Errorf("%s: got the link %s, want one that leads somewhere: %s", name, m[1], complaint)
			}
		}
		for _, m := range mentions.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(m[1], "/") && !strings.HasSuffix(m[1], ".md") {
				continue // a file of another project, or of the package that the sentence is about
			}
			followed++
			beside := filepath.Join(filepath.Dir(name), m[1])
			if !exists(filepath.Join(root, m[1])) && !exists(filepath.Join(root, beside)) {
				t.Errorf("%s: got the name %s, want that of a file that exists", name, m[1])
			}
		}
	}
	if followed < 50 {
		t.Errorf("got %d links and names, want 50 or more", followed)
	}
}

func deadLink(t *testing.T, from, link string) string {
	path, fragment, _ := strings.Cut(link, "#")
	target := from
	if path != "" {
		target = filepath.Join(filepath.Dir(from), path)
	}
	switch {
	case !exists(filepath.Join(root, target)):
		return "there is no such file"
	case fragment == "":
		return ""
	}
	for _, m := range headings.FindAllStringSubmatch(read(t, target), -1) {
		if anchor(m[1]) == fragment {
			return ""
		}
	}
	return "it has no such heading"
}

// As GitHub forms it.
func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			return r
		}
		return -1
	}, strings.ToLower(heading))
}
