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

// SaveBackup writes a backup to a temporary file, calls verify with it, and gives it its name,
// which is then synced. Without replace, an existing file is [fs.ErrExist]. meter gets the same
// bytes.
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

func publish(tmp, name string, replace bool) (err error) {
	if replace {
		err = os.Rename(tmp, name)
	} else {
		err = os.Link(tmp, name) // fails if the file exists
	}
	if err != nil && !replace && !errors.Is(err, fs.ErrExist) {
		// Most USB sticks have a file system without hard links.
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
