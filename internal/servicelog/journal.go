package servicelog

import (
	"io"
	"regexp"
)

// journal is a writer that begins each log line with its priority in the form that the systemd
// journal expects, so that `journalctl -p err` finds errors.
type journal struct{ w io.Writer }

// levelOf finds the level of a log line in the text format or the JSON format. Only the first match
// is the level: in both formats the level comes before the message, which may contain a similar
// text.
var levelOf = regexp.MustCompile(`\blevel"?[=:]"?(DEBUG|INFO|WARN|ERROR)`)

// priorities maps a log level to the prefix that gives a line its priority in the systemd journal.
var priorities = map[string]string{"DEBUG": "<7>", "INFO": "<6>", "WARN": "<4>", "ERROR": "<3>"}

// Write writes one log line after the prefix for its priority, such as "<6>". Each call must have
// exactly one line, as the calls of slog's handlers do. A line without a level in its first 100
// bytes gets the priority of INFO.
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
