package lograte_test

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.org/carstate/internal/lograte"
	"example.org/carstate/internal/test/testkit"
)

func TestWarning_OncePerMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w lograte.Warning
		out := new(testkit.Buffer)
		log := slog.New(slog.NewTextHandler(out, nil))
		says := func(lines int, last string) {
			t.Helper()
			all := strings.Split(strings.TrimSpace(out.String()), "\n")
			if text := all[len(all)-1]; len(all) != lines || !strings.HasSuffix(text, "msg=no "+last) {
				t.Errorf("%d lines, the last is %q; want %d and %q", len(all), text, lines, last)
			}
		}
		w.Log(log, "no", "partition", 0)
		says(1, "partition=0")
		var many sync.WaitGroup
		for range 99 {
			many.Go(func() { w.Log(log, "no", "partition", 1) })
		}
		many.Wait()
		time.Sleep(lograte.Every - 1)
		w.Log(log, "no", "partition", 2)
		says(1, "partition=0")
		time.Sleep(time.Nanosecond)
		w.Log(log, "no", "partition", 3)
		says(2, "partition=3 times_since_last_line=100")
		time.Sleep(lograte.Every)
		w.Log(log, "no", "partition", 4)
		says(3, "partition=4")
	})
}
