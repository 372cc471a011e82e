package main_test

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/admin/wire"
	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/internal/test/testkit"
)

// A tmpfs of a process that ends with the test.
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
func TestFullDisk(t *testing.T) {
	t.Parallel()
	ctx, disk := testkit.Context(t), smallDisk(t, "300m")
	dir, hog := filepath.Join(disk, "data"), filepath.Join(disk, "hog")
	p := start(t, dir, "--max-age", "24h")
	token, key := p.issue(t), p.addSource(t, "gateway")
	var acknowledged, revoked []string
	stored := func() bool {
		t.Helper()
		vid := fmt.Sprintf("car%d", len(acknowledged))
		status, text, err := p.Post(ctx, key,
			fmt.Sprintf(`{"vid":%q,"time":%d,"signals":{"Vehicle.Speed":50}}`, vid, time.Now().UnixMilli()))
		testkit.NoError(t, err)
		switch status {
		case http.StatusAccepted:
			acknowledged = append(acknowledged, vid)
		case http.StatusServiceUnavailable:
		default:
			t.Fatalf("the sample of %s: got %d %s, want 202 or 503", vid, status, text)
		}
		return status == http.StatusAccepted
	}
	fill := func() {
		t.Helper()
		testkit.Await(t, "telemetry is refused", func() bool { fillDisk(t, hog); return !stored() })
		fillDisk(t, hog)
	}
	answered := func() {
		t.Helper()
		for _, vid := range acknowledged {
			testkit.NoError(t, p.AwaitAnswer(ctx, 30*time.Second, token, vid, time.Time{}))
		}
		for _, old := range revoked {
			if a, err := p.Ask(ctx, nodeprocess.DrivingPath, old, "car0"); err != nil || a.HTTP != http.StatusUnauthorized {
				t.Errorf("a revoked token: got %d, %v, want 401", a.HTTP, err)
			}
		}
	}
	var leaked []wire.IssuedToken
	for range 3 {
		l, err := p.IssueToken(ctx, "Eve")
		testkit.NoError(t, err)
		leaked = append(leaked, l)
	}
	revoke := func() {
		t.Helper()
		p.carstate(t, "token", "revoke", leaked[len(revoked)].ID)
		revoked = append(revoked, leaked[len(revoked)].AccessToken)
		answered()
	}
	if !stored() {
		t.Fatal("a sample before the disk is full: got 503, want 202")
	}
	fill()
	revoke()
	p.carstate(t, "backup", filepath.Join(t.TempDir(), "fleet.backup"))
	fillDisk(t, hog)
	revoke()
	p.Kill()
	fillDisk(t, hog)
	again, err := nodeprocess.Start(ctx, nodeprocess.Options{Binary: binary, Dir: dir, Flags: []string{"--max-age", "24h"}})
	testkit.NoError(t, err)
	defer again.Kill()
	p.Node = again
	answered()
	fill()
	revoke()
	admin, err := p.AdminClient()
	testkit.NoError(t, err)
	s, err := admin.Status(ctx)
	if err != nil || !strings.Contains(s.Reason, "disk is full") || s.DataDirBytes["reserve"] < 1<<20 {
		t.Errorf("the status: got %+v, %v, want that the disk is full, and a reserve of 1 MiB", s, err)
	}
	testkit.NoError(t, os.Remove(hog))
	testkit.Await(t, "telemetry is stored again", stored)
}
