package damage

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"example.org/carstate/internal/store/local/wal"
)

// Store is a damaged store that is open for reading. Damaged records of its log are left out.
type Store struct {
	*pebble.DB
	BadLogs int // number of damaged log files

	fs  vfs.FS
	dir string
	// others is the same store, opened as if its damaged tables were empty. For keys that cannot be
	// read from the store itself, others gives the records of the log and of the undamaged tables.
	// It is nil until it is needed.
	others *pebble.DB
}

// Open opens the store in the directory dir, and changes no file. If the store cannot be opened
// because it is damaged, [IsUnreadable] is true for the error. If Open returns an error, the Store
// must not be used.
func Open(fsys vfs.FS, dir string) (*Store, error) {
	s := &Store{fs: fsys, dir: dir}
	mender := &wal.Mender{FS: fsys, Mended: make(map[string]bool)}
	var err error
	s.DB, err = s.open(mender)
	s.BadLogs = len(mender.Mended)
	return s, err
}

func (s *Store) open(fsys vfs.FS) (*pebble.DB, error) {
	db, err := pebble.Open(s.dir, &pebble.Options{
		FS: fsys, ReadOnly: true, ErrorIfNotExists: true, DisableConsistencyCheck: true, Logger: silent{},
		EventListener: &pebble.EventListener{DataCorruption: func(pebble.DataCorruptionInfo) {}},
	})
	return db, unreadable(err)
}

// Close closes the store.
func (s *Store) Close() {
	for _, db := range []*pebble.DB{s.DB, s.others} {
		if db != nil {
			_ = db.Close() // nothing was written
		}
	}
}

// silent is a Pebble logger that drops messages and errors. They are not needed, because the
// functions that read return the errors. After a fatal error, Pebble must not continue, so Fatalf
// panics.
type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}

// Iterator returns an iterator over the keys in [from, to).
func (s *Store) Iterator(from, to []byte) (Iterator, error) {
	return iterator(s.DB, from, to)
}

func iterator(db *pebble.DB, from, to []byte) (Iterator, error) {
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	return it, unreadable(err)
}

// ReadOthers is for a range of keys in which the store cannot be read. It calls do for those
// records of the range that are in the log or in undamaged tables. At the first of these records
// that cannot be read because of further damage, ReadOthers ends and returns nil. It does so too if
// damage prevents reading any of these records. It returns an error of do unchanged.
func (s *Store) ReadOthers(ctx context.Context, from, to []byte, do func(key, value []byte) error) error {
	if s.others == nil {
		good, err := s.withoutDamagedTables(ctx)
		if err == nil {
			s.others, err = s.open(&wal.Mender{FS: good, Mended: make(map[string]bool)})
		}
		if IsUnreadable(err) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	others := func(from, to []byte) (Iterator, error) { return iterator(s.others, from, to) }
	_, err := ReadGood(ctx, others, from, to, do)
	if IsUnreadable(err) {
		return nil
	}
	return err
}

// emptied is a file system that shows an empty table in place of each damaged table of a store.
type emptied struct {
	vfs.FS
	tables map[string]bool // names of the files of damaged tables
	empty  *vfs.MemFS      // contains an empty table named emptyTable
}

const emptyTable = "empty"

// withoutDamagedTables returns a view of the store's file system in which all damaged tables are
// empty. If a table is absent, it returns an unreadableError.
func (s *Store) withoutDamagedTables(ctx context.Context) (vfs.FS, error) {
	view := &emptied{s.fs, make(map[string]bool), vfs.NewMem()}
	f, err := view.empty.Create(emptyTable, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	w := sstable.NewWriter(objstorageprovider.NewFileWritable(f), sstable.WriterOptions{})
	if err := w.Close(); err != nil {
		return nil, err
	}
	levels, err := s.SSTables()
	if err != nil { // a table is absent
		return nil, unreadable(err)
	}
	for _, level := range levels {
		for _, table := range level {
			name := table.BackingSSTNum.String() + ".sst"
			err := checkTable(ctx, s.fs, s.fs.PathJoin(s.dir, name))
			if err != nil && IsNot(err) {
				return nil, err
			}
			if err != nil {
				view.tables[name] = true
			}
		}
	}
	return view, nil
}

// checkTable returns an error if a block of a table is damaged or the table cannot be read (see
// IsNot).
func checkTable(ctx context.Context, fsys vfs.FS, name string) error {
	f, err := fsys.Open(name)
	if err != nil {
		return err
	}
	source, err := sstable.NewSimpleReadable(f)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	r, err := sstable.NewReader(ctx, source, sstable.ReaderOptions{})
	if err != nil { // NewReader has closed the source
		return err
	}
	return errors.Join(r.ValidateBlockChecksums(), r.Close())
}

// Open implements [vfs.FS]: it opens an empty table in place of a damaged one.
func (v *emptied) Open(name string, options ...vfs.OpenOption) (vfs.File, error) {
	if v.tables[v.PathBase(name)] {
		return v.empty.Open(emptyTable)
	}
	return v.FS.Open(name, options...)
}

// Lock implements [vfs.FS]. It does nothing, because the store is locked already.
func (v *emptied) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }
