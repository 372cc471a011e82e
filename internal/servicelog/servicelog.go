// Package servicelog makes the logger of the service. Its lines never contain a token, a key, the
// vehicle id in the name of a record, or a character that controls a terminal.
package servicelog

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"unicode"

	systemd "github.com/coreos/go-systemd/v22/journal"

	"example.org/carstate/internal/access"
)

// New returns a logger and its level, which the caller may change. format is "json" or "text"; an
// unknown level panics. If standard error is the systemd journal, each line begins with its
// priority.
func New(out io.Writer, level, format string) (*slog.Logger, *slog.LevelVar) {
	if is, _ := systemd.StderrIsJournalStream(); is { // an error means that it is none
		out = journal{out}
	}
	return newLogger(out, level, format)
}

func newLogger(out io.Writer, level, format string) (*slog.Logger, *slog.LevelVar) {
	l := new(slog.LevelVar)
	if err := l.UnmarshalText([]byte(level)); err != nil {
		panic(fmt.Sprintf("the flag's enum admits %q: %v", level, err))
	}
	c := &cleaner{key: []byte(rand.Text())}
	opts := &slog.HandlerOptions{Level: l, ReplaceAttr: c.attr}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(out, opts)), l
	}
	return slog.New(slog.NewTextHandler(out, opts)), l
}

// cleaner replaces secrets, control characters, and the vehicle ids in errors of the storage
// engine. A vehicle's hash stays the same while the process runs, but readers of the log have no
// key to compute it. slog's handlers quote line breaks.
type cleaner struct{ key []byte }

func (c *cleaner) attr(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value.Resolve(); v.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(c.text(v.String()))
	case slog.KindAny:
		// An error, or what else is printed as text.
		a.Value = slog.StringValue(c.text(fmt.Sprint(v.Any())))
	}
	return a
}

// The name of a vehicle's record ends with its id.
var stateRecord = regexp.MustCompile(`\bstate\.([0-9]+)\.([0-9A-Za-z]+)`)

func (c *cleaner) text(s string) string {
	s = stateRecord.ReplaceAllStringFunc(access.Redact(s), func(record string) string {
		i := strings.LastIndexByte(record, '.') + 1
		hash := hmac.New(sha256.New, c.key)
		hash.Write([]byte(record[i:]))
		return fmt.Sprintf("%s~%x", record[:i], hash.Sum(nil)[:6])
	})
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
			return unicode.ReplacementChar // it could control a terminal
		}
		return r
	}, s)
}
