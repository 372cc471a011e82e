package local

import (
	"errors"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/atomicfs"

	"example.org/carstate/internal/store"
	"example.org/carstate/internal/test/testkit"
)

// A newer version of Pebble's files, known to this Pebble or not, is refused as a newer carstate's.
func TestOpen_NewerStoreFormat(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	if storeFormat == pebble.FormatNewest {
		t.Fatal("got no newer format that this Pebble knows, want one")
	}
	for _, version := range []string{(storeFormat + 1).String(), "999"} {
		dir := t.TempDir()
		e := mustOpen(ctx, t, Config{DataDir: dir})
		testkit.NoError(t, e.Close())
		if err := CheckFormat(dir, 0); err != nil {
			t.Errorf("CheckFormat before: got %v, want nil", err)
		}
		files := filepath.Join(dir, storeDir)
		marker, _, err := atomicfs.LocateMarker(vfs.Default, files, "format-version")
		testkit.NoError(t, err)
		testkit.NoError(t, errors.Join(marker.Move(version), marker.Close()))
		before := contents(t, vfs.Default, files)
		_, openErr := Open(ctx, Config{DataDir: dir})
		_, checked := Check(ctx, nil, dir)
		for what, err := range map[string]error{"Open": openErr, "CheckFormat": CheckFormat(dir, 0), "Check": checked} {
			if !errors.Is(err, store.ErrConfig) || !strings.Contains(err.Error(), "newer carstate") {
				t.Errorf("%s of version %s: got %v, want ErrConfig of a newer carstate", what, version, err)
			}
		}
		if after := contents(t, vfs.Default, files); !maps.Equal(before, after) {
			t.Errorf("version %s: got the files changed, want them unchanged", version)
		}
	}
}

func TestCheckFormat_Partitions(t *testing.T) {
	t.Parallel()
	ctx, dir := testkit.Context(t), t.TempDir()
	e := mustOpen(ctx, t, Config{DataDir: dir, Partitions: 2})
	testkit.NoError(t, e.Close())
	if err := errors.Join(CheckFormat(dir, 0), CheckFormat(dir, 2)); err != nil {
		t.Errorf("got %v, want nil", err)
	}
	if err := CheckFormat(dir, 3); !errors.Is(err, store.ErrConfig) || !strings.Contains(err.Error(), "2 partitions") {
		t.Errorf("got %v, want ErrConfig with 2 partitions", err)
	}
}
