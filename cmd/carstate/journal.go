package main

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"syscall"
)

// journal gives each line of a log the priority that systemd's journal knows it by, so that
// `journalctl -p err` finds errors.
type journal struct{ w io.Writer }

// writesJournal reports whether standard error goes to the journal, and not through a shell's
// pipe or into a file: systemd then names its device and inode.
func writesJournal() bool {
	var s syscall.Stat_t
	err := syscall.Fstat(int(os.Stderr.Fd()), &s)
	return err == nil && os.Getenv("JOURNAL_STREAM") == fmt.Sprintf("%d:%d", s.Dev, s.Ino)
}

// levelOf finds the level of a line in both formats. It stands before everything that others
// have written.
var levelOf = regexp.MustCompile(`\blevel"?[=:]"?(DEBUG|INFO|WARN|ERROR)`)

// priorities are those of the levels, as the journal writes them.
var priorities = map[string]string{"DEBUG": "<7>", "INFO": "<6>", "WARN": "<4>", "ERROR": "<3>"}

// Write writes one line, as slog's handlers do.
func (j journal) Write(line []byte) (int, error) {
	priority := priorities["INFO"]
	if m := levelOf.FindSubmatch(line[:min(len(line), 100)]); m != nil {
		priority = priorities[string(m[1])]
	}
	if _, err := j.w.Write(append([]byte(priority), line...)); err != nil {
		return 0, err
	}
	return len(line), nil
}
