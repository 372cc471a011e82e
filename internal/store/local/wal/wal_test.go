package wal

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"example.org/carstate/internal/store/local/durable"
	"example.org/carstate/internal/test/testkit"
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
	testkit.NoError(t, err)
	return db
}

// killed returns the file system of a process that was killed after it had synced the records 0 to
// records-1, and the path of the log that contains them.
func killed(t *testing.T) (fs *vfs.MemFS, log string) {
	t.Helper()
	mem := vfs.NewCrashableMem()
	var note Note
	db := openStore(t, guarded{mem, &note})
	testkit.NoError(t, db.Close()) // the chunks of the first log do not say how much was synced
	db = openStore(t, guarded{mem, &note})
	for i := range records {
		testkit.NoError(t, db.Set([]byte{byte(i)}, fmt.Append(nil, "record ", i), pebble.Sync))
	}
	fs = mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 2))})
	testkit.NoError(t, db.Close())
	note.Close()
	names, err := fs.List(storeDir)
	testkit.NoError(t, err)
	for _, name := range names {
		if IsLog(name) {
			log = max(log, fs.PathJoin(storeDir, name))
		}
	}
	return fs, log
}

// damages are ways to damage a log that ends with a synced record, and the note that says how much
// of the log is synced. found says whether Check must report damage of the log. A note that is lost
// or damaged, as after a power cut, is no damage of the log.
var damages = map[string]struct {
	log, note func([]byte) []byte // if nil, the file is unchanged
	found     bool
	kept      int // records that a Mender finds
}{
	"none":                       {kept: records},
	"torn tail":                  {log: tail([]byte{7, 1, 2, 9}), kept: records},
	"tail like a header":         {log: tail([]byte{1, 2, 3, 4, 9, 0, 9}), kept: records},
	"tail of zeros":              {log: tail(make([]byte, 5000)), kept: records},
	"long tail":                  {log: tail(bytes.Repeat([]byte("\x07garbage"), 700)), kept: records},
	"first byte":                 {log: flip(0), found: true, kept: records - 1},
	"a record":                   {log: flip(200), found: true, kept: records - 1},
	"last byte":                  {log: flip(-1), found: true, kept: records - 1},
	"last byte without a note":   {log: flip(-1), note: empty, kept: records - 1},
	"first byte without a note":  {log: flip(0), note: empty, found: true, kept: records - 1},
	"everything":                 {log: empty, found: true},
	"the last bytes are missing": {log: func(b []byte) []byte { return b[:len(b)-12] }, found: true, kept: records - 1},
	"a flipped note":             {note: flip(9), kept: records},
	"a cut note":                 {note: func(b []byte) []byte { return b[:3] }, kept: records},
	"an empty note":              {note: empty, kept: records},
}

func empty([]byte) []byte { return nil }

// tail returns a function that appends bytes that were not synced.
func tail(torn []byte) func([]byte) []byte {
	return func(b []byte) []byte { return append(b, torn...) }
}

// flip returns a function that flips a bit of the byte at a place, which counts from the end if it
// is negative.
func flip(at int) func([]byte) []byte {
	return func(b []byte) []byte {
		b[(at+len(b))%len(b)] ^= 4
		return b
	}
}

// TestCheck damages a log. Check must find damage of synced bytes, and no damage in an incomplete
// end that was not synced. A Mender, a file system that leaves out the damage, must then show
// exactly the good records, and name the log as mended only if Check has found damage.
func TestCheck(t *testing.T) {
	whole, log := killed(t)
	for name, c := range damages {
		t.Run(name, func(t *testing.T) {
			fs := whole.CrashClone(vfs.CrashCloneCfg{})
			for name, change := range map[string]func([]byte) []byte{
				log: c.log, fs.PathJoin(storeDir, syncedFile): c.note,
			} {
				if change == nil {
					continue
				}
				content, err := durable.ReadFile(fs, name)
				testkit.NoError(t, err)
				testkit.NoError(t, durable.WriteFile(fs, name, change(content)))
			}
			err := Check(fs, log)
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

// TestMissing checks that Missing returns true once the newest log, which the Note names, is
// removed, and false before.
func TestMissing(t *testing.T) {
	fs, log := killed(t)
	if missing, err := Missing(fs, storeDir); err != nil || missing {
		t.Errorf("before: got %v, %v, want false", missing, err)
	}
	testkit.NoError(t, fs.Remove(log))
	if missing, err := Missing(fs, storeDir); err != nil || !missing {
		t.Errorf("after: got %v, %v, want true", missing, err)
	}
}
