package archtest_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	namedTest = regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9_]+)`")
	namedRow  = regexp.MustCompile("`([a-z]+)`")
	// A row in torture/rows.go, and its name in the row's own package.
	rowPackage = regexp.MustCompile(`(?m)^\t([a-z]+)\.[A-Z][a-z]+,$`)
	rowName    = regexp.MustCompile(`row\.Row\{[^{}]*?\bName:\s+"([a-z]+)"`)
)

// Every item (API1 to API10) names tests, and every test and torture row that it names exists.
func TestSecurity_NamesExistingTests(t *testing.T) {
	doc, rows := read(t, "SECURITY.md"), tortureRows(t)
	have := testFunctions(t)
	for _, m := range namedTest.FindAllStringSubmatch(doc, -1) {
		if !slices.Contains(have, m[1]) {
			t.Errorf("SECURITY.md names %s, and there is no such test", m[1])
		}
	}
	for paragraph := range strings.SplitSeq(doc, "\n\n") {
		_, named, _ := strings.Cut(paragraph, "Torture: ")
		for _, m := range namedRow.FindAllStringSubmatch(named, -1) {
			if !rows[m[1]] {
				t.Errorf("SECURITY.md names the row %s, and there is no such row", m[1])
			}
		}
	}
	for n := range 10 {
		_, item, ok := strings.Cut(doc, fmt.Sprintf("\n### API%d ", n+1))
		item, _, _ = strings.Cut(item, "\n### ")
		if _, tests, _ := strings.Cut(item, "\nTests: "); !ok || !namedTest.MatchString(tests) {
			t.Errorf("SECURITY.md has no item API%d, or no test for it", n+1)
		}
	}
}

func tortureRows(t *testing.T) map[string]bool {
	t.Helper()
	rows := make(map[string]bool)
	packages := rowPackage.FindAllStringSubmatch(read(t, "torture/rows.go"), -1)
	for _, m := range packages {
		for _, file := range trackedFiles(t, "torture/"+m[1]+"/*.go") {
			for _, name := range rowName.FindAllStringSubmatch(read(t, file), -1) {
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
