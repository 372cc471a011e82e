package cluster

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"carstate/internal/store/cluster/embedded"
)

func TestNodeKeepsItsName(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	dir := filepath.Join(t.TempDir(), "new")
	first := openNode(dir, log)
	beside := openNode(dir, log) // another process in the same directory
	if first.file == nil || beside.file != nil || first.id == beside.id {
		t.Errorf("two nodes in one directory: %+v, %+v", first, beside)
	}
	first.close()
	again := openNode(dir, log)
	if again.id != first.id {
		t.Errorf("%s is called %s the second time", first.id, again.id)
	}
	again.close()

	// Torn by a kill, or somebody's own idea.
	for _, text := range []string{"", "ABC", "has.a.dot.in.it.", "0123456789ABCDEFG"} {
		if err := os.WriteFile(filepath.Join(dir, embedded.NodeFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		n := openNode(dir, log)
		n.close()
		kept, err := os.ReadFile(filepath.Join(dir, embedded.NodeFile))
		if err != nil || string(kept) != n.id || !isNodeID(n.id) {
			t.Errorf("%q: called %q, kept %q, %v", text, n.id, kept, err)
		}
	}

	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, nowhere := range []string{"", file} {
		if n := openNode(nowhere, log); !isNodeID(n.id) || n.file != nil {
			t.Errorf("without a directory: %+v", n)
		}
	}
}
