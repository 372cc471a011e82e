package durable_test

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"example.org/carstate/internal/store/local/durable"
	"example.org/carstate/internal/test/testkit"
)

func TestWriteFile_PowerCut(t *testing.T) {
	mem := vfs.NewCrashableMem()
	testkit.NoError(t, durable.MakeDir(mem, "/a/b"))
	for _, content := range []string{"first", "second"} {
		testkit.NoError(t, durable.WriteFile(mem, "/a/b/file", []byte(content)))
		after := mem.CrashClone(vfs.CrashCloneCfg{})
		if got, err := durable.ReadFile(after, "/a/b/file"); err != nil || string(got) != content {
			t.Errorf("got %q, %v, want %q", got, err, content)
		}
		if _, err := after.Stat("/a/b/file" + durable.Unfinished); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the unfinished file: got %v, want that it is gone", err)
		}
	}
}
