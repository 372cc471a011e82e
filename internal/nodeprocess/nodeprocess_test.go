package nodeprocess

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"carstate/internal/testkit"
)

// TestNode_Lifecycle checks the methods of a Node that tests use, from its start to its end.
func TestNode_Lifecycle(t *testing.T) {
	testkit.Slow(t, "it builds and starts carstate")
	ctx := t.Context()
	binary := filepath.Join(t.TempDir(), "carstate")
	if out, err := exec.Command("go", "build", "-o", binary, "carstate/cmd/carstate").CombinedOutput(); err != nil {
		t.Fatalf("the program cannot be built: %v\n%s", err, out)
	}
	dir := filepath.Join(t.TempDir(), "data")
	start := func(o Options) *Node {
		t.Helper()
		n, err := StartReady(ctx, o, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(n.Kill)
		return n
	}
	heard := 0
	n := start(Options{Binary: binary, Dir: dir, Addresses: map[string]string{Query: "127.0.0.1:0"},
		Heard: func([]byte) { heard++ }})
	key, err := n.AddSource(ctx, "gateway")
	if err != nil {
		t.Fatal(err)
	}
	token, err := n.IssueToken(ctx, "Ada")
	if err != nil {
		t.Fatal(err)
	}
	line := fmt.Sprintf(`{"vid":"CAR1","time":%d,"signals":{"Vehicle.Speed":50,"Vehicle.OBD.ThrottlePosition":20}}`,
		time.Now().UnixMilli())
	if status, text, err := n.Post(ctx, key, line); err != nil || status != http.StatusAccepted {
		t.Fatalf("POST: got status %d, %s, %v; want 202", status, text, err)
	}
	answered := func(n *Node) {
		t.Helper()
		if err := Until(ctx, time.Minute, func(ctx context.Context) error {
			a, err := n.Ask(ctx, DrivingPath, token.AccessToken, "CAR1")
			if err == nil && (a.HTTP != http.StatusOK || a.Status != 1 || a.Driving != "1" ||
				time.Since(a.Modified) > time.Minute) {
				err = fmt.Errorf("got answer %+v, want a driving verdict of the last minute", a)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	answered(n)
	if a, err := n.Ask(ctx, ThrottlePath, token.AccessToken, "CAR2"); err != nil || a.Status != 0 {
		t.Errorf("unknown vehicle: got %+v, %v; want status 0", a, err)
	}
	if m, err := n.Metrics(ctx); err != nil || m["carstate_vehicles"] != 1 {
		t.Errorf("metrics: got %v, %v; want carstate_vehicles 1", m, err)
	}
	if bytes, err := n.Resident(); err != nil || bytes < 1<<20 {
		t.Errorf("Resident: got %d bytes, %v; want 1 MiB or more", bytes, err)
	}
	if open, err := n.Descriptors(); err != nil || open < 4 {
		t.Errorf("Descriptors: got %d, %v; want 4 or more", open, err)
	}
	if cpu, err := n.CPU(); err != nil || cpu < 0 || time.Since(n.Began()) < 0 {
		t.Errorf("CPU: got %s, %v; want 0 or more", cpu, err)
	}
	if n.HasEnded() {
		t.Error("HasEnded of a running process: got true")
	}
	n.Kill()
	<-n.Ended()
	if !n.HasEnded() {
		t.Error("HasEnded of a killed process: got false")
	}
	if _, err := n.Ask(ctx, DrivingPath, token.AccessToken, "CAR1"); err == nil ||
		strings.Contains(err.Error(), token.AccessToken) {
		t.Errorf("query to an ended node: got error %v, want one without the token", err)
	}
	if heard < 4 {
		t.Errorf("Heard: got %d lines, want 4 or more", heard)
	}
	if n.Address(Query) == n.Address(MQTT) {
		t.Error("two listeners have one address")
	}
	if n.ExitCode() != -1 || n.LastLine() == "" {
		t.Errorf("killed node: got exit code %d, last line %q; want -1 and a line", n.ExitCode(), n.LastLine())
	}
	n = start(Options{Binary: binary, Dir: dir, Wrap: []string{"env"}})
	answered(n)
	if err := n.Stop(); err != nil {
		t.Error(err)
	}
	if err := n.AwaitReady(ctx, time.Minute); err == nil || !strings.Contains(err.Error(), "ended") {
		t.Errorf("AwaitReady of an ended node: got %v, want an error that it ended", err)
	}
	n = start(Options{Binary: binary, Dir: dir})
	if err := n.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := n.stop(time.Millisecond); err == nil || !strings.Contains(err.Error(), "was killed") || n.ExitCode() != -1 {
		t.Errorf("stop of a suspended node: got %v, exit code %d; want killed, -1", err, n.ExitCode())
	}
	var ended *EndedError
	if _, err := Start(ctx, Options{Binary: binary, Dir: dir, Flags: []string{"--no-such-flag"},
		Env: os.Environ()}); !errors.As(err, &ended) || ended.Code == 0 {
		t.Errorf("start with an unknown flag: got %v, want an EndedError with a code", err)
	}
}

// TestEachLine_AnyLength checks that the whole input is read, whatever the length of its lines.
func TestEachLine_AnyLength(t *testing.T) {
	long := strings.Repeat("x", 3*lineLimit)
	for text, want := range map[string][]string{
		"":                           nil,
		"a\n\nb":                     {"a", "", "b"},
		"a\n" + long + "\nb\n":       {"a", long[:lineLimit], "b"},
		long:                         {long[:lineLimit]},
		long[:lineLimit] + "\nb\n":   {long[:lineLimit], "b"},
		long[:lineLimit-1] + "\nb\n": {long[:lineLimit-1], "b"},
	} {
		var got []string
		eachLine(strings.NewReader(text), func(line []byte) { got = append(got, string(line)) })
		if !slices.Equal(got, want) {
			t.Errorf("%.20q… of %d bytes is read as %d lines, want %d", text, len(text), len(got), len(want))
		}
	}
}
