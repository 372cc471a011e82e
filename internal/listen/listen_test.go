package listen_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/listen"
	"example.org/carstate/internal/test/testkit"
)

type pair struct {
	*listen.Conn
	client net.Conn
}

func (p pair) wantsEnd(t *testing.T, what string) {
	t.Helper()
	_ = p.client.SetDeadline(time.Now().Add(testkit.Patience))
	if _, err := io.Copy(io.Discard, p.client); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%s: the connection is open, want it closed", what)
	}
}

func guard(t *testing.T, c listen.Config) net.Listener {
	t.Helper()
	c.Log = slog.New(slog.DiscardHandler)
	return listen.New(c).Listener(testkit.Listen(t))
}

func connect(t *testing.T, l net.Listener) pair {
	t.Helper()
	return accept(t, l, testkit.Dial(t, l.Addr().String()))
}

func accept(t *testing.T, l net.Listener, client net.Conn) pair {
	t.Helper()
	server, err := l.Accept()
	testkit.NoError(t, err)
	t.Cleanup(func() {
		client.Close()
		server.Close()
	})
	if got, want := server.RemoteAddr().String(), client.LocalAddr().String(); got != want {
		t.Fatalf("got a connection from %s, want %s", got, want)
	}
	return pair{server.(*listen.Conn), client}
}

func overloaded(least int) *listen.Limit {
	return listen.NewLimit(new(listen.Probe), listen.Bounds{MaxMean: -1, Target: -1, Least: least, Idle: time.Hour})
}

func probe(t *testing.T, p *listen.Probe) {
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		testkit.NoError(t, <-ended)
	})
}

// A client with more than an eighth of the maximum goes before idle connections.
func TestEvict_Share(t *testing.T) {
	l := guard(t, listen.Config{Max: 2})
	idle, silent := connect(t, l), connect(t, l)
	idle.Become(listen.Idle)
	silent.Send(time.Now().Add(time.Hour))
	silent.Become(listen.Silent)
	if newer := connect(t, l); newer.Crowded() {
		t.Error("the newer connection is crowded, want it admitted")
	}
	silent.wantsEnd(t, "the silent one")
	if !idle.Become(listen.Idle) {
		t.Error("the idle connection: got it evicted, want it kept")
	}
}

func TestAdmit_Crowded(t *testing.T) {
	l := guard(t, listen.Config{Max: 1, Spare: 1})
	held := connect(t, l)
	held.Become(listen.Held)
	spare := connect(t, l)
	spare.Become(listen.Held)
	if !spare.Crowded() {
		t.Error("the spare connection: got it not crowded, want it crowded")
	}
	go func() { _, _ = l.Accept() }()
	pair{nil, testkit.Dial(t, l.Addr().String())}.wantsEnd(t, "one too many")
	held.Become(listen.Idle)
	testkit.Await(t, "the other is evicted for the spare connection", func() bool { return !spare.Crowded() })
	held.wantsEnd(t, "the other")
}

// Even after a new deadline is set.
func TestEvict_FreesDescriptor(t *testing.T) {
	for name, use := range map[string]func(net.Conn, []byte) (int, error){"read": net.Conn.Read, "write": net.Conn.Write} {
		l := guard(t, listen.Config{Max: 1, SendBuffer: 4096})
		c := connect(t, l)
		failed, began := make(chan error, 1), make(chan struct{})
		go func() {
			c.Send(time.Now().Add(-time.Minute))
			close(began)
			var err error
			for err == nil {
				_, err = use(c.Conn, make([]byte, 1<<20))
			}
			failed <- err
		}()
		<-began
		connect(t, l)
		if err := <-failed; !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: got error %v, want net.ErrClosed", name, err)
		}
		_ = c.SetDeadline(time.Now().Add(time.Hour))
		if _, err := c.Write([]byte("x")); !errors.Is(err, net.ErrClosed) || c.Become(listen.Idle) {
			t.Errorf("%s: got error %v from a later Write, want net.ErrClosed and no further use", name, err)
		}
	}
}

func TestSendBuffer(t *testing.T) {
	c := connect(t, guard(t, listen.Config{Max: 10, SendBuffer: 64 << 10}))
	_ = c.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
	if n, err := c.Write(make([]byte, 16<<20)); err == nil || n > 1<<20 {
		t.Errorf("got %d unread bytes, %v; want at most 1 MiB and a timeout", n, err)
	}
}

