package main_test

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/browsertest"
	"example.org/carstate/internal/test/clustertest"
	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/internal/test/testkit"
)

// Processes with one role each restart, each as soon as the previous one is ready. No query fails
// on two nodes, and no acknowledged sample is lost.
func TestRolesApart(t *testing.T) {
	t.Parallel()
	c := clustertest.StartCluster(t)
	begin := func(dir, role string) *process {
		return start(t, dir, "--nats", c.URLs(), "--replicas", "3", "--partitions", "16", "--max-age", "24h", "--roles", role)
	}
	// Nodes that answer or show vehicles are ready once other nodes fold every partition.
	roles := []string{"derive", "derive", "admin", "query", "query", "ingest", "ingest"}
	byRole := make(map[string]*nodes)
	var dirs []string
	for i, role := range roles {
		dirs = append(dirs, t.TempDir())
		if byRole[role] == nil {
			byRole[role] = new(nodes)
		}
		p := begin(dirs[i], role)
		byRole[role].all = append(byRole[role].all, p)
		checkAdminListener(t, p, role)
	}
	operator := byRole["admin"].all[0]
	l := startCallers(t, byRole["query"], byRole["ingest"], operator.issue(t), operator.addSource(t, "gateway"))
	at := make(map[string]int)
	for i, role := range roles {
		n := byRole[role]
		took := n.all[at[role]].stop(t)
		n.replace(at[role], begin(dirs[i], role))
		at[role]++
		l.seen(t)
		t.Logf("a node with the role %s ended in %.1f s", role, took.Seconds())
	}
	l.end(t)

	// The console says which partition no node folds.
	for _, p := range byRole["derive"].all {
		p.stop(t)
	}
	if n, err := post(byRole["ingest"].all[0], l.key, []string{"late"}); n != 1 || err != nil {
		t.Fatalf("telemetry without derive: got %d accepted, %v, want 1", n, err)
	}
	f := &consoleFixture{process: byRole["admin"].all[0], t: t}
	b := f.open()
	logIn(b, adminKeyOf(t, f.Dir))
	b.Expect(`document.querySelector("[data-live=engine] tbody th")?.innerText || ""`,
		strconv.Itoa(codec.PartitionOf("late", 16)))
	b.IsClean(browsertest.Axe(t))
}

func checkAdminListener(t *testing.T, p *process, role string) {
	t.Helper()
	page := p.URL(nodeprocess.Admin)
	for path, want := range map[string]string{"/healthz": "alive", "/readyz": "ready", "/metrics": "carstate_ready 1"} {
		if err := until(time.Minute, testkit.Says(page+path, http.StatusOK, want)); err != nil {
			t.Errorf("%s: %s: got %v, want %q", role, path, err, want)
		}
	}
	if _, text, err := testkit.Get(page + "/metrics"); err != nil ||
		!strings.Contains(text, `carstate_feed_age_seconds{stream="TOKENS"}`) {
		t.Errorf("%s: /metrics: got no age of its copy of TOKENS, %v, want one", role, err)
	}
	for _, path := range []string{"/", "/login", "/tokens", "/v1/tokens", "/v1/backup", "/v1"} {
		code, text, err := testkit.Get(page + path)
		if err != nil || (code == http.StatusNotFound) != (role != "admin" || path == "/v1") {
			t.Errorf("%s: %s: got %d %.200s, %v, want 404, unless it is of admin", role, path, code, text, err)
		}
	}
	if _, err := os.Stat(filepath.Join(p.Dir, "admin.key")); errors.Is(err, fs.ErrNotExist) != (role != "admin") {
		t.Errorf("%s: admin.key: got error %v, want the file: %t", role, err, role == "admin")
	}
}
