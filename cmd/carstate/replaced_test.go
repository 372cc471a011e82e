package main_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/clustertest"
	"example.org/carstate/internal/test/testkit"
)

// After an operator has created a stream again, the node exits for its supervisor with one line.
// Then only new records are valid.
func TestReplacedStreamEndsTheNode(t *testing.T) {
	t.Parallel()
	server := clustertest.StartServer(t)
	dir, flags := t.TempDir(), []string{"--nats", server.URL(), "--partitions", "1", "--max-age", "24h"}
	p := start(t, dir, flags...)
	key := p.addSource(t, "gateway")
	for _, name := range []string{codec.States, codec.Tokens, codec.Sources} {
		t.Log(name)
		token := p.issue(t)
		_, err := post(p, key, []string{"before"})
		testkit.NoError(t, err)
		testkit.NoError(t, until(time.Minute, func() error { return knows(p, token, "before") }))
		remake(t, clustertest.JetStream(t, server.URL()), name)
		select {
		case <-p.Ended():
		case <-time.After(time.Minute):
			t.Fatalf("%s was made again: got a node that goes on, want its end", name)
		}
		if code := p.ExitCode(); code != exitError {
			t.Errorf("%s was made again: got exit code %d, want %d", name, code, exitError)
		}
		said := p.LastLine()
		for _, want := range []string{"carstate: ", "the stream was replaced: " + name + " was read up to ",
			"supervisor starts it again"} {
			if !strings.Contains(said, want) {
				t.Errorf("the last line: got %q, want %q", said, want)
			}
		}

		p = start(t, dir, flags...)
		if a, err := p.ask(drivingPath, token, "before"); err != nil ||
			(a.HTTP == http.StatusUnauthorized) != (name == codec.Tokens) {
			t.Errorf("the token after %s was made again: got %+v, %v, want 401: %t", name, a, err, name == codec.Tokens)
		}
		if _, err := post(p, key, []string{"before"}); (err != nil) != (name == codec.Sources) {
			t.Errorf("the source after %s was made again: got %v, want an error: %t", name, err, name == codec.Sources)
		}
		if name == codec.Sources {
			key = p.addSource(t, "gateway")
		}
		token = p.issue(t)
		vid := "after" + name
		_, err = post(p, key, []string{vid})
		testkit.NoError(t, err)
		testkit.NoError(t, until(time.Minute, func() error { return knows(p, token, vid) }))
	}
	p.stop(t)
}

func remake(t *testing.T, js jetstream.JetStream, name string) {
	t.Helper()
	old, err := js.Stream(t.Context(), name)
	testkit.NoError(t, err)
	testkit.NoError(t, js.DeleteStream(t.Context(), name))
	_, err = js.CreateStream(t.Context(), old.CachedInfo().Config)
	testkit.NoError(t, err)
}
