package servicelog

import (
	"bytes"
	"strings"
	"testing"
)

func TestJournalKnowsThePriorityOfALine(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		log, _ := newLogger(journal{&out}, "debug", format)
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
	log, _ := New(&out, "info", "text")
	if log.Info("a"); strings.HasPrefix(out.String(), "<") {
		t.Errorf("got %q for a standard error that is not the journal", &out)
	}
}
