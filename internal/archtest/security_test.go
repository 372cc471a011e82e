package archtest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	namedTest = regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9_]+)`")
	namedRow  = regexp.MustCompile("`([a-z]+)`")
	testFunc  = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Za-z0-9_]+)\(`)
)

// TestSecurity holds SECURITY.md against the tree: every item of the list has
// tests, and every test and row of the torture that it names is there.
func TestSecurity(t *testing.T) {
	const root = "../.."
	doc, err := os.ReadFile(filepath.Join(root, "SECURITY.md"))
	if err != nil {
		t.Fatal(err)
	}
	have := make(map[string]bool)
	if err := filepath.WalkDir(root, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(name)
		for _, m := range testFunc.FindAllStringSubmatch(string(text), -1) {
			have[m[1]] = true
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	isRow := func(name string) bool { return exists(filepath.Join(root, "torture", name)) }
	for _, problem := range unproven(string(doc), have, isRow) {
		t.Error(problem)
	}
}

// TestFuzzCorpora: what the fuzzers found is kept for every target, and SECURITY.md
// names them all.
func TestFuzzCorpora(t *testing.T) {
	const root = "../.."
	doc, err := os.ReadFile(filepath.Join(root, "SECURITY.md"))
	if err != nil {
		t.Fatal(err)
	}
	targets := 0
	if err := filepath.WalkDir(root, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(name)
		for _, m := range testFunc.FindAllStringSubmatch(string(text), -1) {
			if !strings.HasPrefix(m[1], "Fuzz") {
				continue
			}
			targets++
			kept, _ := filepath.Glob(filepath.Join(filepath.Dir(name), "testdata", "fuzz", m[1], "*"))
			if len(kept) == 0 {
				t.Errorf("nothing is kept of what %s in %s found", m[1], name)
			}
			if !strings.Contains(string(doc), "`"+m[1]+"`") {
				t.Errorf("SECURITY.md does not name %s in %s", m[1], name)
			}
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if targets < 20 {
		t.Errorf("there are only %d fuzz targets", targets)
	}
}

// unproven lists what SECURITY.md claims without a test that is there.
func unproven(doc string, have map[string]bool, isRow func(string) bool) (problems []string) {
	for _, m := range namedTest.FindAllStringSubmatch(doc, -1) {
		if !have[m[1]] {
			problems = append(problems, "SECURITY.md names "+m[1]+", and there is no such test")
		}
	}
	for line := range strings.Lines(doc) {
		_, rows, _ := strings.Cut(line, "Torture: ")
		for _, m := range namedRow.FindAllStringSubmatch(rows, -1) {
			if !isRow(m[1]) {
				problems = append(problems, "SECURITY.md names the row "+m[1]+", and there is no such row")
			}
		}
	}
	for n := range 10 {
		heading := fmt.Sprintf("\n### API%d ", n+1)
		_, item, ok := strings.Cut(doc, heading)
		item, _, _ = strings.Cut(item, "\n### ")
		if _, tests, _ := strings.Cut(item, "\nTests: "); !ok || !namedTest.MatchString(tests) {
			problems = append(problems, fmt.Sprintf("SECURITY.md has no item API%d, or no test for it", n+1))
		}
	}
	return problems
}

func TestUnproven(t *testing.T) {
	var doc strings.Builder
	for n := range 10 {
		fmt.Fprintf(&doc, "\n### API%d Something\nIt holds.\nTests: `TestIt`. Torture: `kill`.\n", n+1)
	}
	isRow := func(name string) bool { return name == "kill" }
	have := map[string]bool{"TestIt": true}
	if got := unproven(doc.String(), have, isRow); got != nil {
		t.Errorf("%q", got)
	}
	for what, bad := range map[string]string{
		"a test that is gone": doc.String() + "`TestThat`",
		"a row that is gone":  doc.String() + "Torture: `heat`.",
		"an item is missing":  strings.Replace(doc.String(), "### API7 ", "### ", 1),
		"an item without":     strings.Replace(doc.String(), "API3 Something\nIt holds.\nTests: `TestIt`", "API3 Something\nIt holds.\nTests:", 1),
	} {
		if got := unproven(bad, have, isRow); len(got) == 0 {
			t.Errorf("%s: not seen", what)
		}
	}
}
