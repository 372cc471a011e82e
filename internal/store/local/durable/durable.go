// Package durable reads and replaces whole files. When a call that writes returns nil, the content
// and the entry in the directory are on disk.
package durable

import (
	"cmp"
	"errors"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const Unfinished = ".new"

func ReadFile(fsys vfs.FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

func WriteFile(fsys vfs.FS, name string, content []byte) error {
	f, err := fsys.Create(name+Unfinished, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = cmp.Or(err, f.Sync(), f.Close()); err == nil {
		err = fsys.Rename(name+Unfinished, name)
	}
	if err != nil {
		_ = fsys.Remove(name + Unfinished)
		return err
	}
	return SyncDir(fsys, fsys.PathDir(name))
}

// If path exists, even as a file, MakeDir returns nil.
func MakeDir(fsys vfs.FS, path string) error {
	if _, err := fsys.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := fsys.PathDir(path)
	if err := MakeDir(fsys, parent); err != nil {
		return err
	}
	if err := fsys.MkdirAll(path, 0o700); err != nil {
		return err
	}
	return SyncDir(fsys, parent)
}

func SyncDir(fsys vfs.FS, name string) error {
	dir, err := fsys.OpenDir(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
