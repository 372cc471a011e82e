package netguard

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"example.org/carstate/internal/testkit"
)

// open returns a guard with a listener, and a function dial that opens a connection to the listener
// and returns both ends.
func open(t *testing.T, c Config) (g *Guard, dial func() (client net.Conn, ours *Conn)) {
	t.Helper()
	g = New(c)
	l := g.Listener(testkit.Listen(t))
	t.Cleanup(func() { _ = l.Close() })
	accepted := make(chan *Conn, 100)
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- nc.(*Conn)
		}
	}()
	return g, func() (net.Conn, *Conn) {
		t.Helper()
		client := testkit.Dial(t, l.Addr().String())
		select {
		case c := <-accepted:
			t.Cleanup(func() { _ = c.Close() })
			return client, c
		case <-time.After(testkit.Patience):
			t.Fatal("no connection was handed out")
			return nil, nil
		}
	}
}

// evictNow makes the guard evict a connection, and reports whether it found one.
func evictNow(g *Guard) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.noneUntil = 0 // a search is allowed, even if the previous one found none
	return g.evict()
}

func isEvicted(c *Conn) bool { return Use(c.use.Load()) == evicted }

func age(c *Conn, d time.Duration) { c.since.Store(time.Now().Add(-d).UnixNano()) }

// TestEvict_Order checks that connections that are silent or do not read are evicted before idle
// ones, and idle ones before those that became silent just now. Held ones must never be evicted.
func TestEvict_Order(t *testing.T) {
	dropped := 0
	// All connections here have the same client. With the large Max below, they are less than an
	// eighth of the maximum.
	g, dial := open(t, Config{Max: 4, Dropped: func() { dropped++ }})
	var all [4]*Conn
	for i := range all {
		_, all[i] = dial()
	}
	held, idle, unread, silent := all[0], all[1], all[2], all[3]
	g.c.Max = 1000 // so that four connections are less than an eighth of it
	held.Become(Held)
	idle.Become(Idle)
	unread.Send(time.Now().Add(-2 * staleAfter))
	silent.Become(Silent)
	age(silent, 0)
	for _, want := range []*Conn{unread, idle, silent} {
		if !evictNow(g) || !isEvicted(want) {
			t.Fatalf("evicted: held %t, idle %t, unread %t, silent %t",
				isEvicted(held), isEvicted(idle), isEvicted(unread), isEvicted(silent))
		}
	}
	if evictNow(g) || isEvicted(held) {
		t.Error("a held connection was evicted")
	}
	if dropped != 3 || g.Count() != 1 {
		t.Errorf("%d dropped, %d open", dropped, g.Count())
	}
}

// TestEvict_Share checks that a connection that became silent just now is evicted before idle ones
// if its client has more than an eighth of the maximum number of connections.
func TestEvict_Share(t *testing.T) {
	g, dial := open(t, Config{Max: 2})
	_, idle := dial()
	_, silent := dial()
	idle.Become(Idle)
	age(silent, 0)
	_, newer := dial()
	if !isEvicted(silent) || isEvicted(idle) || newer.Crowded() || g.Count() != 2 {
		t.Errorf("evicted: silent %t, idle %t; crowded %t, %d open",
			isEvicted(silent), isEvicted(idle), newer.Crowded(), g.Count())
	}
}

// TestAdmit_Crowded checks that if no connection can be evicted, as many connections beyond Max as
// Spare says are accepted and reported as crowded, and further ones are closed.
func TestAdmit_Crowded(t *testing.T) {
	g, dial := open(t, Config{Max: 1, Spare: 1})
	_, held := dial()
	held.Become(Held)
	_, spare := dial()
	spare.Become(Held)
	if !spare.Crowded() {
		t.Error("the spare connection is not marked")
	}
	client := testkit.Dial(t, spare.LocalAddr().String())
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("one too many: %v", err)
	}
	_ = spare.Close()
	_ = spare.Close()
	if g.Count() != 1 {
		t.Errorf("%d open", g.Count())
	}
	if len(g.clients) != 1 {
		t.Errorf("clients: %v", g.clients)
	}
}

// TestEvict_WakesReaderAndWriter checks that Read and Write fail on an evicted connection, even
// after a new deadline is set.
func TestEvict_WakesReaderAndWriter(t *testing.T) {
	g, dial := open(t, Config{Max: 10, SendBuffer: 4096})
	for _, what := range []string{"read", "write"} {
		_, c := dial()
		failed := make(chan error, 1)
		go func() {
			b := make([]byte, 1<<20)
			var err error
			for err == nil {
				if what == "read" {
					_, err = c.Read(b)
				} else {
					c.Send(time.Now())
					_, err = c.Write(b)
				}
			}
			_ = c.SetDeadline(time.Now().Add(time.Hour))
			_, err = c.Read(b)
			failed <- err
		}()
		if what == "write" {
			testkit.Await(t, "it sends", func() bool { return Use(c.use.Load()) == Sending })
		}
		if !evictNow(g) {
			t.Fatal("nothing was evicted")
		}
		if err := <-failed; !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: got error %v, want net.ErrClosed", what, err)
		}
		if _, err := c.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: the descriptor is still open: %v", what, err)
		}
		if c.Become(Idle) {
			t.Errorf("%s: an evicted connection goes on", what)
		}
	}
}

// TestSendBuffer checks that with a SendBuffer of 64 KiB, the kernel buffers at most 1 MiB for a
// client that does not read.
func TestSendBuffer(t *testing.T) {
	_, dial := open(t, Config{Max: 10, SendBuffer: 64 << 10})
	_, c := dial()
	_ = c.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
	if n, err := c.Write(make([]byte, 16<<20)); err == nil || n > 1<<20 {
		t.Errorf("%d bytes are on their way to a client that does not read, %v", n, err)
	}
}

