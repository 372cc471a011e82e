package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// mentions matches the names of our files in backticks, such as `docs/telemetry.md`, or, in
	// a document of docs/, `telemetry.md`.
	mentions = regexp.MustCompile("`((?:[a-zA-Z-]+/)*[a-zA-Z0-9_-]+\\.(?:md|go|yml|yaml|json|conf|service|sh))`")
	links    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	headings = regexp.MustCompile(`(?m)^#+ +(.+)$`)
)

// generated are documents that a command generates, so a checkout may lack them.
var generated = map[string]bool{"docs/performance.md": true}

// TestLinks_LeadSomewhere checks that the target of every link between the documents exists, and
// that the documents and files that they name exist.
func TestLinks_LeadSomewhere(t *testing.T) {
	var files []string
	for _, pattern := range []string{"*.md", "docs/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) < 10 {
		t.Fatalf("only %d documents", len(files))
	}
	followed := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name, _ := filepath.Rel(root, file)
		for _, m := range links.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			followed++
			if complaint := deadLink(file, m[1]); complaint != "" {
				t.Errorf("%s links to %s: %s", name, m[1], complaint)
			}
		}
		for _, m := range mentions.FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains(m[1], "/") && !strings.HasSuffix(m[1], ".md") {
				continue // a file of another project, or of the package that the sentence is about
			}
			followed++
			if !exists(filepath.Join(root, m[1])) && !exists(filepath.Join(filepath.Dir(file), m[1])) && !generated[m[1]] &&
				!generated["docs/"+m[1]] {
				t.Errorf("%s names %s: there is no such file", name, m[1])
			}
		}
	}
	if followed < 50 {
		t.Errorf("only %d links and names were found", followed)
	}
}

// TestDeadLink_KnownLinks checks deadLink with links that are known to be dead or alive.
func TestDeadLink_KnownLinks(t *testing.T) {
	from := filepath.Join(root, "README.md")
	for link, dead := range map[string]bool{
		"docs/console.md": false, "docs/console.md#forget": true, "docs/nothing.md": true,
		"docs/operations.md#when-the-disk-is-full": false, "#try-it": false, "#nothing": true,
	} {
		if got := deadLink(from, link); (got != "") != dead {
			t.Errorf("%s: got %q, want dead: %v", link, got, dead)
		}
	}
}

// deadLink returns what is wrong with a link, or "" if its target exists. The parameter from is the
// document that contains the link.
func deadLink(from, link string) string {
	path, fragment, _ := strings.Cut(link, "#")
	target := from
	if path != "" {
		target = filepath.Join(filepath.Dir(from), path)
	}
	if !exists(target) {
		return "there is no such file"
	}
	if fragment == "" {
		return ""
	}
	text, err := os.ReadFile(target)
	if err != nil {
		return err.Error()
	}
	for _, m := range headings.FindAllStringSubmatch(string(text), -1) {
		if anchor(m[1]) == fragment {
			return ""
		}
	}
	return "it has no such heading"
}

// anchor returns the fragment by which a heading is linked.
func anchor(heading string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(heading) {
		switch {
		case r == ' ':
			b.WriteByte('-')
		case r == '-' || r == '_' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			b.WriteRune(r)
		}
	}
	return b.String()
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
