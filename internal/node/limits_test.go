package node

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"example.org/carstate/internal/fleet"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/vehicle"
)

func TestFitToFiles(t *testing.T) {
	const besides = filesBesideConnections
	for _, w := range []struct{ files, query, mqtt, wantQuery, wantMQTT int }{
		{besides + 3000, 2000, 1000, 2000, 1000},
		{besides + 500, 16_000, 4_000, 400, 100},
		{besides - 3, 400, 3, 16, 3},
	} {
		c := Config{QueryConnections: w.query, IngestConnections: 1 << 20, MQTTConnections: w.mqtt,
			Listeners: []Listener{{Name: QueryAddr}, {Name: MQTTTLSAddr}}, Log: slog.New(slog.DiscardHandler)}
		c.fitTo(w.files)
		if c.QueryConnections != w.wantQuery || c.MQTTConnections != w.wantMQTT || c.IngestConnections != 1<<20 {
			t.Errorf("got %d, %d, %d, want %+v, 1<<20", c.QueryConnections, c.MQTTConnections, c.IngestConnections, w)
		}
	}
}

// A query that arrived in time is not refused because it is answered late.
func TestCanAnswer(t *testing.T) {
	const maxFeedAge = 5 * time.Second
	start := time.Now()
	var fed time.Time
	h := &health{
		fed:      func() (records, answers time.Time, ok bool) { return fed, fed, !fed.IsZero() },
		writable: func() error { return nil }, ingests: true,
		newer: store.NewNewer(slog.New(slog.DiscardHandler)), maxFeedAge: maxFeedAge, started: make(chan struct{}),
	}
	want := func(after time.Duration, want error) {
		t.Helper()
		if err := h.canAnswer(start.Add(after)); !errors.Is(err, want) {
			t.Errorf("asked after %s: %v; want %v", after, err, want)
		}
	}
	want(0, errStarting)
	h.progress = func() (states int64, folded, groups uint64) { return 7, 1, 4 }
	if err := h.ready(); err == nil || !strings.Contains(err.Error(), "7 states are read, 25 % ") {
		t.Errorf("while starting: not ready because of %v, want the progress", err)
	}
	h.recordsCaughtUp()
	h.recordsCaughtUp()
	h.caughtUp()
	want(time.Second, errStarting)
	fed = start.Add(time.Second)
	want(2*time.Second, nil)
	want(6*time.Second, nil)
	want(6*time.Second+1, errTooOld)
	want(time.Hour, errTooOld)
	want(3*time.Second, nil) // this query arrived before those, and is answered late
	fed = start.Add(time.Hour)
	want(time.Hour+maxFeedAge, nil)
	want(time.Hour+maxFeedAge+1, errTooOld)
	if n := testing.AllocsPerRun(100, func() { _ = h.canAnswer(start.Add(2 * time.Hour)) }); n != 0 {
		t.Errorf("a question: got %g allocations, want 0", n)
	}
}

