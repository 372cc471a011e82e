package main_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/internal/test/testkit"
)

// Strangers that use up all query connections leave the descriptors that telemetry, the store and
// the probes need.
func TestStrangersLeaveDescriptors(t *testing.T) {
	startsPrograms(t)
	const files = 900
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	log := new(testkit.Buffer)
	n, err := nodeprocess.StartReady(ctx, nodeprocess.Options{
		Binary: binary, Dir: filepath.Join(t.TempDir(), "data"), Env: append(os.Environ(), "GORACE="+endAtOnce),
		Wrap:  []string{"sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, files)},
		Heard: func(line []byte) { fmt.Fprintf(log, "%s\n", line) },
	}, testkit.Patience)
	if err != nil {
		t.Fatalf("the start: got %v, want a node that is ready\n%s", err, log)
	}
	t.Cleanup(func() {
		n.Kill()
		if t.Failed() {
			t.Logf("log of carstate:\n%s", log)
		}
	})
	key, err := n.AddSource(ctx, "gateway")
	testkit.NoError(t, err)
	for range files + 100 {
		c, err := net.DialTimeout("tcp", n.Address(nodeprocess.Query), 10*time.Second)
		if err != nil {
			break // all are in use
		}
		t.Cleanup(func() { c.Close() })
		if _, err := io.WriteString(c, "GET /x HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
			continue
		}
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := c.Read(make([]byte, 1)); err != nil {
			break
		}
	}
	line := fmt.Sprintf(`{"vid":"CAR1","time":%d,"signals":{"Vehicle.Speed":50}}`, time.Now().UnixMilli())
	probe := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for range 20 {
		if resp, err := probe.Get(n.URL(nodeprocess.Admin) + "/healthz"); err != nil {
			t.Fatalf("/healthz: got %v, want 200", err)
		} else if resp.Body.Close(); resp.StatusCode != http.StatusOK {
			t.Fatalf("/healthz: got %s, want 200", resp.Status)
		}
		if status, text, err := n.Post(ctx, key, line); err != nil || status != http.StatusAccepted {
			t.Fatalf("telemetry: got %d %s %v, want 202", status, text, err)
		}
	}
	if said := log.String(); strings.Contains(said, "too many open files") ||
		strings.Count(said, "--query-connections 16384 to ") != 1 {
		t.Errorf("the log: got\n%s\nwant one line about scaled limits, and descriptors enough", said)
	}
}
