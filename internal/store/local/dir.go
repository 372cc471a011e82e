package local

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/atomicfs"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/store/local/durable"
)

// A data directory contains
//
//	carstate.json  the identity of the directory; written before anything else
//	carstate.copy  its parts that do not change, in case it is damaged or lost
//	lock           locked by the process that owns the directory
//	acknowledged   up to where each stream was acknowledged (see mark)
//	store/         the files of Pebble
//	reserve/       room for taking rights away (see reserve)
//
// and files of other packages, such as the admin key.
const (
	identityFile = "carstate.json"
	identityCopy = "carstate.copy"
	lockFile     = "lock"
	storeDir     = "store"

	directoryFormat = 8
	// A later carstate may raise it, and can still read directories with the older one.
	storeFormat = pebble.FormatWALSyncChunks
)

// A directory with only these is new. A killed first start, an old version or mkfs left them.
var harmless = []string{lockFile, "node", identityFile + durable.Unfinished, "lost+found"}

type identity struct {
	Format     int    `json:"format"`
	Partitions int    `json:"partitions"`
	Made       int64  `json:"made"`  // Unix ns
	Key        []byte `json:"key"`   // HMAC key of the hashes in the keys of the database
	Ready      bool   `json:"ready"` // the store was created: if it is missing, the directory is damaged
	// Ends has the cursors and last sequences, by stream and partition, of the last orderly close.
	Ends map[string]uint64 `json:"ends,omitempty"`
	// Pebble treats a damaged record of its list of tables as the end, and would open the store
	// without the tables that follow. Manifest is how much of the list is on disk.
	Manifest manifest `json:"manifest"`
	// Logs has all logs but the newest, because Pebble would open the store without a missing one.
	// For the newest, which may be missing after a power cut, see mark.
	Logs []string `json:"logs,omitempty"`
	Sum  uint32   `json:"sum"` // CRC-32C of carstate.json with Sum set to 0
}

type manifest struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
	Sum  uint32 `json:"sum"` // CRC-32C of the first Size bytes
}

func (id identity) text() []byte {
	id.Sum = 0
	text, _ := json.MarshalIndent(id, "", "  ") // cannot fail
	id.Sum = crc32.Checksum(text, codec.Castagnoli)
	text, _ = json.MarshalIndent(id, "", "  ")
	return append(text, '\n')
}

const keyBytes = 32

func HasRecords(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, identityFile))
	_, noCopy := os.Stat(filepath.Join(dir, identityCopy))
	return err == nil || noCopy == nil
}

type dataDir struct {
	fs   vfs.FS
	path string
	lock io.Closer

	mu sync.Mutex // guards the fields below once the directory is open
	identity
	newestLog string
	fromCopy  bool // carstate.json is damaged or lost
}

func openDataDir(fsys vfs.FS, path string, partitions int, now int64) (_ *dataDir, err error) {
	d := &dataDir{fs: fsys, path: path}
	if d.identity, err = d.identify(); err != nil {
		return nil, err
	}
	if err := durable.MakeDir(fsys, path); err != nil {
		return nil, d.unusable("created", "", err)
	}
	if err := d.checkWritable(); err != nil {
		return nil, err
	}
	if d.lock, err = fsys.Lock(d.name(lockFile)); err != nil {
		if errors.Is(err, syscall.EAGAIN) {
			return nil, fmt.Errorf("the data directory %s is in use by another carstate: stop that one and wait "+
				"until it has ended", path)
		}
		return nil, d.unusable("written", "", err)
	}
	defer func() {
		if err != nil {
			_ = d.close() // the error that led here is reported
		}
	}()
	// Another process may have created the directory before this one got the lock.
	if d.identity, err = d.identify(); err != nil {
		return nil, err
	}
	if d.Format == 0 {
		d.identity = identity{Format: directoryFormat, Made: now, Key: make([]byte, keyBytes)}
		d.Partitions = cmp.Or(partitions, defaultPartitions)
		rand.Read(d.Key)
		return d, d.write(identityFile, d.text())
	}
	return d, cmp.Or(d.checkPartitions(partitions), d.checkStore())
}

func (d *dataDir) checkPartitions(wanted int) error {
	if wanted == 0 || d.Format == 0 || wanted == d.Partitions {
		return nil
	}
	return store.ConfigError(fmt.Errorf("the data directory %s was made with %d partitions, which cannot change: leave "+
		"--partitions out or set it to %d", d.path, d.Partitions, d.Partitions))
}

