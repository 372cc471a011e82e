package servicelog_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/servicelog"
	"example.org/carstate/internal/test/testkit"
)

func TestLogIsClean(t *testing.T) {
	token, _ := access.NewSecret(access.TokenKind)
	adminKey, _ := access.NewSecret(access.AdminKind)
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		log, _ := servicelog.New(&out, "debug", format)
		log.Info(testkit.Hostile, "text", testkit.Hostile, "error", errors.New(testkit.Hostile), "any", []string{testkit.Hostile, token})
		log.With("token", token).WithGroup("g").Warn("to "+adminKey, "error",
			fmt.Errorf("GET /?access_token=%s: %w", token, errors.New(adminKey)))
		log.Error("invalid", "bytes", "\xff\xfe\x9b", "took", 1234567*time.Microsecond)
		text := out.String()
		testkit.CheckLog(t, format, text)
		if strings.Count(text, "\n") != 3 || !strings.Contains(text, "1.235s") {
			t.Errorf("got the log below, want three lines, and 1.235s in the last:\n%s", text)
		}
		for _, secret := range []string{token[4:], adminKey[4:]} {
			if strings.Contains(text, secret) {
				t.Errorf("the log holds %q:\n%s", secret, text)
			}
		}
	}
}

func TestJournalKnowsThePriorityOfALine(t *testing.T) {
	var stderr syscall.Stat_t
	testkit.NoError(t, syscall.Fstat(syscall.Stderr, &stderr))
	t.Setenv("JOURNAL_STREAM", fmt.Sprintf("%d:%d", stderr.Dev, stderr.Ino))
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		log, _ := servicelog.New(&out, "debug", format)
		log.Debug("a")
		log.Info("a level=ERROR in what others say")
		log.Warn("c")
		log.Error("d")
		var got []string
		for line := range strings.Lines(out.String()) {
			got = append(got, line[:3])
		}
		if strings.Join(got, "") != "<7><6><4><3>" {
			t.Errorf("%s: got %q, want the priorities 7, 6, 4 and 3", format, &out)
		}
	}
	t.Setenv("JOURNAL_STREAM", "1:1")
	var out bytes.Buffer
	log, _ := servicelog.New(&out, "info", "text")
	if log.Info("a"); strings.HasPrefix(out.String(), "<") {
		t.Errorf("got %q for a standard error that is not the journal", &out)
	}
}
