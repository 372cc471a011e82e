package browsertest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"carstate/internal/testkit"
)

// axe-core is a script that checks the accessibility of a page. It is fetched from its registry,
// stored in a directory that git ignores, and verified against a checksum.
const (
	axeVersion = "4.14.1"
	axeSum     = "e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745"
	axeCache   = "../../.cache"
)

// Axe returns the script of axe-core.
func Axe(t *testing.T) string {
	t.Helper()
	testkit.Slow(t, "it needs axe-core, for a browser")
	file := filepath.Join(axeCache, "axe-core-"+axeVersion+".tgz")
	packed, err := os.ReadFile(file)
	if err != nil {
		packed = fetchAxe(t, file)
	}
	if sum := sha256.Sum256(packed); hex.EncodeToString(sum[:]) != axeSum {
		t.Fatalf("%s does not match its checksum: delete it, then try again", file)
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	for archive := tar.NewReader(unzipped); ; {
		h, err := archive.Next()
		if err != nil {
			t.Fatalf("axe.min.js is not in %s: %v", file, err)
		}
		if h.Name == "package/axe.min.js" {
			source, err := io.ReadAll(archive)
			if err != nil {
				t.Fatal(err)
			}
			return string(source)
		}
	}
}

func fetchAxe(t *testing.T, file string) []byte {
	t.Helper()
	npm, err := exec.LookPath("npm")
	if err != nil {
		t.Fatal("this test needs npm: apt-get install -y npm")
	}
	dir := t.TempDir()
	// The request is repeated, because a registry fails occasionally.
	for try := 1; ; try++ {
		cmd := exec.Command(npm, "pack", "--silent", "axe-core@"+axeVersion)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err == nil {
			break
		}
		if try == 3 {
			t.Fatalf("npm pack: %v\n%s", err, out)
		}
	}
	packed, err := os.ReadFile(filepath.Join(dir, filepath.Base(file)))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(axeCache, 0o755); err != nil {
		t.Fatal(err)
	}
	// Another test may read the file at the same time, so the file is written under another name
	// and then renamed.
	part, err := os.CreateTemp(axeCache, "new-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(part.Name()) // after the rename, there is no such file
	_, err = part.Write(packed)
	if err := errors.Join(err, part.Close()); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(part.Name(), file); err != nil {
		t.Fatal(err)
	}
	return packed
}
