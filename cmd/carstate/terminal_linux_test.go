package main_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"example.org/carstate/internal/test/testkit"
)

func openTerminal(t *testing.T, typed string) *os.File {
	t.Helper()
	open := func(name string) *os.File {
		t.Helper()
		f, err := os.OpenFile(name, os.O_RDWR|syscall.O_NOCTTY, 0)
		testkit.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		return f
	}
	keyboard := open("/dev/ptmx")
	control := func(request uintptr, value *int32) {
		t.Helper()
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, keyboard.Fd(), request,
			uintptr(unsafe.Pointer(value))); errno != 0 {
			t.Fatalf("ioctl %#x: got %v, want no error", request, errno)
		}
	}
	var number, unlocked int32
	control(syscall.TIOCGPTN, &number)
	control(syscall.TIOCSPTLCK, &unlocked)
	screen := open(fmt.Sprint("/dev/pts/", number))
	_, err := keyboard.WriteString(typed)
	testkit.NoError(t, err)
	return screen
}

func TestCommands_AskBeforeWhatCannotBeUndone(t *testing.T) {
	t.Setenv("TERM", "xterm")
	input := os.Stdin
	t.Cleanup(func() { os.Stdin = input })
	for args, asks := range map[string]bool{
		"source remove gateway":                         true,
		"source rotate gateway --overlap 0s":            true,
		"source rotate gateway":                         false,
		"source change gateway --vehicles all":          true,
		"source change gateway --vehicles A,B":          false,
		"token rotate cstid4Fz0kQ2mXbP1 --overlap 0s":   true,
		"token rotate cstid4Fz0kQ2mXbP1 --overlap 24h":  false,
		"token change cstid4Fz0kQ2mXbP1 --vehicles all": true,
		"token change cstid4Fz0kQ2mXbP1 --rate 1/s":     false,
		"operator remove ada":                           true,
		"operator rotate ada":                           true,
		"operator rotate-admin-key":                     true,
	} {
		for _, c := range []struct {
			more string
			want bool
		}{{"", asks}, {" --yes", false}} {
			os.Stdin = openTerminal(t, "n\n")
			dir := t.TempDir() // without a key, one that does not ask fails
			var stdout, stderr bytes.Buffer
			code := run(t.Context(), strings.Fields(args+c.more+" --data-dir "+dir), &stdout, &stderr)
			asked := strings.Contains(stderr.String(), "? [y/N] ") && strings.Contains(stderr.String(), "nothing was done")
			if asked != c.want || code != exitError {
				t.Errorf("%s%s: got asked %t, exit code %d, want %t, %d:\n%s", args, c.more, asked, code, c.want, exitError,
					&stderr)
			}
		}
	}
}

type writerThen struct {
	bytes.Buffer
	then func()
}

func (w *writerThen) Write(p []byte) (int, error) {
	defer w.then()
	return w.Buffer.Write(p)
}

func TestQuestion_EndsWithCtrlC(t *testing.T) {
	t.Setenv("TERM", "xterm")
	input := os.Stdin
	t.Cleanup(func() { os.Stdin = input })
	os.Stdin = openTerminal(t, "y") // the line does not end
	ctx, cancel := context.WithCancel(t.Context())
	asked := writerThen{then: cancel} // after the question
	var stdout bytes.Buffer
	code := run(ctx, []string{"source", "remove", "gateway", "--data-dir", t.TempDir()}, &stdout, &asked)
	if text := asked.String(); code != exitStopped || !strings.HasSuffix(text, "\ncarstate: stopped before it was done\n") {
		t.Errorf("got exit code %d, %q, want %d", code, text, exitStopped)
	}
}
