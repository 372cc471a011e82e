package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// makeScratch makes a directory for all that is written meanwhile, in dir or, if
// that is "", beside this program or in /var/tmp. It lies on a disk: what syncs to
// memory shows neither what a sync costs nor that one is missing.
func makeScratch(dir string) (string, error) {
	in := []string{dir}
	if dir == "" {
		in = []string{"/var/tmp"}
		if program, err := os.Executable(); err == nil {
			in = []string{filepath.Dir(program), "/var/tmp"}
		}
	}
	var err error
	for _, dir := range in {
		var memory bool
		if memory, err = inMemory(dir); err == nil && memory {
			err = errors.New("it is a tmpfs, in memory")
		}
		if err == nil {
			var scratch string
			if scratch, err = os.MkdirTemp(dir, "carstate-torture-"); err == nil {
				return filepath.Abs(scratch)
			}
		}
	}
	return "", fmt.Errorf("no scratch directory in %s: %w: name one on a disk with -dir", in[len(in)-1], err)
}

// inMemory reports whether a directory lies on a tmpfs or its like.
func inMemory(dir string) (bool, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return false, err
	}
	const tmpfs, ramfs = 0x01021994, 0x858458f6
	return uint32(s.Type) == tmpfs || uint32(s.Type) == ramfs, nil
}
