package main

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"syscall"
)

// journal is a writer that puts before each line of the log its priority, as the systemd journal
// expects it, so that `journalctl -p err` finds errors.
type journal struct{ w io.Writer }

// writesJournal reports whether standard error is connected to the systemd journal, and not to a
// pipe or a file. If it is, systemd puts the device and inode of the connection into the
// environment variable JOURNAL_STREAM.
func writesJournal() bool {
	var s syscall.Stat_t
	err := syscall.Fstat(int(os.Stderr.Fd()), &s)
	return err == nil && os.Getenv("JOURNAL_STREAM") == fmt.Sprintf("%d:%d", s.Dev, s.Ino)
}

// levelOf finds the level of a log line in the text format or the JSON format. Text from others
// cannot be taken for the level, because it comes after the level.
var levelOf = regexp.MustCompile(`\blevel"?[=:]"?(DEBUG|INFO|WARN|ERROR)`)

// priorities maps a level to the journal's priority prefix.
var priorities = map[string]string{"DEBUG": "<7>", "INFO": "<6>", "WARN": "<4>", "ERROR": "<3>"}

// Write writes one line, as slog's handlers do in each call.
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
