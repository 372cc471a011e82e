package main_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

func command(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: got %v, want no error\n%s", name, strings.Join(args, " "), err, &stderr)
	}
	return out
}

// The schema comes with the module of the types.
func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	dir := strings.TrimSpace(string(command(t, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/CycloneDX/cyclonedx-go")))
	c := jsonschema.NewCompiler()
	// The name jsf-0.82.schemax.json is that of the module.
	for url, file := range map[string]string{"bom-1.6": "bom-1.6.schema.json", "spdx": "spdx.schema.json",
		"jsf-0.82": "jsf-0.82.schemax.json"} {
		f, err := os.Open(filepath.Join(dir, "schema", file))
		if err != nil {
			t.Fatalf("%s: got %v, want a schema", file, err)
		}
		defer f.Close()
		text, err := jsonschema.UnmarshalJSON(f)
		if err != nil {
			t.Fatalf("%s: got %v, want JSON", file, err)
		}
		if err := c.AddResource("http://cyclonedx.org/schema/"+url+".schema.json", text); err != nil {
			t.Fatalf("%s: got %v, want it added", file, err)
		}
	}
	s, err := c.Compile("http://cyclonedx.org/schema/bom-1.6.schema.json")
	if err != nil {
		t.Fatalf("the schema: got %v, want it compiled", err)
	}
	return s
}

type build struct {
	Version, Commit, Go string
	Modules             []struct{ Path, Version, Sum string }
}

const version = "v1.2.3+incompatible" // also of our client, as go.work names it

func made(t *testing.T) (binary string, text []byte, is build) {
	t.Helper()
	binary, file := filepath.Join(t.TempDir(), "carstate"), filepath.Join(t.TempDir(), "sbom.json")
	command(t, "make", "-C", "../..", "sbom", "BINARY="+binary, "SBOM="+file, "VERSION="+version, "COMMIT=c0ffee")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("the list: got %v, want a file", err)
	}
	if err := json.Unmarshal(command(t, binary, "version", "--json"), &is); err != nil {
		t.Fatalf("version --json: got %v, want JSON", err)
	}
	if len(is.Modules) < 20 {
		t.Errorf("the modules: got %d, want 20 or more", len(is.Modules))
	}
	return binary, text, is
}

func TestSBOM(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the program")
	}
	binary, text, is := made(t)
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("the list: got %v, want JSON", err)
	}
	if err := schema(t).Validate(value); err != nil {
		t.Errorf("the list: got %v, want it valid by the schema", err)
	}

	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(text), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatalf("the list: got %v, want a BOM", err)
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		t.Fatalf("the program: got %v, want a file", err)
	}
	about := bom.Metadata.Component
	if sum := fmt.Sprintf("%x", sha256.Sum256(content)); about.Version != version || is.Version != version ||
		(*about.Hashes)[0].Value != sum {
		t.Errorf("got %s, %+v, want %s, %s", is.Version, about, version, sum)
	}
	for _, want := range []cdx.Property{{Name: "go:commit", Value: is.Commit}, {Name: "go:version", Value: is.Go}} {
		if !slices.Contains(*about.Properties, want) || is.Commit != "c0ffee" {
			t.Errorf("the properties: got %+v, want %+v among them, of c0ffee", *about.Properties, want)
		}
	}
	listed, urls := make(map[string]bool), []string(nil)
	for _, c := range *bom.Components {
		sum := ""
		if c.Properties != nil {
			sum = (*c.Properties)[0].Value
		}
		listed[c.Name+" "+c.Version+" "+sum] = true
		urls = append(urls, c.PackageURL)
	}
	for _, want := range []string{"pkg:golang/github.com/vividcortex/ewma@", "pkg:golang/example.org/carstate/client@v1.2.3%2Bincompatible"} {
		if !slices.ContainsFunc(urls, func(url string) bool { return strings.HasPrefix(url, want) }) {
			t.Errorf("the packages: got %q, want %s among them", urls, want)
		}
	}
	if want := strings.TrimPrefix(is.Go, "go"); !listed["stdlib "+want+" "] {
		t.Errorf("the list: got no standard library %s, want it", want)
	}
	for _, m := range is.Modules {
		if !listed[m.Path+" "+m.Version+" "+m.Sum] {
			t.Errorf("the list: got no %s %s, want it", m.Path, m.Version)
		}
	}
	if len(listed) != len(is.Modules)+1 {
		t.Errorf("the components: got %d, want %d", len(listed), len(is.Modules)+1)
	}
}

func TestSBOM_RefusesOtherFiles(t *testing.T) {
	if err := exec.Command("go", "run", ".", "main.go", "v1", "c0ffee").Run(); err == nil {
		t.Error("its own source as a binary: got no error, want one")
	}
}
