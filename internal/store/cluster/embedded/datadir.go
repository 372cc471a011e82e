package embedded

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"carstate/internal/store/codec"
)

// A data directory holds
//
//	carstate.json  what this directory is; written before anything else
//	lock           locked by the process that owns the directory
//	node           what this node is called, with or without an engine of its own
//	engine/        the files of the embedded NATS server
//
// and whatever other packages keep beside them (the admin key).
const (
	identityFile = "carstate.json"
	lockFile     = "lock"
	NodeFile     = "node" // for the node's name
	engineDir    = "engine"

	// unfinished is what a kill leaves of a file that save was replacing.
	unfinished = ".new"

	directoryFormat = 2
)

// harmless are the entries that an empty directory may hold: what a first start
// leaves when it is killed, what a node of a cluster calls itself, and what mkfs
// puts into each new volume.
var harmless = []string{lockFile, NodeFile, identityFile + unfinished, "lost+found"}

// identity is the content of carstate.json.
type identity struct {
	Format     int    `json:"format"`
	Partitions int    `json:"partitions"`
	Ready      bool   `json:"ready"`             // the streams were made: from now on a missing one is damage
	Damaged    string `json:"damaged,omitempty"` // what was found wrong; the directory is not opened again
	// Closed is what each stream held when the engine was last closed in
	// order. It is absent while the engine runs, and so after a crash.
	Closed map[string]StreamEnd `json:"closed,omitempty"`
}

// StreamEnd tells whether a stream still holds all that it held.
type StreamEnd struct {
	Last    uint64 `json:"last"` // newest sequence
	Records uint64 `json:"records"`
}

// DataDir is an open data directory. The lock is held until [DataDir.Close].
type DataDir struct {
	Path string
	lock *os.File
	identity
}

// OpenDataDir opens or makes a data directory and takes its lock. If it cannot,
// nothing in the directory was changed.
func OpenDataDir(path string) (*DataDir, error) {
	if _, err := readIdentity(path); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, unusableDir(path, "made", "", err)
	}
	lock, err := os.OpenFile(filepath.Join(path, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, unusableDir(path, "written", "", err)
	}
	// The kernel drops the lock with the process, however that ends.
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("the data directory %s is in use by another carstate: stop that one or choose another --data-dir", path)
		}
		return nil, fmt.Errorf("the data directory %s cannot be locked: %w", path, err)
	}
	// Until the lock was ours another process may have made or marked it.
	d := &DataDir{Path: path, lock: lock}
	if d.identity, err = readIdentity(path); err != nil {
		_ = d.Close()
		return nil, err
	}
	if d.Format == 0 {
		d.Format = directoryFormat
		if err := d.Save(); err != nil {
			_ = d.Close()
			return nil, err
		}
	}
	return d, nil
}

// readIdentity tells what a directory is: the zero identity if it is absent or
// empty, an error if it is not ours or cannot be used.
func readIdentity(path string) (identity, error) {
	var id identity
	entries, err := os.ReadDir(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return id, nil
	case err != nil:
		return id, unusableDir(path, "read", "", err)
	}
	text, err := os.ReadFile(filepath.Join(path, identityFile))
	if errors.Is(err, fs.ErrNotExist) {
		for _, e := range entries {
			if !slices.Contains(harmless, e.Name()) {
				return id, fmt.Errorf("the directory %s holds files that are not carstate's: choose an empty or a new --data-dir", path)
			}
		}
		return id, nil
	}
	if err != nil {
		return id, unusableDir(path, "read", identityFile, err)
	}
	if err := json.Unmarshal(text, &id); err != nil || id.Format < 1 {
		return id, DamagedDir(path, identityFile+" makes no sense")
	}
	if id.Format < directoryFormat {
		return id, fmt.Errorf("the data directory %s was written by an older carstate (format %d), which this version does not read: choose a new --data-dir", path, id.Format)
	}
	if id.Format > directoryFormat {
		return id, fmt.Errorf("the data directory %s was written by a newer carstate (format %d): use that version", path, id.Format)
	}
	if id.Damaged != "" {
		return id, DamagedDir(path, id.Damaged)
	}
	if id.Ready {
		return id, checkEngineFiles(path)
	}
	return id, nil
}

