package embedded

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// The server does not say why it could not store something: the disk does.
func TestBlame(t *testing.T) {
	t.Parallel()
	failed := errors.New("the stream STATES cannot be set up: error creating store for stream")
	d := &DataDir{Path: t.TempDir()}
	if err := d.Blame(failed); err != failed {
		t.Errorf("with room on the disk: %v", err)
	}
	if left, err := os.ReadDir(d.Path); err != nil || len(left) > 0 {
		t.Errorf("the probe left %v, %v", left, err)
	}
	if err := (*DataDir)(nil).Blame(failed); err != failed {
		t.Errorf("without a directory: %v", err)
	}
	if err := os.Symlink("/dev/full", filepath.Join(d.Path, "probe"+unfinished)); err != nil {
		t.Fatal(err)
	}
	err := d.Blame(failed)
	if !errors.Is(err, syscall.ENOSPC) || !errors.Is(err, failed) {
		t.Fatalf("on a full disk: %v", err)
	}
	want := "the data directory " + d.Path + " cannot be written: no space left on device (" + failed.Error() + ")"
	if err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
}
