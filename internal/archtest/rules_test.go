package archtest

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// rules is what ARCHITECTURE.md lays down. Packages go by their directory, such
// as "internal/vehicle".
type rules struct {
	mayImport    map[string]allowed
	dependencies map[string]bool // module paths
}

// allowed is the third column of the table under "## Packages".
type allowed struct {
	everything bool
	packages   map[string]bool
}

var backticked = regexp.MustCompile("`([^`]+)`")

// parseRules reads the table under "## Packages", whose rows are a package, its
// purpose and what it may import, and every module named in backticks under
// "## Dependencies".
func parseRules(doc string) (rules, error) {
	r := rules{mayImport: map[string]allowed{}, dependencies: map[string]bool{}}
	for line := range strings.SplitSeq(section(doc, "Packages"), "\n") {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "| "), "|")
		if len(cells) != 3 {
			return rules{}, fmt.Errorf("a row of the packages table has %d columns, not 3: %s", len(cells), line)
		}
		a, err := parseAllowed(cells[2])
		if err != nil {
			return rules{}, fmt.Errorf("%w: %s", err, line)
		}
		for _, m := range backticked.FindAllStringSubmatch(cells[0], -1) {
			r.mayImport[m[1]] = a
		}
	}
	for _, m := range backticked.FindAllStringSubmatch(section(doc, "Dependencies"), -1) {
		r.dependencies[m[1]] = true
	}
	if len(r.mayImport) == 0 || len(r.dependencies) == 0 {
		return rules{}, fmt.Errorf("ARCHITECTURE.md needs a table under \"## Packages\" and modules in backticks under \"## Dependencies\"")
	}
	return r, nil
}

func parseAllowed(cell string) (allowed, error) {
	a := allowed{packages: map[string]bool{}}
	for _, m := range backticked.FindAllStringSubmatch(cell, -1) {
		a.packages[m[1]] = true
	}
	rest := strings.TrimSpace(backticked.ReplaceAllString(cell, ""))
	a.everything = rest == "everything"
	if nothing := rest == "nothing"; len(a.packages) == 0 && !a.everything && !nothing {
		return allowed{}, fmt.Errorf("the third column must be nothing, everything, or packages in backticks")
	}
	return a, nil
}

// section returns the text between the heading "## name" and the next such
// heading.
func section(doc, name string) string {
	_, after, _ := strings.Cut("\n"+doc, "\n## "+name+"\n")
	text, _, _ := strings.Cut(after, "\n## ")
	return text
}

// standardOnly are the packages that must build from the standard library
// alone, so that anyone can read or reuse them.
var standardOnly = []string{"internal/vehicle", "client"}

// testsMayImport are the packages made for the tests of others, and the reader
// of recorded drives, on which the rules of internal/vehicle are tried.
var testsMayImport = []string{"internal/stream/streamtest", "internal/browsertest", "internal/nodeprocess", "internal/testkit", "internal/drivelog"}

// pkg is one of our packages and what it imports.
type pkg struct {
	dir string
	// ours and testOurs are the directories of our packages that it imports,
	// in the package itself and in its tests.
	ours, testOurs []string
	modules        []string // third-party modules imported outside tests
}

// violations returns one line for everything in the tree that the rules do not
// allow.
func (r rules) violations(pkgs []pkg) []string {
	found := map[string]bool{}
	report := func(format string, args ...any) { found[fmt.Sprintf(format, args...)] = true }
	for _, p := range pkgs {
		may, listed := r.mayImport[p.dir]
		if !listed {
			report("%s has no row in the packages table of ARCHITECTURE.md", p.dir)
			continue
		}
		for _, to := range p.ours {
			if !may.everything && !may.packages[to] {
				report("%s must not import %s", p.dir, to)
			}
		}
		for _, to := range p.testOurs {
			if to != p.dir && !may.everything && !may.packages[to] && !slices.Contains(testsMayImport, to) {
				report("the tests of %s must not import %s", p.dir, to)
			}
		}
		for _, m := range p.modules {
			if slices.Contains(standardOnly, p.dir) {
				report("%s imports the standard library only, not %s", p.dir, m)
			} else if !r.dependencies[m] {
				report("%s imports %s: ARCHITECTURE.md must say under \"## Dependencies\" why it and not another", p.dir, m)
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}
