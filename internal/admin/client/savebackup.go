package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// SaveBackup writes a backup of the service to the file with the given name. It first writes a
// temporary file and calls verify with that file. If verify returns nil, SaveBackup gives the file
// the final name, and returns once the name is synced to the disk. If a step before that fails, it
// removes the temporary file and returns an error. It replaces an existing file only if replace is
// true; otherwise the error is [fs.ErrExist]. The bytes of the backup are also written to meter,
// which shows the progress.
func (c *Client) SaveBackup(
	ctx context.Context, name string, replace bool, meter io.Writer, verify func(io.Reader) error,
) error {
	if _, err := os.Lstat(name); err == nil && !replace {
		return fs.ErrExist
	}
	tmp, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-")
	if err != nil {
		return fmt.Errorf("the backup cannot be written: %w", err)
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	if err := c.Backup(ctx, io.MultiWriter(tmp, meter)); err != nil {
		return err
	}
	if err := tmp.Sync(); err != nil {
		return fmt.Errorf("the backup cannot be written: %w", err)
	}
	if _, err := tmp.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if verify(tmp) != nil {
		return errors.New("the backup is incomplete: see the service's log")
	}
	return publish(tmp.Name(), name, replace)
}

// publish is the last step of SaveBackup: it moves tmp to name and syncs the name to the disk.
func publish(tmp, name string, replace bool) (err error) {
	if replace {
		err = os.Rename(tmp, name)
	} else {
		err = os.Link(tmp, name) // fails if the file exists
	}
	if err != nil && !replace && !errors.Is(err, fs.ErrExist) {
		// The file system has no hard links, like that of most USB sticks.
		var claim *os.File
		if claim, err = os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); err == nil {
			claim.Close()
			err = os.Rename(tmp, name)
		}
	}
	if errors.Is(err, fs.ErrExist) {
		return fs.ErrExist
	}
	if err != nil {
		return fmt.Errorf("the backup cannot be renamed: %w", err)
	}
	dir, err := os.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
