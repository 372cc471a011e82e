package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"carstate/internal/stream"
	"carstate/internal/stream/streamtest"
)

// An operator makes streams of the cluster anew, as after a loss. The node goes on
// in the same process, on the same ports: every query is answered meanwhile, at
// first from the old tables; then what is no longer stored counts for nothing, and
// what is stored since does.
func TestReplacedStreams(t *testing.T) {
	t.Parallel()
	server := streamtest.StartServer(t)
	nc, err := nats.Connect(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, t.TempDir(), "--nats", server.URL(), "--partitions", "2", "--max-age", "24h")
	key := p.addSource(t, "gateway")
	for _, name := range []string{stream.States, stream.Tokens, stream.Sources} {
		t.Log(name)
		// Whoever asks is answered all the while; with 401 at last, if the token is
		// gone with its stream.
		token := p.issue(t)
		if _, err := post(p, key, []string{"before"}); err != nil {
			t.Fatal(err)
		}
		if err := until(time.Minute, func() error { return knows(p, token, "before") }); err != nil {
			t.Fatal(err)
		}
		asking, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for asking.Err() == nil {
				a, err := p.ask(drivingPath, token, "before")
				if err == nil && a.http == http.StatusUnauthorized && name == stream.Tokens {
					return
				}
				if err != nil || a.http != http.StatusOK {
					t.Errorf("while %s is made anew: %+v, %v", name, a, err)
				}
				<-tick.C
			}
		})
		taken := strings.Count(p.log.String(), "the new tables answer")
		remake(t, js, name)
		if err := until(2*time.Minute, func() error {
			if strings.Count(p.log.String(), "the new tables answer") == taken {
				return fmt.Errorf("%s was made anew, and nobody noticed", name)
			}
			return wants("http://"+p.address["admin-addr"]+"/readyz", http.StatusOK)()
		}); err != nil {
			t.Fatal(err)
		}
		stop()
		running.Wait()
		if a, err := p.ask(drivingPath, token, "before"); err != nil || (a.http == http.StatusUnauthorized) != (name == stream.Tokens) {
			t.Errorf("the token after %s was made anew: %+v, %v", name, a, err)
		}
		if _, err := post(p, key, []string{"before"}); (err != nil) != (name == stream.Sources) {
			t.Errorf("the source after %s was made anew: %v", name, err)
		}
		if name == stream.Sources {
			key = p.addSource(t, "gateway")
		}
		token = p.issue(t)
		vid := "after" + name
		if _, err := post(p, key, []string{vid}); err != nil {
			t.Fatal(err)
		}
		if err := until(time.Minute, func() error { return knows(p, token, vid) }); err != nil {
			t.Fatal(err)
		}
	}
	p.stop(t)
}

// remake deletes a stream and makes it again, empty.
func remake(t *testing.T, js jetstream.JetStream, name string) {
	t.Helper()
	old, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), old.CachedInfo().Config); err != nil {
		t.Fatal(err)
	}
}
