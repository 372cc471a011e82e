package archtest

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// rules holds the rules of ARCHITECTURE.md. A package is named by its directory, such as
// "internal/vehicle".
type rules struct {
	mayImport    map[string]allowed
	dependencies map[string]bool // module paths
}

// allowed is what a package may import: the third column of the table under "## Packages".
type allowed struct {
	everything bool
	packages   map[string]bool
}

var backticked = regexp.MustCompile("`([^`]+)`")

// parseRules reads the table under "## Packages" and the list under "## Dependencies". A row of the
// table has a package, its purpose and what it may import. An item of the list has modules in
// backticks, a colon, and the reason for them.
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
	for _, item := range items(section(doc, "Dependencies")) {
		modules, why, _ := strings.Cut(item, ": ")
		if strings.TrimSpace(why) == "" {
			return rules{}, fmt.Errorf("a dependency is listed without a reason: %s", item)
		}
		for _, m := range backticked.FindAllStringSubmatch(modules, -1) {
			r.dependencies[m[1]] = true
		}
	}
	if len(r.mayImport) == 0 || len(r.dependencies) == 0 {
		return rules{}, fmt.Errorf("ARCHITECTURE.md needs a table under \"## Packages\" and a list of modules in " +
			"backticks under \"## Dependencies\"")
	}
	return r, nil
}

// items returns the items of a list, each on one line and without its dash.
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

// section returns the text between the heading "## name" and the next heading of that level.
func section(doc, name string) string {
	_, after, _ := strings.Cut("\n"+doc, "\n## "+name+"\n")
	text, _, _ := strings.Cut(after, "\n## ")
	return text
}

// standardOnly lists the packages that must build from the standard library alone, so that anyone
// can read or reuse them.
var standardOnly = []string{"internal/vehicle", "client"}

// testsMayImport lists the packages that tests of any package may import: those made for tests, the
// local engine, the client of the admin API, the reader of recorded drives, on which the rules of
// internal/vehicle are tested, and the road map, which learns from recorded fleets.
var testsMayImport = []string{"internal/store/cluster/clustertest", "internal/store/local",
	"internal/store/storetest", "internal/road/roadtest", "internal/browsertest", "internal/nodeprocess",
	"internal/testkit", "internal/lab/drivelog", "internal/road", "internal/ops/opstest", "internal/admin/client"}

// pkg is one of our packages and what it imports.
type pkg struct {
	dir string
	// ours are the directories of our packages that the package itself imports. testOurs are
	// the directories of our packages that its tests import.
	ours, testOurs []string
	modules        []string // third-party modules imported outside tests
}

// violations returns one line for each import in the tree that violates the rules.
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

// module is one of our modules with its direct requirements, which are other modules and the
// packages of its tools.
type module struct {
	file            string // its go.mod
	requires, tools []string
}

// unlisted returns one line for each requirement that the rules do not list, and for each listed
// module that nothing requires.
func (r rules) unlisted(modules []module) []string {
	found, needed := map[string]bool{}, map[string]bool{}
	for _, m := range modules {
		for _, path := range m.requires {
			if needed[path] = true; !r.dependencies[path] {
				found[fmt.Sprintf("%s requires %s: ARCHITECTURE.md must say under \"## Dependencies\" why it and not another",
					m.file, path)] = true
			}
		}
		for _, tool := range m.tools {
			listed := false
			for path := range r.dependencies {
				if tool == path || strings.HasPrefix(tool, path+"/") {
					listed, needed[path] = true, true
				}
			}
			if !listed {
				found[fmt.Sprintf("%s has the tool %s: ARCHITECTURE.md must say under \"## Dependencies\" why it and not another",
					m.file, tool)] = true
			}
		}
	}
	for path := range r.dependencies {
		if !needed[path] {
			found[fmt.Sprintf("ARCHITECTURE.md lists %s under \"## Dependencies\", and no go.mod requires it", path)] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}
