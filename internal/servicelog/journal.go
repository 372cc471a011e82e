package servicelog

import (
	"io"
	"regexp"
)

type journal struct{ w io.Writer }

// Only the first match is the level: it comes before the message, which may contain a similar text.
var levelOf = regexp.MustCompile(`\blevel"?[=:]"?(DEBUG|INFO|WARN|ERROR)`)

var priorities = map[string]string{"DEBUG": "<7>", "INFO": "<6>", "WARN": "<4>", "ERROR": "<3>"}

// Write must get exactly one line, as the handlers of slog write it. A line without a level is
// INFO.
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
