package defects

import (
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write into the patches to which files their lines have moved")

func TestPatches_FitAndCompile(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob("*.patch")
	if err != nil || len(names) == 0 {
		t.Fatalf("there are no patches: %v", err)
	}
	var rounds []*round
	for _, name := range names {
		if *update {
			follow(t, root, name)
		}
		var o overlay
		file, err := Overlay(root, strings.TrimSuffix(name, ".patch"), t.TempDir())
		if err != nil {
			t.Error(err)
			continue
		}
		if err := json.Unmarshal([]byte(read(t, file)), &o); err != nil || len(o.Replace) == 0 {
			t.Errorf("%s changes nothing: %v", name, err)
		}
		i := slices.IndexFunc(rounds, func(r *round) bool {
			for original := range o.Replace {
				if r.Replace[original] != "" {
					return false
				}
			}
			return true
		})
		if i < 0 {
			i = len(rounds)
			rounds = append(rounds, &round{overlay: overlay{make(map[string]string)}})
		}
		r := rounds[i]
		r.patches = append(r.patches, name)
		maps.Copy(r.Replace, o.Replace)
		for _, h := range hunks(read(t, name)) {
			r.packages = append(r.packages, "./"+path.Dir(h.file))
		}
	}
	for _, r := range rounds {
		text, err := json.Marshal(r.overlay)
		file := filepath.Join(t.TempDir(), "overlay.json")
		if err := errors.Join(err, os.WriteFile(file, text, 0o600)); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-export", "-overlay", file}, r.packages...)...)
		cmd.Dir, cmd.Env = root, append(cmd.Environ(), "GOWORK=") // which torture is not in
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%q do not compile: %v\n%s", r.patches, err, out)
		}
	}
}

type round struct {
	overlay
	patches, packages []string
}

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
		text = strings.NewReplacer("--- a/"+h.file+"\n", "--- a/"+moved+"\n", "+++ b/"+h.file+"\n",
			"+++ b/"+moved+"\n").Replace(text)
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
