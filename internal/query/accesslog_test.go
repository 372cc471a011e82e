package query_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/carstate/internal/query"
	"example.org/carstate/internal/test/testkit"
)

func openLogFor(t *testing.T, c query.AccessLogConfig) *query.AccessLog {
	t.Helper()
	c.Log = slog.New(slog.DiscardHandler)
	c.Registry = cmp.Or[prometheus.Registerer](c.Registry, prometheus.NewRegistry())
	log, err := query.OpenAccessLog(c)
	testkit.NoError(t, err)
	return log
}

func logged(t *testing.T, f *fixture, asJSON, whole bool, requests ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "access.log")
	f.Registry = prometheus.NewRegistry()
	f.AccessLog = openLogFor(t, query.AccessLogConfig{File: file, JSON: asJSON})
	r := start(t, f.Config)
	for _, request := range requests {
		c := r.dial(t)
		if whole {
			c.ask(request)
			continue
		}
		go io.WriteString(c, request)
		io.ReadAll(c)
		c.Close()
	}
	testkit.NoError(t, f.AccessLog.Close())
	text, err := os.ReadFile(file)
	testkit.NoError(t, err)
	return strings.TrimSuffix(string(text), "\n")
}

func TestAccessLog_Lines(t *testing.T) {
	f := newFixture(t)
	granted, _ := f.Tokens.Verify([]byte(f.secrets["TOKEN"]), noon)
	requests := []string{
		f.query("CarJam"),
		strings.Replace(f.query("CarJam"), "GET", "HEAD", 1),
		strings.Replace(f.query("CarSlow"), "GET", "POST", 1),
		"GET " + throttlePath + "?vid=CarOld&access_token=" + f.secrets["UNKNOWN"] + " HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /evil%0atime=now HTTP/1.1\r\nHost: x\r\nUser-Agent: time=now status=200\r\n\r\n",
		"nonsense\r\n\r\n",
	}
	id := `[0-9a-f]{32}`
	begin := `^time=2026-11-20T12:00:00.750Z request_id=` + id + ` from=127.0.0.1 `
	wants := []string{
		begin + `method=GET operation=car_driving_state status=200 outcome=answered duration_us=\d+ token=` +
			granted.Name + ` vehicle=[0-9a-f]{16}$`,
		begin + `method=HEAD operation=car_driving_state status=200 outcome=answered duration_us=\d+ token=` +
			granted.Name + ` vehicle=[0-9a-f]{16}$`,
		begin + `method=other operation=car_driving_state status=405 outcome=method_not_allowed duration_us=\d+$`,
		begin + `method=GET operation=throttle_system status=401 outcome=invalid_token duration_us=\d+ ` +
			`vehicle=[0-9a-f]{16}$`,
		begin + `method=GET operation=none status=404 outcome=not_found duration_us=\d+$`,
		begin + `method=other operation=none status=400 outcome=invalid_request duration_us=0$`,
	}
	lines := strings.Split(logged(t, f, false, true, requests...), "\n")
	if len(lines) != len(wants) {
		t.Fatalf("the lines: got %d, want %d:\n%s", len(lines), len(wants), strings.Join(lines, "\n"))
	}
	for i, want := range wants {
		if !regexp.MustCompile(want).MatchString(lines[i]) {
			t.Errorf("line %d\n got %s\nwant %s", i, lines[i], want)
		}
	}
	vehicle := func(line string) string { _, v, _ := strings.Cut(line, "vehicle="); return v }
	if vehicle(lines[0]) != vehicle(lines[1]) || vehicle(lines[0]) == vehicle(lines[3]) {
		t.Errorf("the hashes: got them in %q, want the same in 0 and 1, another in 3", lines)
	}

	for i, line := range strings.Split(logged(t, f, true, true, requests...), "\n") {
		var got struct {
			Time      time.Time
			RequestID string `json:"request_id"`
			Operation string
			Status    int
			Outcome   string
		}
		if err := json.Unmarshal([]byte(line), &got); err != nil || !got.Time.Equal(noon) || got.RequestID == "" ||
			got.Operation == "" || got.Status < 200 || got.Outcome == "" {
			t.Errorf("line %d: got %s, error %v; want a complete record", i, line, err)
		}
	}
}

func TestNothingReachesTheAccessLog(t *testing.T) {
	f := newFixture(t)
	tok := f.secrets["TOKEN"]
	f.HeadTimeout, f.IdleTimeout = 100*time.Millisecond, 100*time.Millisecond
	text := logged(t, f, false, false, hostile(tok)...)
	if strings.Contains(text, tok[4:20]) || strings.Contains(text, "CarJam") {
		t.Errorf("the log: got the token or the vehicle in it, want neither:\n%s", text)
	}
	line := regexp.MustCompile(`^time=[-0-9T:.]+Z request_id=[0-9a-f]{32} from=127\.0\.0\.1 ` +
		`method=(GET|HEAD|other) operation=[a-z_]+ status=\d{3} outcome=[a-z_]+ duration_us=\d+` +
		`( token=hostile| token=cstid\w+)?( vehicle=[0-9a-f]{16})?$`)
	for got := range strings.SplitSeq(text, "\n") {
		if !line.MatchString(got) {
			t.Errorf("the line: got %q, want %s", got, line)
		}
	}
}