// checkEngineFiles looks, without touching anything, whether each stream still
// has its description: the server would otherwise start without it.
func checkEngineFiles(path string) error {
	for _, name := range codec.WholeStreams {
		meta := filepath.Join(StreamDir(path, name), descriptionFile)
		text, err := os.ReadFile(meta)
		if err != nil && !absent(err) {
			return unusableDir(path, "read", "the description of stream "+name, err)
		}
		if err != nil || !json.Valid(text) {
			return DamagedDir(path, "the description of stream "+name+" is missing or makes no sense")
		}
	}
	return nil
}

// CheckWritable looks, without touching anything, whether we may write the
// directory and the server all of its files. It would start without a stream that it may not write,
// as if that one had never been.
func CheckWritable(path string) error {
	const mayWrite = 2
	if err := syscall.Access(path, mayWrite); err != nil {
		return unusableDir(path, "written", "", err)
	}
	return fs.WalkDir(os.DirFS(path), engineDir, func(name string, _ fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // no start before this one, or a file that was temporary
			return nil
		case err != nil:
			return unusableDir(path, "read", name, err)
		}
		if err := syscall.Access(filepath.Join(path, name), mayWrite); err != nil && !absent(err) {
			return unusableDir(path, "written", name, err)
		}
		return nil
	})
}

// StreamDir is where the server keeps a stream.
func StreamDir(path, name string) string {
	return filepath.Join(path, engineDir, "jetstream", "$G", "streams", name)
}

// DamagedDir is the error of a data directory in which something is damaged.
func DamagedDir(path, what string) error {
	return fmt.Errorf("the data directory %s is damaged (%s): restore a backup into a new --data-dir", path, what)
}

// absent tells a file that is not there from one that is and cannot be read,
// which says nothing about its content.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EISDIR)
}

// unusableDir says what of a directory cannot be made, read or written; "" is the
// whole.
func unusableDir(path, done, what string, err error) error {
	err = Plain(err)
	advice := ""
	if errors.Is(err, fs.ErrPermission) {
		advice = ": check its owner and permissions, and as whom carstate runs"
	}
	if what != "" {
		return fmt.Errorf("the data directory %s cannot be %s (%s: %w)%s", path, done, what, err, advice)
	}
	return fmt.Errorf("the data directory %s cannot be %s: %w%s", path, done, err, advice)
}

// Save writes carstate.json so that it is whole or not there at all.
func (d *DataDir) Save() error {
	text, err := json.MarshalIndent(d.identity, "", "  ")
	if err != nil {
		return err
	}
	name := filepath.Join(d.Path, identityFile)
	if err := writeFileSynced(name, append(text, '\n')); err != nil {
		return unusableDir(d.Path, "written", "", err)
	}
	return nil
}

// Blame returns why the server could not store something: it does not tell, so
// the disk is asked. Where the disk takes writes, or there is none, the error
// stays as it is.
func (d *DataDir) Blame(err error) error {
	if d == nil {
		return err
	}
	if disk := ProbeDisk(d.Path); disk != nil {
		return fmt.Errorf("the data directory %s cannot be written: %w (%w)", d.Path, Plain(disk), err)
	}
	return err
}

// probeBytes is more than the server needs for a few records.
const probeBytes = 1 << 20

// ProbeDisk tries to write and sync a file in the directory.
func ProbeDisk(dir string) error {
	name := filepath.Join(dir, "probe")
	defer os.Remove(name)
	return writeFileSynced(name, make([]byte, probeBytes))
}

// writeFileSynced replaces a file; when it returns nil the new content is on
// disk.
func writeFileSynced(name string, content []byte) error {
	f, err := os.OpenFile(name+unfinished, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(name+unfinished, name)
	}
	if err != nil {
		os.Remove(name + unfinished)
		return err
	}
	return syncDir(filepath.Dir(name))
}

// removeFileSynced removes a file; when it returns nil it is gone from the disk.
func removeFileSynced(name string) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return syncDir(filepath.Dir(name))
}

// syncDir makes a directory's entries durable.
func syncDir(name string) error {
	dir, err := os.Open(name)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// Close gives the lock back. To close the file is not enough: a process that is
// just being started holds a copy of it until it runs its own program.
func (d *DataDir) Close() error {
	return errors.Join(syscall.Flock(int(d.lock.Fd()), syscall.LOCK_UN), d.lock.Close())
}

// Plain drops the path from an error that names it already.
func Plain(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}