func TestMemoryIsTheLeastLimit(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	machine := file("MemTotal:        1000 kB\nMemFree:  1 kB\n")
	for name, c := range map[string]struct {
		root fstest.MapFS
		want uint64
	}{
		"nothing is known": {fstest.MapFS{}, mostMemory},
		"the machine's":    {fstest.MapFS{"proc/meminfo": machine}, 1_024_000},
		"the group's": {fstest.MapFS{"proc/meminfo": machine, "proc/self/cgroup": file("0::/a/b\n"),
			"sys/fs/cgroup/a/b/memory.max": file("5000\n")}, 5000},
		"that of one above": {fstest.MapFS{"proc/meminfo": machine, "proc/self/cgroup": file("0::/a/b\n"),
			"sys/fs/cgroup/a/b/memory.max": file("max\n"), "sys/fs/cgroup/a/memory.max": file("7000\n")}, 7000},
		"a container's": {fstest.MapFS{"proc/meminfo": machine, "proc/self/cgroup": file("0::/\n"),
			"sys/fs/cgroup/memory.max": file("6000\n")}, 6000},
		"that of an old kernel": {fstest.MapFS{"proc/meminfo": machine,
			"proc/self/cgroup": file("9:name=systemd:/\n4:memory:/a\n0::/\n"),
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes": file("4000\n")}, 4000},
		"no limit": {fstest.MapFS{"proc/meminfo": machine, "proc/self/cgroup": file("1:name=x:/y\n0::/a\n"),
			"sys/fs/cgroup/a/memory.max": file("max\n")}, 1_024_000},
		"more than there is": {fstest.MapFS{"proc/meminfo": machine, "proc/self/cgroup": file("0::/\n"),
			"sys/fs/cgroup/memory.max": file("9000000000\n")}, 1_024_000},
		"nonsense in its place": {fstest.MapFS{"proc/meminfo": file("MemTotal: x kB"), "proc/self/cgroup": file("0::\n")},
			mostMemory},
	} {
		if got := memory(c.root); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// A node that only ingests has a limit, and follows the states, only if configured.
func TestVehicleBoundByRoles(t *testing.T) {
	all := []string{Query, Ingest, Derive, Admin}
	for _, c := range []struct {
		config Config
		states bool
		bound  func(int) bool
	}{
		{Config{Roles: all}, true, func(n int) bool { return n >= leastVehicles }},
		{Config{Roles: all, MaxVehicles: 5}, true, func(n int) bool { return n == 5 }},
		{Config{Roles: []string{Ingest, Derive}}, false, func(n int) bool { return n == 0 }},
		{Config{Roles: []string{Ingest}, MaxVehicles: 5}, true, func(n int) bool { return n == 5 }},
		{Config{Roles: []string{Query, Admin}, MaxVehicles: 5}, true, func(n int) bool { return n == 0 }},
		{Config{Roles: []string{Derive}, MaxVehicles: 5}, false, func(n int) bool { return n == 0 }},
	} {
		if states, n := c.config.needsStates(), c.config.vehicleBound(); states != c.states || !c.bound(n) {
			t.Errorf("%v: got a bound of %d, states %t; want states %t", c.config.Roles, n, states, c.states)
		}
	}
}

func TestSilentVehiclesExpire(t *testing.T) {
	heard := time.Date(2026, 11, 20, 15, 0, 0, 0, time.UTC)
	began := heard.Add(-day)
	y2038 := time.Date(2038, 1, 19, 3, 14, 9, 0, time.UTC)
	for what, c := range map[string]struct {
		ran     time.Duration
		now     time.Time
		dropped int
	}{
		"an hour later":                        {day + time.Hour, heard.Add(time.Hour), 0},
		"an hour later, the clock in 2038":     {day + time.Hour, y2038, 0},
		"after 30 days":                        {31*day + time.Second, heard.Add(30*day + time.Second), 1},
		"after 30 days, the clock in 2038":     {31*day + time.Second, y2038, 1},
		"after 30 days, the clock behind":      {31*day + time.Second, heard.Add(29 * day), 0},
		"soon after a start with a late clock": {time.Hour, heard.Add(-365 * day), 0},
	} {
		table := fleet.New()
		table.Put("car", fleet.Answer{Driving: vehicle.DrivingVerdict{Time: signal.At(heard)}})
		if n := table.Expire(expiryCutoff(began, c.ran, c.now, expireAfter)); n != c.dropped {
			t.Errorf("%s %d vehicles are dropped; want %d", what, n, c.dropped)
		}
	}
}

func TestStaysWrong(t *testing.T) {
	for errno, want := range map[syscall.Errno]bool{
		syscall.ENOENT: true, syscall.EACCES: true, syscall.EISDIR: true, syscall.ENOTDIR: true,
		syscall.ENOSPC: false, syscall.EIO: false, syscall.EMFILE: false, syscall.EROFS: false,
	} {
		err := fmt.Errorf("open: %w", &fs.PathError{Op: "open", Path: "log", Err: errno})
		if got := staysWrong(err); got != want {
			t.Errorf("%v: got %t, want %t", errno, got, want)
		}
	}
}