func (d *dataDir) name(file string) string { return d.fs.PathJoin(d.path, file) }

// CheckFormat only reads, so a service may be using the directory. 0 partitions: any number. The
// error for a directory of another program, format or number of partitions is a [store.ErrConfig].
func CheckFormat(dir string, partitions int) (err error) {
	d := &dataDir{fs: vfs.Default, path: dir}
	if d.identity, err = d.identify(); err != nil {
		return err
	}
	return d.checkPartitions(partitions)
}

func (d *dataDir) identify() (id identity, err error) {
	entries, err := d.fs.List(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		return id, nil
	}
	if err != nil {
		return id, d.unusable("read", "", err)
	}
	id, err = d.identityIn(identityFile)
	_, damaged := errors.AsType[damagedError](err)
	missing := errors.Is(err, fs.ErrNotExist)
	if damaged || missing {
		if is, err := d.identityIn(identityCopy); err == nil {
			d.fromCopy = true
			return is, d.checkStoreFormat()
		}
	}
	switch {
	case missing && slices.Contains(entries, identityCopy):
		return id, d.damaged(identityFile + " is missing, and its copy is invalid")
	case missing && slices.ContainsFunc(entries, func(e string) bool { return !slices.Contains(harmless, e) }):
		return id, store.ConfigError(fmt.Errorf("the directory %s holds files that are not carstate's: name an "+
			"empty or a new one, or that of a service", d.path))
	case missing:
		return id, nil
	case err != nil:
		return id, err
	}
	return id, d.checkStoreFormat()
}

func (d *dataDir) identityIn(file string) (id identity, err error) {
	text, err := durable.ReadFile(d.fs, d.name(file))
	if err != nil {
		return id, d.unusable("read", file, err)
	}
	err = json.Unmarshal(text, &id)
	switch {
	case err != nil || id.Format < 1:
		return id, d.damaged(file + " is invalid")
	case id.Format < directoryFormat:
		return id, store.ConfigError(fmt.Errorf("the data directory %s was written by an older carstate (format %d), "+
			"which this version does not read: use that version or a new directory", d.path, id.Format))
	case id.Format > directoryFormat:
		return id, store.ConfigError(fmt.Errorf("the data directory %s was written by a newer carstate (format %d): use "+
			"that version", d.path, id.Format))
	case !bytes.Equal(text, id.text()) || id.Partitions < 1 || len(id.Key) != keyBytes:
		return id, d.damaged(file + " is invalid")
	}
	return id, nil
}

// Pebble would report as damage a format that a newer carstate has raised.
func (d *dataDir) checkStoreFormat() error {
	text, err := atomicfs.ReadMarker(d.fs, d.name(storeDir), "format-version")
	if err != nil || text == "" {
		return nil // the store is absent or cannot be read; a later step reports this
	}
	if format, err := strconv.ParseUint(text, 10, 64); err == nil && format > uint64(storeFormat) {
		return store.ConfigError(fmt.Errorf("the data directory %s was written by a newer carstate (format %d of the "+
			"store, and this version knows %d): use that version", d.path, format, storeFormat))
	}
	return nil
}

func (d *dataDir) checkStore() error {
	if !d.Ready {
		return nil
	}
	text, err := durable.ReadFile(d.fs, d.fs.PathJoin(d.name(storeDir), d.Manifest.Name))
	switch {
	case errors.Is(err, fs.ErrNotExist): // there is a newer manifest, or Pebble reports that there is none
	case err != nil:
		return d.unusable("read", storeDir, err)
	case int64(len(text)) < d.Manifest.Size ||
		crc32.Checksum(text[:d.Manifest.Size], codec.Castagnoli) != d.Manifest.Sum:
		return d.damaged("the manifest of the store is not what was written")
	}
	for _, log := range d.Logs {
		if _, err := d.fs.Stat(d.fs.PathJoin(d.name(storeDir), log)); errors.Is(err, fs.ErrNotExist) {
			return d.damaged("a log of the store is missing")
		}
	}
	return nil
}

