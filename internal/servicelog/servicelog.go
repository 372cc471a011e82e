// Package servicelog makes the logger of the service. Its lines never contain a token, a key, or a
// character that controls a terminal.
package servicelog

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"
	"unicode"

	systemd "github.com/coreos/go-systemd/v22/journal"

	"example.org/carstate/internal/access"
)

// New returns a logger and its level, which the caller may change. format is "json" or "text"; an
// unknown level counts as info. If standard error is the systemd journal, each line begins with its
// priority, for `journalctl -p err`.
func New(out io.Writer, level, format string) (*slog.Logger, *slog.LevelVar) {
	if is, _ := systemd.StderrIsJournalStream(); is { // an error means that it is none
		out = journal{out}
	}
	l := new(slog.LevelVar)
	_ = l.UnmarshalText([]byte(level))
	opts := &slog.HandlerOptions{Level: l, ReplaceAttr: clean}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(out, opts)), l
	}
	return slog.New(slog.NewTextHandler(out, opts)), l
}

// clean replaces secrets and control characters, and writes durations with a unit.
func clean(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value.Resolve(); v.Kind() {
	case slog.KindDuration:
		a.Value = slog.StringValue(v.Duration().Round(time.Millisecond).String())
	case slog.KindString, slog.KindAny:
		a.Value = slog.StringValue(printable(fmt.Sprint(v.Any())))
	}
	return a
}

func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
			return unicode.ReplacementChar // it could control a terminal; slog quotes line breaks
		}
		return r
	}, access.Redact(s))
}
