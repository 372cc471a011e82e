package archtest

import (
	"regexp"
	"strings"
	"testing"
)

var sections = regexp.MustCompile(`(?m)^## +(.+)$`)

// noContents are documents of more than a hundred lines that need no list of contents, because a
// reader does not search them by section.
var noContents = map[string]bool{"CHANGELOG.md": true, "README.md": true}

// TestContentsLists checks that each document of more than a hundred lines, except those in
// noContents, has at its head a link to each of its sections.
func TestContentsLists(t *testing.T) {
	for _, name := range documents(t) {
		text := read(t, name)
		if strings.Count(text, "\n") <= 100 || noContents[name] {
			continue
		}
		text = fenced.ReplaceAllString(text, "")
		head, _, _ := strings.Cut(text, "\n## ")
		for _, m := range sections.FindAllStringSubmatch(text, -1) {
			if link := "](#" + anchor(m[1]) + ")"; !strings.Contains(head, link) {
				t.Errorf("%s has no link %q at its head for the section %q", name, link, m[1])
			}
		}
	}
}
