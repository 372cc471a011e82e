package main

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

	"carstate/internal/access"
)

// logger writes to standard error as the flags say. What it writes is clean
// whoever wrote it, libraries included: see [cleaner].
func (f *serveFlags) logger(w streams) (*slog.Logger, *slog.LevelVar) {
	out := w.err
	if writesJournal() {
		out = journal{out}
	}
	return newLogger(out, f.LogLevel, f.LogFormat)
}

// newLogger returns a logger and its level, which may change.
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

// cleaner sees every text on its way into the log. Tokens and keys are left
// out. A vehicle is named by a keyed hash of its vid: the same for as long as the
// process runs, and of no use to who reads the log later. What would steer a
// terminal is replaced; line breaks are quoted by slog's handlers.
type cleaner struct{ key []byte }

func (c *cleaner) attr(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value.Resolve(); v.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(c.text(v.String()))
	case slog.KindAny:
		// Errors, and whatever else is printed as text.
		a.Value = slog.StringValue(c.text(fmt.Sprint(v.Any())))
	}
	return a
}

// stateRecord is how the engine's errors name the record of a vehicle.
var stateRecord = regexp.MustCompile(`\bstate\.([0-9]+)\.([0-9A-Za-z]+)`)

func (c *cleaner) text(s string) string {
	s = access.Redact(s)
	if strings.Contains(s, "state.") {
		s = stateRecord.ReplaceAllStringFunc(s, func(subject string) string {
			i := strings.LastIndexByte(subject, '.') + 1
			return subject[:i] + c.vehicle(subject[i:])
		})
	}
	if strings.ContainsFunc(s, steers) {
		s = strings.Map(func(r rune) rune {
			if steers(r) {
				return unicode.ReplacementChar
			}
			return r
		}, s)
	}
	return s
}

// vehicle is what a vid becomes.
func (c *cleaner) vehicle(vid string) string {
	h := hmac.New(sha256.New, c.key)
	h.Write([]byte(vid))
	return fmt.Sprintf("~%x", h.Sum(nil)[:6])
}

// steers reports whether a rune does something to who reads it.
func steers(r rune) bool {
	return r != '\n' && r != '\t' && !unicode.IsPrint(r)
}
