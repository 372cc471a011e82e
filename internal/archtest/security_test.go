package archtest

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	namedTest = regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9_]+)`")
	namedRow  = regexp.MustCompile("`([a-z]+)`")
	// rowPackage matches a row in torture/rows.go. rowName matches the name of a row in the
	// row's own package.
	rowPackage = regexp.MustCompile(`(?m)^\t([a-z]+)\.[A-Z][a-z]+,$`)
	rowName    = regexp.MustCompile(`\nvar (?:Row|[A-Z][a-z]+) = row\.Row\{\s[^{}]*?\bName:\s+"([a-z]+)"`)
	testFunc   = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Za-z0-9_]+)\(`)
)

// TestSecurity_NamesExistingTests checks SECURITY.md against the tree. Every item of its list must
// name tests, and every test and torture row that it names must exist.
func TestSecurity_NamesExistingTests(t *testing.T) {
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
	rows := tortureRows(t)
	isRow := func(name string) bool { return rows[name] }
	for _, problem := range unproven(string(doc), have, isRow) {
		t.Error(problem)
	}
}

// tortureRows returns the names of the rows of `make torture`. It finds their packages in
// torture/rows.go.
func tortureRows(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "torture", "rows.go"))
	if err != nil {
		t.Fatal(err)
	}
	rows := make(map[string]bool)
	packages := rowPackage.FindAllStringSubmatch(string(text), -1)
	for _, m := range packages {
		files, err := filepath.Glob(filepath.Join(root, "torture", m[1], "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range rowName.FindAllStringSubmatch(string(text), -1) {
				rows[name[1]] = true
			}
		}
	}
	if len(rows) < 12 || len(rows) != len(packages) {
		t.Fatalf("torture/rows.go has %d rows, and names of these were found: %v", len(packages),
			slices.Sorted(maps.Keys(rows)))
	}
	return rows
}

// TestTortureRows checks that tortureRows returns rows, and none of the other directories of
// torture.
func TestTortureRows(t *testing.T) {
	rows := tortureRows(t)
	for name, is := range map[string]bool{"kill": true, "soak": true, "row": false, "load": false, "reliability": false,
		"cores": false} {
		if rows[name] != is {
			t.Errorf("%s is a row: %t", name, rows[name])
		}
	}
}

// TestFuzzCorpora checks that the repository keeps at least one input in testdata/fuzz for every
// fuzz target, and that SECURITY.md names all targets.
func TestFuzzCorpora(t *testing.T) {
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

// unproven lists the tests and rows that SECURITY.md names although they do not exist, and the
// items of its list that name no test.
func unproven(doc string, have map[string]bool, isRow func(string) bool) (problems []string) {
	for _, m := range namedTest.FindAllStringSubmatch(doc, -1) {
		if !have[m[1]] {
			problems = append(problems, "SECURITY.md names "+m[1]+", and there is no such test")
		}
	}
	for paragraph := range strings.SplitSeq(doc, "\n\n") {
		_, rows, _ := strings.Cut(paragraph, "Torture: ")
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

func TestUnproven_FindsEachGap(t *testing.T) {
	var doc strings.Builder
	for n := range 10 {
		fmt.Fprintf(&doc, "\n### API%d Something\nIt holds.\nTests: `TestIt`. Torture: `kill`.\n", n+1)
	}
	isRow := func(name string) bool { return name == "kill" }
	have := map[string]bool{"TestIt": true}
	if got := unproven(doc.String(), have, isRow); got != nil {
		t.Errorf("got %q, want no problem", got)
	}
	for what, bad := range map[string]string{
		"a test that is gone": doc.String() + "`TestThat`",
		"a row that is gone":  doc.String() + "Torture: `heat`.",
		"an item is missing":  strings.Replace(doc.String(), "### API7 ", "### ", 1),
		"an item without": strings.Replace(doc.String(), "API3 Something\nIt holds.\nTests: `TestIt`",
			"API3 Something\nIt holds.\nTests:", 1),
	} {
		if got := unproven(bad, have, isRow); len(got) == 0 {
			t.Errorf("%s: not seen", what)
		}
	}
}
