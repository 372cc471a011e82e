package archtest_test

import (
	"regexp"
	"strings"
	"testing"
)

// A package is named by its directory, such as "internal/vehicle".
type rules struct {
	mayImport    map[string]allowed
	dependencies map[string]bool
}

type allowed struct {
	everything bool
	packages   map[string]bool
}

var backticked = regexp.MustCompile("`([^`]+)`")

func readRules(t *testing.T) rules {
	t.Helper()
	doc := read(t, "ARCHITECTURE.md")
	r := rules{mayImport: map[string]allowed{}, dependencies: map[string]bool{}}
	for line := range strings.Lines(section(doc, "Packages")) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "| \n"), "|")
		if len(cells) != 3 {
			t.Fatalf("a row of the packages table: got %d columns, want 3: %s", len(cells), line)
		}
		a := allowed{packages: map[string]bool{}}
		for _, m := range backticked.FindAllStringSubmatch(cells[2], -1) {
			a.packages[m[1]] = true
		}
		rest := strings.TrimSpace(backticked.ReplaceAllString(cells[2], ""))
		a.everything = rest == "everything"
		if len(a.packages) == 0 && !a.everything && rest != "nothing" {
			t.Fatalf("the third column: got %q, want nothing, everything, or packages in backticks: %s", rest, line)
		}
		for _, m := range backticked.FindAllStringSubmatch(cells[0], -1) {
			r.mayImport[m[1]] = a
		}
	}
	for _, item := range items(section(doc, "Dependencies")) {
		modules, why, _ := strings.Cut(item, ": ")
		if strings.TrimSpace(why) == "" {
			t.Fatalf("the dependency %q: got no reason, want one", item)
		}
		for _, m := range backticked.FindAllStringSubmatch(modules, -1) {
			r.dependencies[m[1]] = true
		}
	}
	if len(r.mayImport) == 0 || len(r.dependencies) == 0 {
		t.Fatalf("ARCHITECTURE.md: got %d packages in the table under \"## Packages\" and %d modules in backticks "+
			"under \"## Dependencies\", want some of both", len(r.mayImport), len(r.dependencies))
	}
	return r
}

// Each on one line and without its dash.
func items(text string) (all []string) {
	open := false
	for line := range strings.Lines(text) {
		item, begins := strings.CutPrefix(line, "- ")
		line = strings.TrimSpace(line)
		switch {
		case begins:
			all, open = append(all, strings.TrimSpace(item)), true
		case line == "":
			open = false
		case open:
			all[len(all)-1] += " " + line
		}
	}
	return all
}

func section(doc, name string) string {
	_, after, _ := strings.Cut("\n"+doc, "\n## "+name+"\n")
	text, _, _ := strings.Cut(after, "\n## ")
	return text
}