// Without a mark only Least are admitted; clients that have given up are passed over.
func TestLimit_ShedsLoad(t *testing.T) {
	l := guard(t, listen.Config{Max: 100, Limit: overloaded(4)})
	half := testkit.Dial(t, l.Addr().String())
	testkit.NoError(t, half.(*net.TCPConn).CloseWrite())
	open := []pair{accept(t, l, half)}
	for len(open) < 4 {
		open = append(open, connect(t, l))
	}
	if slices.ContainsFunc(open, func(p pair) bool { return p.Overloaded() }) {
		t.Error("the first four connections: got one overloaded, want none")
	}
	gone := testkit.Dial(t, l.Addr().String())
	_ = gone.Close()
	newer, waits := connect(t, l), connect(t, l)
	for range 2 {
		if !newer.Overloaded() {
			t.Error("a connection beyond the limit: got it not overloaded, want it overloaded")
		}
	}
	_ = newer.Close()
	_ = newer.Close()
	_ = open[0].Close()
	if waits.Overloaded() {
		t.Error("a connection when the others have ended: got it overloaded, want it checked again")
	}
	if connect(t, l); waits.Overloaded() {
		t.Error("a connection after a later overload: got it overloaded again, want it not")
	}
}

func TestLimit_MarksNewestAsExcess(t *testing.T) {
	p := new(listen.Probe)
	l := guard(t, listen.Config{Max: 100, Limit: listen.NewLimit(p, listen.Bounds{Least: 4, Idle: time.Hour})})
	var open []pair
	for range 16 {
		open = append(open, connect(t, l))
	}
	newest := func(n int) func() bool {
		return func() bool {
			for i, c := range open {
				if c.Excess() != (i >= len(open)-n) {
					return false
				}
			}
			return true
		}
	}
	if !newest(0)() {
		t.Error("without an overload: got a connection in excess, want none")
	}
	probe(t, p)
	testkit.Await(t, "a quarter is in excess", newest(4))
	for _, c := range open[:8] {
		_ = c.Close()
	}
	open = open[8:]
	testkit.Await(t, "a quarter of the rest is in excess", newest(2))
	if under := listen.Under(tls.Server(open[7].Conn, new(tls.Config))); under != open[7].Conn {
		t.Errorf("under TLS: got connection %v, want that of the listener", under)
	}
}

func TestLimit_EvictsIdle(t *testing.T) {
	p := new(listen.Probe)
	limit := listen.NewLimit(p, listen.Bounds{Least: 2, Idle: 100 * time.Millisecond})
	l := guard(t, listen.Config{Max: 100, Limit: limit})
	asks, silent := connect(t, l), connect(t, l)
	asks.Become(listen.Held)
	probe(t, p)
	testkit.Await(t, "the overload begins", limit.Active)
	testkit.Await(t, "a newer connection is admitted", func() bool {
		newer := connect(t, l)
		defer newer.Close()
		return !newer.Overloaded()
	})
	silent.wantsEnd(t, "the silent one")
	if !asks.Become(listen.Idle) {
		t.Error("the connection with a request: got it evicted, want it kept")
	}
}

// A connection is held from Hold to the end of the answer. HTTP/2 is refused.
func TestServer(t *testing.T) {
	certFile, keyFile, roots := testkit.Certificate(t)
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	testkit.NoError(t, err)
	began, finish := make(chan struct{}), make(chan struct{})
	srv := listen.NewServer(&http.Server{
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2"}},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/held" {
				listen.Hold(r.Context())
			}
			began <- struct{}{}
			<-finish
			listen.Send(w, []byte(r.Proto))
		})}, listen.Config{Max: 1})
	port := testkit.Listen(t)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(port) }()
	dial := func(text string) pair {
		c := tls.Client(testkit.Dial(t, port.Addr().String()),
			&tls.Config{RootCAs: roots, ServerName: "127.0.0.1", NextProtos: []string{"h2", "http/1.1"}})
		_, _ = io.WriteString(c, text)
		return pair{nil, c}
	}
	get := func(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" }
	other := dial(get("/other"))
	<-began
	held := dial(get("/held"))
	<-began
	other.wantsEnd(t, "a connection without Hold")
	dial("").wantsEnd(t, "a connection beside a held one")
	close(finish)
	if b, err := io.ReadAll(held.client); err != nil || !strings.Contains(string(b), "\r\nHTTP/1.1\r\n") {
		t.Errorf("the held request: got %q, %v; want an answer over HTTP/1.1", b, err)
	}
	testkit.Await(t, "it is gone", func() bool { return srv.Guard.Count() == 0 })

	// It must not delay Shutdown.
	dial("GET / HTTP/1.1\r\nHo")
	testkit.Await(t, "it is there", func() bool { return srv.Guard.Count(listen.Silent) == 1 })
	testkit.NoError(t, srv.Shutdown(context.Background()))
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("Serve: got error %v, want http.ErrServerClosed", err)
	}
}

func TestClient(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.1": "192.0.2.1/32", "::ffff:192.0.2.1": "192.0.2.1/32", "2001:db8::1": "2001:db8::/64",
		"fe80::1%eth0": "fe80::/64",
	} {
		if got := listen.Client(netip.MustParseAddr(text)).String(); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}