func (d *dataDir) checkWritable() error {
	info, err := d.fs.Stat(d.path)
	if err != nil {
		return d.unusable("read", "", err)
	}
	dir, owned := info.Sys().(*syscall.Stat_t)
	if !owned {
		return nil // the file system knows no owners and permissions
	}
	if err := d.checkOwner(dir); err != nil {
		return err
	}
	const mayWrite = 2
	if err := syscall.Access(d.path, mayWrite); err != nil {
		return d.unusable("written", "", err)
	}
	files, err := d.fs.List(d.name(storeDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return d.unusable("read", storeDir, err)
	}
	for _, f := range append(files, "") {
		name := d.fs.PathJoin(storeDir, f)
		if err := syscall.Access(d.name(name), mayWrite); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return d.unusable("written", name, err)
		}
	}
	return nil
}

// checkOwner fails if a user other than root and this one could have forged records.
func (d *dataDir) checkOwner(dir *syscall.Stat_t) error {
	const othersMayWrite = 0o002
	switch {
	case dir.Mode&othersMayWrite != 0:
		return fmt.Errorf("the data directory %s can be changed by other users: check its contents, then run "+
			"chmod o-w %s", d.path, d.path)
	case dir.Uid != 0 && int(dir.Uid) != os.Geteuid():
		return fmt.Errorf("the data directory %s belongs to another user (uid %d): run carstate as that user or "+
			"use another directory", d.path, dir.Uid)
	}
	var lock syscall.Stat_t
	if err := syscall.Lstat(d.name(lockFile), &lock); err == nil && lock.Mode&syscall.S_IFMT != syscall.S_IFREG {
		return fmt.Errorf("%s is not a file: move it away", d.name(lockFile))
	}
	return nil
}

type damagedError struct{ path, what string }

func (e damagedError) Error() string {
	return fmt.Sprintf("the data directory %s is damaged (%s): restore a backup into a new --data-dir; "+
		"carstate check %s says what can be read", e.path, e.what, e.path)
}

func (d *dataDir) damaged(what string) error { return damagedError{d.path, what} }

// what is a file in the directory, or ""
func (d *dataDir) unusable(done, what string, err error) error {
	err = access.WithoutPath(err) // the message names the path already
	advice := ""
	if errors.Is(err, fs.ErrPermission) {
		advice = ": check its owner and permissions, and the user that carstate runs as"
	}
	if what != "" {
		return fmt.Errorf("the data directory %s cannot be %s (%s: %w)%s", d.path, done, what, err, advice)
	}
	return fmt.Errorf("the data directory %s cannot be %s: %w%s", d.path, done, err, advice)
}

func (d *dataDir) write(file string, text []byte) error {
	if err := durable.WriteFile(d.fs, d.name(file), text); err != nil {
		return d.unusable("written", "", err)
	}
	return nil
}

func (d *dataDir) saveCopy() error {
	text := identity{
		Format: d.Format, Partitions: d.Partitions, Made: d.Made, Key: d.Key, Ready: true,
		Manifest: manifest{Name: "unknown"}, // so that no file is compared with it
	}.text()
	if is, err := durable.ReadFile(d.fs, d.name(identityCopy)); err == nil && bytes.Equal(is, text) {
		return nil
	}
	return d.write(identityCopy, text)
}

func (d *dataDir) change(do func(*identity)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	do(&d.identity)
	return d.write(identityFile, d.text())
}

// logCreated ignores an error: then only the loss of a log would not be noticed.
func (d *dataDir) logCreated(name string) {
	d.mu.Lock()
	before := d.newestLog
	d.newestLog = name
	d.mu.Unlock()
	if before != "" {
		_ = d.change(func(id *identity) { id.Logs = append(id.Logs, before) })
	}
}

// logRemoved is called before a log is removed, so that no listed log is missing. It writes the list
// even if it lacks the log, because an earlier write may have failed.
func (d *dataDir) logRemoved(name string) error {
	if !isLog(name) {
		return nil
	}
	return d.change(func(id *identity) {
		id.Logs = slices.DeleteFunc(id.Logs, func(log string) bool { return log == name })
	})
}

const probeBytes = 1 << 20 // more than a few records need, so that the store can write after a probe

func (d *dataDir) probe() error {
	fs, name := d.fs.Unwrap(), d.name("probe") // does not draw the reserve
	defer func() { _ = fs.Remove(name) }()
	return durable.WriteFile(fs, name, make([]byte, probeBytes))
}

func (d *dataDir) close() error { return d.lock.Close() }
