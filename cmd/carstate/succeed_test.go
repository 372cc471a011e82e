package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"carstate/internal/nodeprocess"
	"carstate/internal/stream"
	"carstate/internal/stream/streamtest"
)

// An operator makes streams of the cluster anew, as after a loss. The node goes on
// in the same process, on the same ports: every query is answered meanwhile, at
// first from the old tables; then what is no longer stored counts for nothing, and
// what is stored since does.
func TestReplacedStreams(t *testing.T) {
	t.Parallel()
	// One partition, so that all are folded in the one in which somebody is forgotten.
	js, p := startOnServer(t, "1")
	key := p.addSource(t, "gateway")
	if _, err := post(p, key, []string{"forgotten"}); err != nil {
		t.Fatal(err)
	}
	p.carstate(t, "forget", "forgotten")
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
				if err == nil && a.HTTP == http.StatusUnauthorized && name == stream.Tokens {
					return
				}
				if err != nil || a.HTTP != http.StatusOK {
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
			return wants(p.URL(nodeprocess.Admin)+"/readyz", http.StatusOK)()
		}); err != nil {
			t.Fatal(err)
		}
		stop()
		running.Wait()
		if a, err := p.ask(drivingPath, token, "before"); err != nil || (a.HTTP == http.StatusUnauthorized) != (name == stream.Tokens) {
			t.Errorf("the token after %s was made anew: %+v, %v", name, a, err)
		}
		if _, err := post(p, key, []string{"before"}); (err != nil) != (name == stream.Sources) {
			t.Errorf("the source after %s was made anew: %v", name, err)
		}
		if name == stream.Sources {
			key = p.addSource(t, "gateway")
		}
		// A tombstone goes with its stream, and only with that.
		if _, err := post(p, key, []string{"forgotten"}); (err == nil) != (name == stream.Sources) {
			t.Errorf("the forgotten vehicle after %s was made anew: %v", name, err)
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

// An operator makes all streams anew, one after the other, while successors read
// them; and tells the process to end in the middle of a last succession.
func TestStreamsReplacedInTurn(t *testing.T) {
	t.Parallel()
	js, p := startOnServer(t, "2")
	noticed := func(name string) {
		begun := strings.Count(p.log.String(), "all tables are made anew")
		remake(t, js, name)
		if err := until(2*time.Minute, func() error {
			if strings.Count(p.log.String(), "all tables are made anew") == begun {
				return fmt.Errorf("%s was made anew, and nobody noticed", name)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	noticed(stream.States)
	remake(t, js, stream.Tokens) // a successor has read it already, or not
	remake(t, js, stream.Sources)
	if err := until(2*time.Minute, func() error {
		if !strings.Contains(p.log.String(), "the new tables answer") {
			return errors.New("no successor could answer")
		}
		return wants(p.URL(nodeprocess.Admin)+"/readyz", http.StatusOK)()
	}); err != nil {
		t.Fatal(err)
	}
	noticed(stream.States)
	p.stop(t)
}

// Successors come at once, then ever more slowly, and at last not any more until an
// hour has passed.
func TestSuccessionPauses(t *testing.T) {
	t.Parallel()
	var made successions
	now := time.Unix(1e9, 0)
	began := now
	var got []time.Duration
	for {
		p, ok := made.pause(now)
		if !ok {
			break
		}
		got = append(got, p)
		now = now.Add(p)
	}
	want := []time.Duration{0, 1, 2, 4, 8, 16, 32, 60, 60, 60}
	for i := range want {
		want[i] *= time.Second
	}
	if !slices.Equal(got, want) {
		t.Errorf("pauses of %v; want %v", got, want)
	}
	if p, ok := made.pause(began.Add(time.Hour - 1)); ok {
		t.Errorf("after too many there is another one in %v", p)
	}
	if _, ok := made.pause(began.Add(time.Hour)); !ok {
		t.Error("there is no other one after an hour")
	}
	if p, ok := made.pause(began.Add(3 * time.Hour)); p != 0 || !ok {
		t.Errorf("what is long ago counts: %v, %v", p, ok)
	}
}

// startOnServer starts a node on a server of its own, and returns what an operator
// does to its streams with.
func startOnServer(t *testing.T, partitions string) (jetstream.JetStream, *process) {
	t.Helper()
	server := streamtest.StartServer(t)
	return server.JetStream(), start(t, t.TempDir(), "--nats", server.URL(), "--partitions", partitions, "--max-age", "24h")
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
