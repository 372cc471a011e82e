package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
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
