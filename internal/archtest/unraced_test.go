package archtest

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestUnraced_UsesNoConcurrency checks the packages that the Makefile tests without the race
// detector. They must start no goroutine and use nothing made for several goroutines, so that they
// do not need the detector.
func TestUnraced_UsesNoConcurrency(t *testing.T) {
	makefile, err := os.ReadFile(root + "/Makefile")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`(?m)^UNRACED := (.+)$`).FindSubmatch(makefile)
	if list == nil {
		t.Fatal("the Makefile has no line UNRACED")
	}
	for dir := range strings.FieldsSeq(string(list[1])) {
		files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no Go file: %v", dir, err)
		}
		for _, name := range files {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			if found := concurrent(file); found != "" {
				t.Errorf("%s %s: take %s out of the Makefile's UNRACED", name, found, dir)
			}
		}
	}
}

// TestUnraced_TestsRun checks that the Makefile runs each test that calls testkit.Unraced, which no
// other command of the Makefile runs.
func TestUnraced_TestsRun(t *testing.T) {
	makefile, err := os.ReadFile(root + "/Makefile")
	if err != nil {
		t.Fatal(err)
	}
	words := func(name string) []string {
		line := regexp.MustCompile(`(?m)^` + name + ` := (.+)$`).FindSubmatch(
			bytes.ReplaceAll(makefile, []byte("\\\n"), nil))
		if line == nil {
			t.Fatalf("the Makefile has no line %s", name)
		}
		return strings.Fields(string(line[1]))
	}
	tests, dirs, found := words("UNRACEDTESTS"), words("UNRACEDDIRS"), 0
	call := regexp.MustCompile(`func Test(\w+)\(t \*testing\.T\) \{\n(?:\t.*\n)*?\ttestkit\.Unraced\(t\)`)
	err = filepath.WalkDir(root, func(name string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, "/unraced_test.go") {
			return err
		}
		text, err := os.ReadFile(name)
		calls := call.FindAllSubmatch(text, -1)
		dir, _ := filepath.Rel(root, filepath.Dir(name))
		for _, m := range calls {
			if !slices.Contains(tests, string(m[1])) || !slices.Contains(dirs, dir) {
				t.Errorf("%s: the Makefile does not run Test%s", name, m[1])
			}
		}
		if n := strings.Count(string(text), "testkit.Unraced("); n != len(calls) {
			t.Errorf("%s: %d calls of testkit.Unraced in %d tests: call it directly in the test", name, n, len(calls))
		}
		found += len(calls)
		return err
	})
	if err != nil || found == 0 {
		t.Errorf("got %d tests that call testkit.Unraced, %v", found, err)
	}
}

// concurrent returns how a file uses concurrency, or "" if it does not.
func concurrent(file *ast.File) (found string) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found = "starts a goroutine"
		case *ast.ChanType:
			found = "uses a channel"
		case *ast.ImportSpec:
			if path := strings.Trim(n.Path.Value, `"`); path == "sync" || path == "sync/atomic" {
				found = "imports " + path
			}
		case *ast.SelectorExpr:
			if n.Sel.Name == "Parallel" {
				found = "runs tests at once"
			}
		}
		return found == ""
	})
	return found
}
