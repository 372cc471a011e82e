package node

import (
	"fmt"
	"io/fs"
	"syscall"
	"testing"
)

func TestStaysWrong(t *testing.T) {
	for errno, want := range map[syscall.Errno]bool{
		syscall.ENOENT: true, syscall.EACCES: true, syscall.EISDIR: true, syscall.ENOTDIR: true,
		syscall.ENOSPC: false, syscall.EIO: false, syscall.EMFILE: false, syscall.EROFS: false,
	} {
		err := fmt.Errorf("open: %w", &fs.PathError{Op: "open", Path: "log", Err: errno})
		if got := staysWrong(err); got != want {
			t.Errorf("%v: got %t, want %t", errno, got, want)
		}
	}
}
