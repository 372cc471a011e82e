package defects

import (
	"bytes"
	"flag"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write into the patches to which files their lines have moved")

// TestPatches: every patch fits the product, and every package that it touches still
// compiles, to something else.
func TestPatches(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob("*.patch")
	if err != nil || len(names) == 0 {
		t.Fatalf("there are no patches: %v", err)
	}
	touched := make(map[string][]string) // packages by patch
	var all []string
	for _, name := range names {
		if *update {
			follow(t, root, name)
		}
		for _, h := range hunks(read(t, name)) {
			touched[name] = append(touched[name], "./"+path.Dir(h.file))
		}
		all = append(all, touched[name]...)
	}
	plain := compiled(t, root, "", all)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			overlay, err := Overlay(root, strings.TrimSuffix(name, ".patch"), t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			patched := compiled(t, root, overlay, touched[name])
			if len(patched) == 0 {
				t.Error("the patch touches nothing")
			}
			for pkg, id := range patched {
				if id == plain[pkg] {
					t.Errorf("%s is compiled to the same as without the patch", pkg)
				}
			}
		})
	}
}

// compiled compiles packages and returns a hash of what each becomes.
func compiled(t *testing.T, root, overlay string, packages []string) map[string]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-export", "-overlay", overlay, "-f", "{{.ImportPath}} {{.BuildID}}"}, packages...)...)
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	ids := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		pkg, id, _ := strings.Cut(strings.TrimSpace(line), " ")
		ids[pkg] = id[strings.LastIndex(id, "/")+1:] // the part that stands for the result
	}
	return ids
}

// follow writes into a patch to which files the lines of its hunks have moved.
func follow(t *testing.T, root, name string) {
	t.Helper()
	text := read(t, name)
	for _, h := range hunks(text) {
		if old, err := os.ReadFile(filepath.Join(root, h.file)); err == nil && strings.Contains(string(old), h.before) {
			continue
		}
		var found []string
		for _, dir := range []string{"cmd", "internal"} {
			err := filepath.WalkDir(filepath.Join(root, dir), func(file string, e fs.DirEntry, err error) error {
				if err != nil || e.IsDir() || filepath.Ext(file) != ".go" {
					return err
				}
				if content := read(t, file); strings.Count(content, h.before) == 1 {
					found = append(found, file)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if len(found) != 1 {
			t.Errorf("%s: the lines of %s are now in %d files: refresh it by hand:\n%s", name, h.file, len(found), h.before)
			continue
		}
		moved, err := filepath.Rel(root, found[0])
		if err != nil {
			t.Fatal(err)
		}
		text = strings.NewReplacer("--- a/"+h.file+"\n", "--- a/"+moved+"\n", "+++ b/"+h.file+"\n", "+++ b/"+moved+"\n").Replace(text)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
