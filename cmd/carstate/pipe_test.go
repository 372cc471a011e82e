package main_test

import (
	"bytes"
	"os"
	"syscall"
	"testing"
)

type closedPipe struct{}

func (closedPipe) Write([]byte) (int, error) {
	return 0, &os.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.EPIPE}
}

func TestClosedOutput_NoMessage(t *testing.T) {
	for _, args := range [][]string{{"help"}, {"token", "issue", "--help"}, {"version"}} {
		var stderr bytes.Buffer
		if code := run(t.Context(), args, closedPipe{}, &stderr); code != exitPipe || stderr.Len() > 0 {
			t.Errorf("%q: got code %d, %q; want %d and no message", args, code, &stderr, exitPipe)
		}
	}
}
