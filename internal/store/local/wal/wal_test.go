package wal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"carstate/internal/store/local/durable"
)

// guarded is a file system that keeps a Note for its logs, which
// says how much of the newest log is synced.
type guarded struct {
	vfs.FS
	note *Note
}

// Create implements [vfs.FS].
func (g guarded) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := g.FS.Create(name, category)
	if err != nil || !IsLog(name) {
		return f, err
	}
	return g.note.File(f, name), g.note.Open(g.FS, g.PathDir(name))
}

const (
	storeDir = "/store"
	records  = 12
)

func openStore(t *testing.T, fs vfs.FS) *pebble.DB {
	t.Helper()
	db, err := pebble.Open(storeDir, &pebble.Options{FS: fs, FormatMajorVersion: pebble.FormatWALSyncChunks})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// killed returns the file system of a process that was killed after it had synced some records, and
// the path of the log that contains them.
func killed(t *testing.T) (fs *vfs.MemFS, log string) {
	t.Helper()
	mem := vfs.NewCrashableMem()
	var note Note
	db := openStore(t, guarded{mem, &note})
	if err := db.Close(); err != nil { // the chunks of the first log do not say how much was synced
		t.Fatal(err)
	}
	db = openStore(t, guarded{mem, &note})
	for i := range records {
		if err := db.Set([]byte{byte(i)}, fmt.Append(nil, "record ", i), pebble.Sync); err != nil {
			t.Fatal(err)
		}
	}
	fs = mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 2))})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	note.Close()
	names, err := fs.List(storeDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if IsLog(name) {
			log = max(log, fs.PathJoin(storeDir, name))
		}
	}
	return fs, log
}

// damages are ways to damage a log that ends with a synced record.
var damages = map[string]struct {
	change func(log []byte) []byte
	noNote bool // the note is lost, as after a power cut
	found  bool
	kept   int // records that a Mender finds
}{
	"none":                       {change: func(b []byte) []byte { return b }, kept: records},
	"torn tail":                  {change: func(b []byte) []byte { return append(b, 7, 1, 2, 9) }, kept: records},
	"first byte":                 {change: flip(0), found: true, kept: records - 1},
	"a record":                   {change: flip(200), found: true, kept: records - 1},
	"last byte":                  {change: flip(-1), found: true, kept: records - 1},
	"last byte without a note":   {change: flip(-1), noNote: true, kept: records - 1},
	"first byte without a note":  {change: flip(0), noNote: true, found: true, kept: records - 1},
	"everything":                 {change: func([]byte) []byte { return nil }, found: true},
	"the last bytes are missing": {change: func(b []byte) []byte { return b[:len(b)-12] }, found: true, kept: records - 1},
}

// flip returns a function that flips a bit of the byte at a place, which counts from the end if it is
// negative.
func flip(at int) func([]byte) []byte {
	return func(b []byte) []byte {
		b[(at+len(b))%len(b)] ^= 4
		return b
	}
}

// TestCheck damages a log. Check must find damage of synced bytes. A Mender, a file system that
// leaves out the damage, must then show the good records.
func TestCheck(t *testing.T) {
	whole, log := killed(t)
	for name, c := range damages {
		t.Run(name, func(t *testing.T) {
			fs := whole.CrashClone(vfs.CrashCloneCfg{})
			content, err := durable.ReadFile(fs, log)
			if err == nil {
				err = durable.WriteFile(fs, log, c.change(content))
			}
			if c.noNote {
				err = errors.Join(err, fs.Remove(fs.PathJoin(storeDir, syncedFile)))
			}
			if err != nil {
				t.Fatal(err)
			}
			err = Check(fs, log)
			if _, found := errors.AsType[DamageError](err); found != c.found || !found && err != nil {
				t.Errorf("Check: got %v, want damage %v", err, c.found)
			}
			mender := &Mender{FS: fs, Mended: make(map[string]bool)}
			db := openStore(t, mender)
			defer db.Close()
			kept := 0
			for i := range records {
				if _, closer, err := db.Get([]byte{byte(i)}); err == nil {
					kept++
					closer.Close()
				}
			}
			if kept != c.kept || mender.Mended[fs.PathBase(log)] != c.found {
				t.Errorf("Mender: got %d records, mended %v, want %d, %v", kept, mender.Mended, c.kept, c.found)
			}
		})
	}
}

// TestMissing checks that Missing reports that the newest log, which the Note names, is missing.
func TestMissing(t *testing.T) {
	fs, log := killed(t)
	if missing, err := Missing(fs, storeDir); err != nil || missing {
		t.Errorf("before: got %v, %v, want false", missing, err)
	}
	if err := fs.Remove(log); err != nil {
		t.Fatal(err)
	}
	if missing, err := Missing(fs, storeDir); err != nil || !missing {
		t.Errorf("after: got %v, %v, want true", missing, err)
	}
}
