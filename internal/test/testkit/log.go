package testkit

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

var oneRecord = regexp.MustCompile(`^time=\S+ level=(DEBUG|INFO|WARN|ERROR) msg=(\S+|"([^"\\]|\\.)*")( ` +
	`[\w.]+=([^\s"]*|"([^"\\]|\\.)*"))*$`)

// Each line must be a complete record of format, json or text, without characters that control a
// terminal.
func CheckLog(t *testing.T, format, text string) {
	t.Helper()
	if !utf8.ValidString(text) {
		t.Errorf("the log: got %q, want UTF-8", text)
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if format == "json" {
			var record map[string]any
			if err := json.Unmarshal([]byte(line), &record); err != nil || record["level"] == nil {
				t.Errorf("a line of the log: got %q, want a record", line)
			}
		} else if !oneRecord.MatchString(line) {
			t.Errorf("a line of the log: got %q, want a record", line)
		}
		if strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("a line of the log: got %q, want no control character", line)
		}
	}
}

// Hostile could forge a line of a log or control the operator's terminal.
const Hostile = "x\n\rtime=2026-11-20T04:00:00Z level=ERROR msg=" +
	"forged\x1b[2J\x1b]0;owned\a\u009b31m\u202e\u2028\x00\x7f\"'\\"
