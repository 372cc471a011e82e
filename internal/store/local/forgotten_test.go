package local

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"example.org/carstate/internal/store"
	"example.org/carstate/internal/test/storetest"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

// No file contains the name of a forgotten vehicle after ErasedBy of the receipt.
func TestForgottenBytes(t *testing.T) {
	t.Parallel()
	forgottenBytes(t, 0, 0)
}

// The promised duration depends on elapsed time, not on the clock.
func TestForgottenBytes_ClockSet(t *testing.T) {
	t.Parallel()
	const month = 30 * 24 * time.Hour
	for name, jump := range map[string][2]time.Duration{
		"ahead by 40 minutes until just before": {-40 * time.Minute, 0},
		"ahead by a month until just after":     {0, -month},
		"behind by a month just then":           {-month, month},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			forgottenBytes(t, jump[0], jump[1])
		})
	}
}

// forgottenBytes sets the clock by before and after at these moments of forgetting the vehicle.
func forgottenBytes(t *testing.T, before, after time.Duration) {
	clock := testkit.NewClock(time.Now())
	c := store.Config{DataDir: t.TempDir(), Partitions: 2, Now: clock.Now, Retention: time.Hour}
	e := mustOpen(t.Context(), t, Config{Config: c, MemoryBytes: 1 << 19, plain: true})
	n := storetest.Start(t, e, c)
	n.GrantAll(t)
	others := make([]vehicle.ID, 200)
	for i := range others {
		others[i] = vehicle.ID(fmt.Sprintf("Other%d", i))
	}
	at := int64(1000)
	drive := func(ids ...vehicle.ID) {
		t.Helper()
		at += 1000
		n.Drive(t, at, ids...)
		clock.Advance(5 * time.Minute)
	}
	driveAll := func() {
		t.Helper()
		for range 5 {
			drive(append(others, storetest.SecretVID)...)
			testkit.NoError(t, e.db.Flush())
		}
	}
	driveAll()
	testkit.NoError(t, e.db.Compact(t.Context(), []byte{'A'}, []byte{'Z'}, false))
	driveAll()
	if named := filesWith(t, c.DataDir, storetest.SecretVID); len(named) == 0 {
		t.Fatal("files that name the vehicle before it is forgotten: got none, want some")
	}
	clock.Advance(before)
	receipt := n.MustForget(t, storetest.SecretVID)
	if receipt.ErasedBy == nil {
		t.Fatal("the receipt: got no time, want one")
	}
	clock.Advance(after)
	end := clock.Now().Add(receipt.ErasedBy.Sub(receipt.ForgottenAt))
	for clock.Now().Before(end) {
		drive(others...)                // the service continues
		for p := range n.Partitions() { // as the time that passes would bring it
			_, err := n.Ask(t.Context(), p, &store.Question{Kind: store.AskCheckpoint})
			testkit.NoError(t, err)
		}
		testkit.NoError(t, e.trim())
		testkit.NoError(t, n.EraseDue(t.Context()))
	}
	if named := filesWith(t, c.DataDir, storetest.SecretVID); len(named) > 0 {
		t.Errorf("files that name the vehicle after %s: got %q, want none", receipt.ErasedBy.Sub(receipt.ForgottenAt),
			named)
	}
	for _, id := range []vehicle.ID{"Other0", "Other199"} {
		if _, ok := n.StateOf(t, id); !ok {
			t.Errorf("the state of %s: got none, want it kept", id)
		}
	}
}

func filesWith(t *testing.T, dir string, id vehicle.ID) (named []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		if os.IsNotExist(err) {
			return nil
		}
		if bytes.Contains(text, []byte(id)) {
			named = append(named, filepath.Base(name))
		}
		return err
	})
	testkit.NoError(t, err)
	return named
}
