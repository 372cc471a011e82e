package natsprocess

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"carstate/internal/testkit"
)

// TestServer_Lifecycle checks every method of a Server, from its first start to its end.
func TestServer_Lifecycle(t *testing.T) {
	testkit.Slow(t, "it builds and starts a NATS server")
	binary, err := Build(t.Context(), "", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Build(t.Context(), t.TempDir(), t.TempDir()); err == nil {
		t.Error("Build succeeded in a directory without a module")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	host, port, _ := net.SplitHostPort(addr)
	s := New(Setup{Binary: binary, Name: "one", Args: []string{"--addr", host, "--port", port}, Env: []string{"A=b"},
		Wrap: []string{"env"}})
	if s.Name() != "one" || s.Pause() == nil || s.Resume() == nil {
		t.Error("a server that was not started can be paused")
	}
	s.Kill() // does nothing, since the server was never started
	t.Cleanup(s.Kill)
	// greets reports whether the server sends its first message within the time limit.
	greets := func(limit time.Duration) bool {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		for ctx.Err() == nil {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				continue // the server is starting
			}
			deadline, _ := ctx.Deadline()
			_ = c.SetDeadline(deadline)
			said := make([]byte, 5)
			n, _ := c.Read(said)
			c.Close()
			if string(said[:n]) == "INFO " {
				return true
			}
		}
		return false
	}
	for _, end := range []func(){s.Kill, s.Stop} {
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
		if err := s.Start(); err == nil {
			t.Fatal("a running server was started again")
		}
		if !greets(time.Minute) {
			t.Fatalf("the started server does not serve:\n%s", s.Log())
		}
		if err := s.Pause(); err != nil {
			t.Fatal(err)
		}
		for tries := 0; greets(300 * time.Millisecond); tries++ { // the signal takes effect with a delay
			if tries == 100 {
				t.Fatal("the paused server still serves")
			}
		}
		if err := s.Resume(); err != nil || !greets(time.Minute) {
			t.Errorf("the resumed server does not serve: %v", err)
		}
		end()
		if c, err := net.Dial("tcp", addr); err == nil {
			c.Close()
			t.Error("the ended server still accepts connections")
		}
	}
	if !strings.Contains(s.Log(), "Server is ready") {
		t.Errorf("log: got %q, want a line with \"Server is ready\"", s.Log())
	}
	if err := New(Setup{Binary: "/no/such/program"}).Start(); err == nil {
		t.Error("a program that does not exist was started")
	}
}
