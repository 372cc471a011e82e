package main_test

import (
	"bytes"
	"os"
	"syscall"
	"testing"
)

// closedPipe is the output of a program that has ended.
type closedPipe struct{}

func (closedPipe) Write([]byte) (int, error) {
	return 0, &os.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.EPIPE}
}

// TestClosedOutput_NoMessage checks that a command whose output is no longer read ends without a
// message, with the code that shells report in that case.
func TestClosedOutput_NoMessage(t *testing.T) {
	for _, args := range [][]string{{"help"}, {"token", "issue", "--help"}, {"version"}} {
		var stderr bytes.Buffer
		if code := run(t.Context(), args, closedPipe{}, &stderr); code != exitPipe || stderr.Len() > 0 {
			t.Errorf("%q: got code %d, %q; want %d and no message", args, code, &stderr, exitPipe)
		}
	}
}
