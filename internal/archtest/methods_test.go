package archtest

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// TestMethods_AreUsed checks that each exported method of the product is named outside of tests, or
// needed by an interface. The tool deadcode cannot check this, because of templates and reflection.
func TestMethods_AreUsed(t *testing.T) {
	forTests, inHTML := regexp.MustCompile(`(test|testkit|process)$`), regexp.MustCompile(`\.[A-Z]\w*`)
	files, exports := token.NewFileSet(), map[string]string{}
	config := types.Config{Importer: importer.ForCompiler(files, "gc",
		func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })}
	methods, interfaces := []*types.Func{}, []*types.Interface{}                     // interfaces of imported packages
	used := map[string]bool{"Unwrap": true, "Is": true}                              // methods, or their names; package errors calls these
	for _, p := range goList(t, "-export", "-deps", "./cmd/...", "./internal/...") { // imported packages come first
		if exports[p.ImportPath] = p.Export; p.Module == nil || !p.Module.Main || forTests.MatchString(p.ImportPath) {
			continue
		}
		pages, _ := filepath.Glob(p.Dir + "/*/*.html*")
		for _, page := range pages {
			text, _ := os.ReadFile(page)
			for _, word := range inHTML.FindAll(text, -1) {
				for _, path := range append(p.Deps, p.ImportPath) {
					used[path+string(word)] = true
				}
			}
		}
		var parsed []*ast.File
		for _, name := range p.GoFiles {
			f, _ := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			parsed = append(parsed, f)
		}
		info := &types.Info{Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}}
		checked, err := config.Check(p.ImportPath, files, parsed, info)
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range info.Uses {
			if f, ok := object.(*types.Func); ok {
				used[f.Origin().FullName()] = true
			}
		}
		for _, object := range info.Defs {
			if f, ok := object.(*types.Func); ok && f.Signature().Recv() != nil {
				if types.IsInterface(f.Signature().Recv().Type()) {
					used[f.Name()] = true
				} else if f.Exported() && p.Name != "main" && p.ImportPath != "example.org/carstate/client" {
					methods = append(methods, f)
				}
			}
		}
		for _, in := range checked.Imports() {
			for _, name := range in.Scope().Names() {
				if i, ok := in.Scope().Lookup(name).Type().Underlying().(*types.Interface); ok {
					interfaces = append(interfaces, i)
				}
			}
		}
	}
	for _, m := range methods {
		if !used[m.FullName()] && !used[m.Name()] && !used[m.Pkg().Path()+"."+m.Name()] &&
			!slices.ContainsFunc(interfaces, func(i *types.Interface) bool {
				in, _, _ := types.LookupFieldOrMethod(i, false, nil, m.Name())
				return in != nil && types.Implements(m.Signature().Recv().Type(), i)
			}) {
			t.Errorf("%s: only tests call %s", files.Position(m.Pos()), m.FullName())
		}
	}
}
