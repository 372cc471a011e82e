package archtest

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// listed is the part of the output of `go list -json` for a package that these tests use.
type listed struct {
	ImportPath string
	Name       string
	Dir        string
	GoFiles    []string
	Deps       []string
	Export     string // file of the compiled package
	Standard   bool
	Module     *struct {
		Path string
		Main bool
	}
	Imports      []string
	TestImports  []string
	XTestImports []string
}

// readRules returns the rules of ARCHITECTURE.md.
func readRules(t *testing.T) rules {
	t.Helper()
	doc, err := os.ReadFile(root + "/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	r, err := parseRules(string(doc))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestImports_AsInArchitecture checks the imports of the tree against the tables of
// ARCHITECTURE.md.
func TestImports_AsInArchitecture(t *testing.T) {
	for _, v := range readRules(t).violations(ourPackages(t)) {
		t.Error(v)
	}
}

// TestRequirements checks every go.mod against the list in ARCHITECTURE.md.
func TestRequirements(t *testing.T) {
	for _, v := range readRules(t).unlisted(ourModules(t)) {
		t.Error(v)
	}
}

// TestBinary_HasNoNATSServer checks that the released program contains no NATS server: one machine
// has its own engine, and a cluster has servers of its own.
func TestBinary_HasNoNATSServer(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", "./cmd/carstate")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for path := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(path, "github.com/nats-io/nats-server") {
			t.Errorf("cmd/carstate depends on %s; only tests and the torture may build the server, as a program", path)
		}
	}
	if !strings.Contains(string(out), "github.com/cockroachdb/pebble/v2\n") {
		t.Error("go list named no Pebble, so it did not list the dependencies")
	}
}

// ourModules returns the modules of the tree, each go.mod that git tracks, as `go mod edit` parses
// it: its tools, and its direct requirements without other modules of the tree.
func ourModules(t *testing.T) (modules []module) {
	ours := map[string]bool{}
	for _, name := range trackedFiles(t, "go.mod", "*/go.mod") {
		cmd := exec.Command("go", "mod", "edit", "-json", name)
		cmd.Dir = root
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go mod edit: %v\n%s", err, &stderr)
		}
		var mod struct {
			Module  struct{ Path string }
			Require []struct {
				Path     string
				Indirect bool
			}
			Tool []struct{ Path string }
		}
		if err := json.Unmarshal(out, &mod); err != nil {
			t.Fatal(err)
		}
		m := module{file: name}
		for _, r := range mod.Require {
			if !r.Indirect {
				m.requires = append(m.requires, r.Path)
			}
		}
		for _, tool := range mod.Tool {
			m.tools = append(m.tools, tool.Path)
		}
		ours[mod.Module.Path] = true
		modules = append(modules, m)
	}
	if len(modules) < 5 {
		t.Fatalf("there are only %d modules", len(modules))
	}
	for i := range modules {
		modules[i].requires = slices.DeleteFunc(modules[i].requires, func(path string) bool { return ours[path] })
	}
	return modules
}

// TestUnlisted_FindsBothKinds checks that unlisted finds requirements that are not listed, and also
// listed modules that nothing requires.
func TestUnlisted_FindsBothKinds(t *testing.T) {
	r := rules{dependencies: map[string]bool{"example.com/good": true, "example.com/gone": true,
		"example.com/tools": true}}
	got := r.unlisted([]module{
		{file: "go.mod", requires: []string{"example.com/good"},
			tools: []string{"example.com/tools/cmd/x", "example.com/toolsother"}},
		{file: "bench/go.mod", requires: []string{"example.com/good", "example.com/bad"}},
	})
	want := []string{
		`ARCHITECTURE.md lists example.com/gone under "## Dependencies", and no go.mod requires it`,
		`bench/go.mod requires example.com/bad: ARCHITECTURE.md must say under "## Dependencies" why it and not another`,
		`go.mod has the tool example.com/toolsother: ARCHITECTURE.md must say under "## Dependencies" why it and not another`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// ourPackages returns every package of this module, as the go command lists them.
func ourPackages(t *testing.T) []pkg {
	byPath := map[string]listed{}
	for _, l := range goList(t, "-deps", "./...") {
		byPath[l.ImportPath] = l
	}

	var pkgs []pkg
	for _, l := range byPath {
		if l.Module == nil || !l.Module.Main {
			continue
		}
		dir := func(path string) (string, bool) {
			return strings.CutPrefix(path, l.Module.Path+"/")
		}
		p := pkg{}
		p.dir, _ = dir(l.ImportPath)
		for _, path := range l.Imports {
			if d, ok := dir(path); ok {
				p.ours = append(p.ours, d)
			} else if to := byPath[path]; !to.Standard && to.Module != nil {
				p.modules = append(p.modules, to.Module.Path)
			}
		}
		for _, path := range slices.Concat(l.TestImports, l.XTestImports) {
			if d, ok := dir(path); ok {
				p.testOurs = append(p.testOurs, d)
			}
		}
		pkgs = append(pkgs, p)
	}
	if len(pkgs) < 3 {
		t.Fatalf("go list found %d packages of ours", len(pkgs))
	}
	return pkgs
}

// goList returns packages as the go command lists them.
func goList(t *testing.T, args ...string) (all []listed) {
	cmd := exec.Command("go", append([]string{"list", "-json"}, args...)...)
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var l listed
		if err := dec.Decode(&l); err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	return all
}

// TestViolations checks that violations finds each kind of violation and nothing else.
func TestViolations(t *testing.T) {
	r, err := parseRules("# x\n## Packages\n\n| package | purpose | may import |\n|---|---|---|\n" +
		"| `internal/vehicle` | cars | nothing |\n" +
		"| `internal/fleet`, `internal/access` | more | `internal/vehicle` |\n" +
		"| `cmd/carstate` | all | everything |\n\n## Dependencies\n- `example.com/good`: because\n\n" +
		"## Other\n`example.com/bad`\n")
	if err != nil {
		t.Fatal(err)
	}
	got := r.violations([]pkg{
		{dir: "internal/vehicle", modules: []string{"example.com/good"}},
		{dir: "internal/fleet", ours: []string{"internal/vehicle", "internal/access"},
			testOurs: []string{"internal/fleet", "internal/store/cluster/clustertest"}},
		{dir: "internal/access", testOurs: []string{"internal/fleet"},
			modules: []string{"example.com/good", "example.com/bad"}},
		{dir: "cmd/carstate", ours: []string{"internal/fleet", "internal/new"}},
		{dir: "internal/new"},
	})
	want := []string{
		`internal/access imports example.com/bad: ARCHITECTURE.md must say under "## Dependencies" why it and not another`,
		"internal/fleet must not import internal/access",
		"internal/new has no row in the packages table of ARCHITECTURE.md",
		"internal/vehicle imports the standard library only, not example.com/good",
		"the tests of internal/access must not import internal/fleet",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestParseRulesRefusesDoubt(t *testing.T) {
	for name, doc := range map[string]string{
		"no sections":     "# carstate\n",
		"no dependencies": "## Packages\n| `a` | b | nothing |\n",
		"two columns":     "## Packages\n| `a` | nothing |\n## Dependencies\n- `m`: why\n",
		"no reason":       "## Packages\n| `a` | b | nothing |\n## Dependencies\n- `m`\n",
		"an empty reason": "## Packages\n| `a` | b | nothing |\n## Dependencies\n- `m`:\n\nwhich is that\n",
		"vague column":    "## Packages\n| `a` | b | little |\n## Dependencies\n- `m`: why\n",
	} {
		if _, err := parseRules(doc); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
