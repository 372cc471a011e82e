package engine

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"example.org/carstate/internal/testkit"
)

func TestNodeKeepsItsName(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	dir := filepath.Join(t.TempDir(), "new")
	first := OpenNodeName(dir, log)
	beside := OpenNodeName(dir, log) // acts as another process in the same directory
	if first.file == nil || beside.file != nil || first.ID == beside.ID {
		t.Errorf("two nodes in one directory: got %+v and %+v; want only the first kept", first, beside)
	}
	first.Close()
	again := OpenNodeName(dir, log)
	if again.ID != first.ID {
		t.Errorf("after a restart: got name %s, want %s", again.ID, first.ID)
	}
	again.Close()

	// The file was truncated when its process was killed, or was edited by hand.
	for _, text := range []string{"", "ABC", "has.a.dot.in.it.", "0123456789ABCDEFG"} {
		testkit.NoError(t, os.WriteFile(filepath.Join(dir, NodeFile), []byte(text), 0o600))
		n := OpenNodeName(dir, log)
		n.Close()
		kept, err := os.ReadFile(filepath.Join(dir, NodeFile))
		if err != nil || string(kept) != n.ID || !isNodeID(n.ID) {
			t.Errorf("file with %q: got name %q, file %q, error %v; want a valid name in the file", text, n.ID, kept, err)
		}
	}

	file := filepath.Join(t.TempDir(), "file")
	testkit.NoError(t, os.WriteFile(file, nil, 0o600))
	for _, nowhere := range []string{"", file} {
		if n := OpenNodeName(nowhere, log); !isNodeID(n.ID) || n.file != nil {
			t.Errorf("without a directory: got %+v, want a name that is not kept", n)
		}
	}
}