// TestServer_HoldsRequests checks connections of a server of net/http. A connection whose handler
// has called Hold must not be evicted until its answer was written. Another one may be evicted.
func TestServer_HoldsRequests(t *testing.T) {
	plain := testkit.Listen(t)
	began, finish := make(chan *Conn), make(chan struct{})
	srv := NewServer(&http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/held" {
			Hold(r.Context(), func() func() { return func() {} })
			defer Release(r.Context())
			defer Send(w, []byte("answer"))
		}
		began <- ConnOf(r.Context())
		<-finish
	})}, Config{Max: 100})
	g := srv.Guard
	served := make(chan error, 1)
	go func() { served <- srv.Serve(plain) }()
	for _, path := range []string{"/held", "/other"} {
		client := &http.Client{Transport: new(http.Transport)} // a connection of its own, so that nothing is sent again
		answered := make(chan error, 1)
		go func() {
			resp, err := client.Get("http://" + plain.Addr().String() + path)
			if err == nil {
				_ = resp.Body.Close()
			}
			answered <- err
		}()
		c := <-began
		if got := evictNow(g); got != (path == "/other") {
			t.Errorf("%s: evicted %t", path, got)
		}
		finish <- struct{}{}
		if err := <-answered; (err != nil) != (path == "/other") {
			t.Errorf("%s: got error %v, want an error only for /other", path, err)
		}
		if path == "/held" {
			testkit.Await(t, "it is idle", func() bool { return Use(c.use.Load()) == Idle })
			client.CloseIdleConnections()
			testkit.Await(t, "it is gone", func() bool { return g.Count() == 0 })
		}
	}

	// A connection on which half of a request's head has arrived must not delay Shutdown.
	half := testkit.Dial(t, plain.Addr().String())
	if _, err := half.Write([]byte("GET / HTTP/1.1\r\nHo")); err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, "it is there", func() bool { return g.Count() > 0 })
	if err := srv.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}

// TestServer_BoundsStreams checks that the requests in progress on HTTP/2 connections are bounded:
// the first of each connection is served, and at most Max others.
func TestServer_BoundsStreams(t *testing.T) {
	const most, requests = 4, 20
	began, finish := make(chan struct{}, requests), make(chan struct{})
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		began <- struct{}{}
		<-finish
	}))
	srv.EnableHTTP2 = true
	g := NewServer(srv.Config, Config{Max: most}).Guard
	_ = srv.Listener.Close()
	srv.Listener = g.Listener(testkit.Listen(t))
	srv.StartTLS()
	t.Cleanup(srv.Close)
	pool := srv.Client().Transport.(*http.Transport)
	client := func() *http.Client {
		own := pool.Clone()
		t.Cleanup(own.CloseIdleConnections)
		return &http.Client{Transport: own}
	}
	ask := func(c *http.Client) error {
		resp, err := c.Get(srv.URL)
		if err == nil {
			err = resp.Body.Close()
		}
		return err
	}
	many, answers := client(), make(chan error, requests+1)
	first := func(c *http.Client) {
		go func() { answers <- ask(c) }()
		<-began
	}
	first(many)
	for range requests - 1 {
		go func() { answers <- ask(many) }()
	}
	for range requests - 1 - most {
		if err := <-answers; err == nil {
			t.Error("a request beyond the limit was answered")
		}
	}
	for range most {
		<-began
	}
	first(client()) // the first request of another connection
	close(finish)
	for range most + 2 {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	testkit.Await(t, "no request is counted any more", func() bool { return g.streams.Load() == 0 })
}

// TestHoldUntilAnswered checks that a connection is held until its answer was written, and
// no longer. If the client has gone before the handler ends, the connection is not held for the
// answer.
func TestHoldUntilAnswered(t *testing.T) {
	_, dial := open(t, Config{Max: 10})
	_, c := dial()
	request := context.WithValue(t.Context(), connKey{}, c)
	wants := func(want Use, when string) {
		t.Helper()
		if u := Use(c.use.Load()); u != want {
			t.Errorf("%s its use is %d, want %d", when, u, want)
		}
	}
	c.applyState(http.StateActive)
	HoldUntilAnswered(request)
	wants(Held, "while the answer is being written")
	c.applyState(http.StateIdle)
	wants(Idle, "after it")
	HoldUntilAnswered(request)
	wants(Idle, "without a client")
}

// TestFit_ScalesToDescriptors checks that limits are scaled down to the number of file descriptors,
// but not below 16.
func TestFit_ScalesToDescriptors(t *testing.T) {
	a, b := 16_000, 4_000
	if fit(20_000, []*int{&a, &b}) || a != 16_000 {
		t.Error("limits that fit were changed")
	}
	if !fit(500, []*int{&a, &b}) || a != 400 || b != 100 {
		t.Errorf("%d and %d of 500", a, b)
	}
	if c := 3; !fit(-3, []*int{&a, &b, &c}) || a != 16 || b != 16 || c != 3 {
		t.Errorf("%d and %d of none", a, b)
	}
	if files, _ := FitToFiles(0, &a); files < 64 {
		t.Errorf("%d descriptors", files)
	}
}

func TestClient(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.1": "192.0.2.1/32", "::ffff:192.0.2.1": "192.0.2.1/32", "2001:db8::1": "2001:db8::/64",
		"fe80::1%eth0": "fe80::/64",
	} {
		if got := Client(netip.MustParseAddr(text)).String(); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}
