package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// makeScratch creates a directory below dir for all files of a run. dir must be on a disk. On a
// file system in memory, a sync costs nothing, and a missing sync would not be noticed.
func makeScratch(dir string) (string, error) {
	var s syscall.Statfs_t
	err := syscall.Statfs(dir, &s)
	const tmpfs, ramfs = 0x01021994, 0x858458f6
	if kind := uint32(s.Type); err == nil && (kind == tmpfs || kind == ramfs) {
		err = fmt.Errorf("%s is a tmpfs, in memory", dir)
	}
	if err == nil {
		dir, err = os.MkdirTemp(dir, "carstate-torture-")
	}
	if err != nil {
		return "", fmt.Errorf("no scratch directory: %w: name one on a disk with -dir", err)
	}
	return filepath.Abs(dir)
}
