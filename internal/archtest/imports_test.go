package archtest_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"example.org/carstate/internal/test/testkit"
)

type listed struct {
	ImportPath string
	Module     *struct {
		Path string
		Main bool
	}
	Imports      []string
	TestImports  []string
	XTestImports []string
}

func goList(t *testing.T, args ...string) (all []listed) {
	t.Helper()
	out := output(t, "go", append([]string{"list", "-json"}, args...)...)
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var l listed
		testkit.NoError(t, dec.Decode(&l))
		all = append(all, l)
	}
	return all
}

// Anyone can reuse these packages: they import only the standard library and what the table
// permits.
var standardOnly = []string{"internal/signal", "internal/driving", "internal/throttle", "internal/vehicle", "client"}

// Most of these were made for tests.
var testsMayImport = []string{"internal/test/clustertest", "internal/store/local",
	"internal/test/storetest", "internal/derive", "internal/test/roadtest", "internal/test/browsertest", "internal/test/nodeprocess",
	"internal/test/testkit", "internal/test/natsprocess", "internal/road", "internal/test/opstest", "internal/admin/client"}

const needsReason = `ARCHITECTURE.md must say under "## Dependencies" why it and not another`

func TestImports_AsInArchitecture(t *testing.T) {
	rules, byPath, ours := readRules(t), map[string]listed{}, 0
	for _, l := range goList(t, "-deps", "./...", "./client") {
		byPath[l.ImportPath] = l
	}
	for _, l := range byPath {
		if l.Module == nil || !l.Module.Main {
			continue
		}
		ours++
		own := strings.TrimSuffix(l.Module.Path, "/client") + "/"
		dir := strings.TrimPrefix(l.ImportPath, own)
		may, ok := rules.mayImport[dir]
		if !ok {
			t.Errorf("%s: got no row in the packages table of ARCHITECTURE.md, want one", dir)
			continue
		}
		for _, path := range l.Imports {
			to, isOurs := strings.CutPrefix(path, own)
			module := byPath[path].Module
			switch {
			case isOurs && !may.everything && !may.packages[to]:
				t.Errorf("%s: got the import %s, want only those in its row of ARCHITECTURE.md", dir, to)
			case isOurs || module == nil:
			case slices.Contains(standardOnly, dir):
				t.Errorf("%s: got the import %s, want the standard library only", dir, module.Path)
			case !rules.dependencies[module.Path]:
				t.Errorf("%s: got the import %s, want none without a reason: %s", dir, module.Path, needsReason)
			}
		}
		for _, path := range slices.Concat(l.TestImports, l.XTestImports) {
			if to, isOurs := strings.CutPrefix(path, own); isOurs && to != dir && !may.everything && !may.packages[to] &&
				!slices.Contains(testsMayImport, to) {
				t.Errorf("the tests of %s: got the import %s, want only those in its row and testsMayImport", dir, to)
			}
		}
	}
	if ours < 3 {
		t.Errorf("go list: got %d packages of ours, want 3 or more", ours)
	}
}

func TestRequirements(t *testing.T) {
	files := trackedFiles(t, "go.mod", "*/go.mod")
	if len(files) < 5 {
		t.Fatalf("the modules: got %d, want 5 or more", len(files))
	}
	listed, needed := readRules(t).dependencies, map[string]bool{}
	for _, file := range files {
		var mod struct {
			Require []struct {
				Path     string
				Indirect bool
			}
			Tool []struct{ Path string }
		}
		testkit.NoError(t, json.Unmarshal(output(t, "go", "mod", "edit", "-json", file), &mod))
		for _, m := range mod.Require {
			if m.Indirect || strings.HasPrefix(m.Path+"/", "example.org/carstate/") {
				continue
			}
			if needed[m.Path] = true; !listed[m.Path] {
				t.Errorf("%s: got the requirement %s, want none without a reason: %s", file, m.Path, needsReason)
			}
		}
		for _, tool := range mod.Tool {
			found := false
			for path := range listed {
				if strings.HasPrefix(tool.Path+"/", path+"/") {
					found, needed[path] = true, true
				}
			}
			if !found {
				t.Errorf("%s: got the tool %s, want none without a reason: %s", file, tool.Path, needsReason)
			}
		}
	}
	for path := range listed {
		if !needed[path] {
			t.Errorf("ARCHITECTURE.md: got %s under \"## Dependencies\", want only what a go.mod requires", path)
		}
	}
}

// One machine has its own engine, and a cluster has servers of its own.
func TestBinary_HasNoNATSServer(t *testing.T) {
	deps := string(output(t, "go", "list", "-deps", "./cmd/carstate"))
	for path := range strings.FieldsSeq(deps) {
		if strings.HasPrefix(path, "github.com/nats-io/nats-server") {
			t.Errorf("cmd/carstate: got %s, want it in tests and the torture only, which build it as a program", path)
		}
	}
	if !strings.Contains(deps, "github.com/cockroachdb/pebble/v2\n") {
		t.Error("go list -deps: got no Pebble, want it among the dependencies")
	}
}
