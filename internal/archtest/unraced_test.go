package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// makefileList returns the words of a variable of the Makefile. It fails the test if there is no
// such variable.
func makefileList(t *testing.T, name string) []string {
	t.Helper()
	line := regexp.MustCompile(`(?m)^` + name + ` := (.+)$`).FindStringSubmatch(
		strings.ReplaceAll(read(t, "Makefile"), "\\\n", ""))
	if line == nil {
		t.Fatalf("the Makefile has no line %s", name)
	}
	return strings.Fields(line[1])
}

// TestUnraced_UsesNoConcurrency checks the packages that the Makefile tests without the race
// detector. They must start no goroutine and use nothing made for several goroutines, so that they
// do not need the detector.
func TestUnraced_UsesNoConcurrency(t *testing.T) {
	for _, dir := range makefileList(t, "UNRACED") {
		files := trackedFiles(t, ":(glob)"+dir+"/*.go")
		if len(files) == 0 {
			t.Fatalf("%s: no Go file", dir)
		}
		for _, name := range files {
			file, err := parser.ParseFile(token.NewFileSet(), name, read(t, name), 0)
			if err != nil {
				t.Fatal(err)
			}
			if found := concurrent(file); found != "" {
				t.Errorf("%s %s: take %s out of the Makefile's UNRACED", name, found, dir)
			}
		}
	}
}

// TestUnraced_TestsRun checks that each test that calls testkit.Unraced is in the Makefile's
// UNRACEDTESTS, and its directory in UNRACEDDIRS. Otherwise `make test` would not run it.
func TestUnraced_TestsRun(t *testing.T) {
	tests, dirs, found := makefileList(t, "UNRACEDTESTS"), makefileList(t, "UNRACEDDIRS"), 0
	call := regexp.MustCompile(`func Test(\w+)\(t \*testing\.T\) \{\n(?:\t.*\n)*?\ttestkit\.Unraced\(t\)`)
	for _, name := range trackedFiles(t, "*_test.go", ":!*/unraced_test.go") {
		text := read(t, name)
		calls := call.FindAllStringSubmatch(text, -1)
		for _, m := range calls {
			if !slices.Contains(tests, m[1]) || !slices.Contains(dirs, filepath.Dir(name)) {
				t.Errorf("%s: the Makefile does not run Test%s", name, m[1])
			}
		}
		if n := strings.Count(text, "testkit.Unraced("); n != len(calls) {
			t.Errorf("%s: %d calls of testkit.Unraced in %d tests: call it directly in the test", name, n, len(calls))
		}
		found += len(calls)
	}
	if found == 0 {
		t.Error("no test calls testkit.Unraced")
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
