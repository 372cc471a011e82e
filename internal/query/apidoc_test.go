package query

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/template"

	"example.org/carstate/internal/testkit"
)

var updateAPIDoc = flag.Bool("update-api-doc", false, "write docs/query-api.md")

// TestAPIDocument checks that docs/query-api.md agrees with the tables from which the page at / is
// made.
func TestAPIDocument(t *testing.T) {
	functions := template.FuncMap{
		"anchor": func(title string) string { return strings.ReplaceAll(strings.ToLower(title), " ", "-") },
		"cell":   func(text string) string { return strings.ReplaceAll(text, "|", `\|`) },
	}
	page, err := template.New("query-api.md.tmpl").Funcs(functions).ParseFiles("testdata/query-api.md.tmpl")
	testkit.NoError(t, err)
	var want bytes.Buffer
	err = page.Execute(&want, struct {
		Base       string
		Operations []operationDoc
		Statuses   []statusDoc
	}{localBase, operationDocs, statusDocs})
	testkit.NoError(t, err)
	file := filepath.Join("..", "..", "docs", "query-api.md")
	if *updateAPIDoc {
		testkit.NoError(t, os.WriteFile(file, want.Bytes(), 0o644))
	}
	got, err := os.ReadFile(file)
	testkit.NoError(t, err)
	if !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%s is out of date: go test ./internal/query -run TestAPIDocument -update-api-doc", file)
	}
}
