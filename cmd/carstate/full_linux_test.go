package main_test

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"example.org/carstate/internal/admin/wire"
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

// A tmpfs in namespaces of a process that ends with the test. Other processes get to it by /proc.
func smallDisk(t *testing.T, size string) (path string) {
	t.Helper()
	startsPrograms(t)
	dir := t.TempDir()
	cmd := exec.Command("unshare", "--user", "--map-root-user", "--mount", "sh", "-c",
		`mount -t tmpfs -o mode=700,size=$0 none "$1" && echo mounted && exec cat`, size, dir)
	in, err := cmd.StdinPipe()
	testkit.NoError(t, err)
	out, err := cmd.StdoutPipe()
	testkit.NoError(t, err)
	testkit.NoError(t, cmd.Start())
	t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	if line, _ := bufio.NewReader(out).ReadString('\n'); line == "" {
		t.Skip("this machine lets no user mount a file system of its own")
	}
	return fmt.Sprintf("/proc/%d/root%s", cmd.Process.Pid, dir)
}

// Up to the last byte.
func fillDisk(t *testing.T, file string) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	testkit.NoError(t, err)
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
}

// On a disk that another program has filled, queries are answered, tokens revoked and backups made,
// also after a kill and a start. Telemetry is refused until there is room, without another start.
// After a write error that is not about room, the node exits for its supervisor, and then has every
// acknowledged sample.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	ctx, disk := testkit.Context(t), smallDisk(t, "300m")
	dir, hog := filepath.Join(disk, "data"), filepath.Join(disk, "hog")
	p := start(t, dir, "--max-age", "24h")
	admin, err := p.AdminClient()
	testkit.NoError(t, err)
	token, key := p.issue(t), p.addSource(t, "gateway")
	var leaked []wire.IssuedToken
	for range 3 {
		l, err := p.IssueToken(ctx, "Eve")
		testkit.NoError(t, err)
		leaked = append(leaked, l)
	}
	var acknowledged []string
	post := func() (status int) {
		t.Helper()
		vid := fmt.Sprintf("car%d", len(acknowledged))
		status, text, err := p.Post(ctx, key,
			fmt.Sprintf(`{"vid":%q,"time":%d,"signals":{"Vehicle.Speed":50}}`, vid, time.Now().UnixMilli()))
		testkit.NoError(t, err)
		if status == http.StatusAccepted {
			acknowledged = append(acknowledged, vid)
		} else if status != http.StatusServiceUnavailable {
			t.Fatalf("sample: %d %s", status, text)
		}
		return status
	}
	refused := func() bool { return post() == http.StatusServiceUnavailable }
	stored := func() bool { return post() == http.StatusAccepted }
	answered := func() {
		t.Helper()
		for _, vid := range acknowledged {
			testkit.NoError(t, p.AwaitAnswer(ctx, 30*time.Second, token, vid, time.Time{}))
		}
	}
	revoke := func(n int) {
		t.Helper()
		_, err := admin.RevokeToken(ctx, leaked[n].ID)
		testkit.NoError(t, err)
		for i, l := range leaked {
			want := http.StatusOK
			if i <= n {
				want = http.StatusUnauthorized
			}
			if a, err := p.Ask(ctx, nodeprocess.DrivingPath, l.AccessToken, "car0"); err != nil || a.HTTP != want {
				t.Errorf("after revocation %d: token %d: %d, %v, want %d", n, i, a.HTTP, err, want)
			}
		}
	}
	for range 20 {
		if !stored() {
			t.Fatal("a sample is refused")
		}
	}
	fill := func() {
		t.Helper()
		testkit.Await(t, "telemetry is refused", func() bool { fillDisk(t, hog); return refused() })
		fillDisk(t, hog)
	}
	fill()
	revoke(0)
	answered()
	p.carstate(t, "backup", filepath.Join(t.TempDir(), "fleet.backup"))
	fillDisk(t, hog) // with what the store has given back since
	revoke(1)
	p.Kill()
	fillDisk(t, hog)
	again, err := nodeprocess.Start(ctx, nodeprocess.Options{Binary: binary, Dir: dir, Flags: []string{"--max-age", "24h"}})
	testkit.NoError(t, err)
	defer again.Kill()
	p.Node, admin.URL = again, again.URL(nodeprocess.Admin)
	answered()
	fill() // also what the log of before had allocated in advance
	revoke(2)
	s, err := admin.Status(ctx)
	if err != nil || s.Ready || !strings.Contains(s.Reason, "disk is full") || s.DataDirBytes["reserve"] < 1<<20 {
		t.Errorf("status: %+v, %v", s, err)
	}
	testkit.NoError(t, os.Remove(hog))
	testkit.Await(t, "telemetry is stored again", stored)

	limitFiles(t, p.PID(), 0)
	testkit.Await(t, "a write fails", refused)
	answered()
	limitFiles(t, p.PID(), ^uint64(0))
	select {
	case <-p.Ended():
	case <-time.After(30 * time.Second):
		t.Fatal("it does not end although it can write again")
	}
	if p.ExitCode() != 1 || !strings.Contains(p.LastLine(), "restart carstate") {
		t.Errorf("it ended with %d: %s", p.ExitCode(), p.LastLine())
	}
	p = start(t, dir, "--max-age", "24h")
	answered()
}