// While the new file cannot be opened, lines go to the old one.
func TestAccessLogReopens(t *testing.T) {
	f := newFixture(t)
	dir := filepath.Join(t.TempDir(), "logs")
	testkit.NoError(t, os.Mkdir(dir, 0o700))
	file, told := filepath.Join(dir, "access.log"), new(testkit.Buffer)
	log, err := query.OpenAccessLog(query.AccessLogConfig{File: file, Log: slog.New(slog.NewTextHandler(told, nil)),
		Registry: prometheus.NewRegistry()})
	testkit.NoError(t, err)
	f.AccessLog = log
	c := start(t, f.Config).dial(t)
	ask := func() { c.ask(f.query("CarJam")).wants(t, "200 OK") }
	holds := func(name string, lines int) func() bool {
		return func() bool {
			text, err := os.ReadFile(name)
			return err == nil && bytes.Count(text, []byte("answered")) == lines
		}
	}
	ask()
	testkit.Await(t, "the first line is written", holds(file, 1))
	away := dir + ".moved"
	testkit.NoError(t, os.Rename(dir, away))
	old := filepath.Join(away, "access.log")
	log.Reopen()
	testkit.Await(t, "it logs that the file cannot be opened",
		func() bool { return told.Count("cannot reopen the access log") == 1 })
	ask()
	testkit.Await(t, "the second line is written", holds(old, 2))
	testkit.NoError(t, os.Mkdir(dir, 0o700))
	log.Reopen()
	testkit.Await(t, "the file is made again", holds(file, 0))
	ask()
	testkit.Await(t, "the third line is written", holds(file, 1))
	if !holds(old, 2)() {
		t.Error("the old file after that: got other than 2 lines, want 2")
	}
	testkit.NoError(t, log.Close())
}

type blocked struct {
	hold chan struct{}
	mu   sync.Mutex
	n    int
}

func (b *blocked) Write(p []byte) (int, error) {
	<-b.hold
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n += bytes.Count(p, []byte("\n"))
	return len(p), nil
}

func TestAccessLogDropsRatherThanWaits(t *testing.T) {
	disk := &blocked{hold: make(chan struct{})}
	f := newFixture(t)
	f.AccessLog = openLogFor(t, query.AccessLogConfig{Out: disk, Registry: f.metrics})
	r := start(t, f.Config)
	const many, writers = 60_000, 3
	var all sync.WaitGroup
	for range writers {
		c := r.dial(t)
		all.Go(func() {
			go io.WriteString(c, strings.Repeat(f.query("CarJam"), many/writers))
			for range many / writers {
				readAnswer(t, c.in, false)
			}
		})
	}
	all.Wait()
	lost := testkit.Metric(t, f.metrics, "carstate_access_log_lines_dropped_total")
	close(disk.hold)
	testkit.NoError(t, f.AccessLog.Close())
	if lost == 0 || float64(disk.n)+lost != many {
		t.Errorf("the lines: got %d written and %v dropped, want some and together %d", disk.n, lost, many)
	}
}

// room is the number of bytes that are still free.
type narrow struct {
	mu   sync.Mutex
	text bytes.Buffer
	room int
}

func (n *narrow) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	fits := min(len(p), n.room)
	n.room -= fits
	n.text.Write(p[:fits])
	if fits < len(p) {
		return fits, syscall.ENOSPC
	}
	return fits, nil
}

// After a full disk has cut a line short, no line continues it.
func TestAccessLogOnAFullDisk(t *testing.T) {
	disk := &narrow{room: 450}
	f := newFixture(t)
	f.AccessLog = openLogFor(t, query.AccessLogConfig{Out: disk, Registry: f.metrics})
	c := start(t, f.Config).dial(t)
	lost := func() float64 { return testkit.Metric(t, f.metrics, "carstate_access_log_lines_dropped_total") }
	for range 10 {
		c.ask(f.query("CarJam"))
	}
	testkit.Await(t, "a line is dropped", func() bool { return lost() > 0 })
	disk.mu.Lock()
	disk.room = 1 << 20
	disk.mu.Unlock()
	for range 10 {
		c.ask(f.query("CarJam"))
	}
	testkit.NoError(t, f.AccessLog.Close())
	whole := 0
	for line := range strings.Lines(disk.text.String()) {
		if strings.Count(line, "time=") != 1 {
			t.Errorf("the line: got %q, want one record", line)
		}
		if strings.Contains(line, " vehicle=") {
			whole++
		}
	}
	if whole < 11 || float64(whole)+lost() != 20 {
		t.Errorf("got %d lines written and %v dropped, want 11 or more, and all of 20:\n%s", whole, lost(), &disk.text)
	}
}

func TestAccessLogThatCannotBeOpened(t *testing.T) {
	file := filepath.Join(t.TempDir(), "no", "access.log")
	_, err := query.OpenAccessLog(query.AccessLogConfig{File: file, Log: slog.New(slog.DiscardHandler)})
	if err == nil || err.Error() != "cannot open the access log for writing: no such file or directory" {
		t.Errorf("the access log: got %v, want no such file or directory", err)
	}
}
