package main_test

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/internal/test/testkit"
)

// A limit on file sizes has the effect of a full disk.
func limitFiles(t *testing.T, pid int, bytes uint64) {
	t.Helper()
	limit := syscall.Rlimit{Cur: bytes, Max: ^uint64(0)}
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, uintptr(pid), syscall.RLIMIT_FSIZE,
		uintptr(unsafe.Pointer(&limit)), 0, 0, 0); errno != 0 {
		t.Fatal(errno)
	}
}

// Once there is space, the node exits for its supervisor, and then has every acknowledged sample.
func TestFullDisk_RefusesTelemetryThenEnds(t *testing.T) {
	t.Parallel()
	ctx, dir := testkit.Context(t), t.TempDir()
	p := start(t, dir, "--max-age", "24h")
	token, key := p.issue(t), p.addSource(t, "gateway")
	line := func(vid string) string {
		return fmt.Sprintf(`{"vid":%q,"time":%d,"signals":{"Vehicle.Speed":50}}`, vid, time.Now().UnixMilli())
	}
	var acknowledged []string
	for i := 0; ; i++ {
		if i == 20 {
			limitFiles(t, p.PID(), 0)
		}
		vid := fmt.Sprintf("car%d", i)
		status, text, err := p.Post(ctx, key, line(vid))
		testkit.NoError(t, err)
		if status == http.StatusServiceUnavailable && i > 20 {
			break
		}
		if status == http.StatusAccepted {
			acknowledged = append(acknowledged, vid)
		} else if i < 20 || status != http.StatusServiceUnavailable {
			t.Fatalf("sample %d: %d %s", i, status, text)
		}
	}
	answered := func(p *process) {
		t.Helper()
		for _, vid := range acknowledged {
			testkit.NoError(t, p.AwaitAnswer(ctx, 30*time.Second, token, vid, time.Time{}))
		}
	}
	answered(p)
	if status, text, err := p.Get(ctx, nodeprocess.Admin, "/readyz"); err != nil ||
		status != http.StatusServiceUnavailable {
		t.Errorf("/readyz: %d %s, %v", status, text, err)
	}
	limitFiles(t, p.PID(), ^uint64(0))
	select {
	case <-p.Ended():
	case <-time.After(30 * time.Second):
		t.Fatal("it does not end although there is room again")
	}
	if p.ExitCode() != 1 || !strings.Contains(p.LastLine(), "restart carstate") {
		t.Errorf("it ended with %d: %s", p.ExitCode(), p.LastLine())
	}
	answered(start(t, dir, "--max-age", "24h"))
}
