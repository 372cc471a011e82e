package overload

import (
	"crypto/tls"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"example.org/carstate/internal/testkit"
)

func TestListener_ShedsLoad(t *testing.T) {
	l := NewListener(testkit.Listen(t), overrun(), Queries)
	dial := func() net.Conn { t.Helper(); return testkit.Dial(t, l.Addr().String()) }
	var open []net.Conn
	for range minConnections + 1 {
		if l.Overloaded() {
			t.Fatalf("overloaded with only %d connections", len(open))
		}
		_, c := connect(t, l)
		open = append(open, c)
	}
	if !l.Overloaded() {
		t.Errorf("not overloaded with %d connections and a delay of a second", len(open))
	}

	// Accept must skip a connection whose client has closed it.
	gone, here := dial(), dial()
	gone.Close()
	if _, err := io.WriteString(here, "x"); err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if c.RemoteAddr().String() != here.LocalAddr().String() {
		t.Error("Accept returned a connection that its client had closed")
	}
	if l.backlog != shortBacklog {
		t.Errorf("backlog: got %d, want %d", l.backlog, shortBacklog)
	}
	for _, c := range append(open, c) {
		c.Close()
		c.Close()
	}
	if n := l.open.Load(); n != 0 || l.Overloaded() {
		t.Errorf("after closing all: got %d open connections, want 0 and no overload", n)
	}
	dial()
	if _, err := l.Accept(); err != nil || l.backlog != longBacklog {
		t.Errorf("after the overload: got error %v and backlog %d, want %d", err, l.backlog, longBacklog)
	}
}

// layer wraps a connection, as a TLS connection does. Its method NetConn returns the wrapped
// connection.
type layer struct{ net.Conn }

func (l layer) NetConn() net.Conn { return l.Conn }

// TestListener_MarksNewestAsExcess checks that exactly the newest connections beyond the limit are
// in excess, also after older ones were closed, and that none is if there is no limit. Excess must
// find a connection below the layers over it.
func TestListener_MarksNewestAsExcess(t *testing.T) {
	l := NewListener(testkit.Listen(t), new(Probe), Queries)
	var open []net.Conn
	for range 400 {
		_, k := connect(t, l)
		open = append(open, tls.Server(layer{k}, new(tls.Config)))
	}
	excess := func() (all []int) {
		for i, c := range open {
			if l.Excess(c) {
				all = append(all, i)
			}
		}
		return all
	}
	newest := func(n int) (all []int) {
		for i := len(open) - n; i < len(open); i++ {
			all = append(all, i)
		}
		return all
	}
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	pass := func(d delays) {
		at = at.Add(adaptInterval)
		l.update(at, d)
	}
	if got := excess(); got != nil {
		t.Errorf("without a limit: got %v as excess, want none", got)
	}
	pass(delays{time.Second, time.Second})
	if got := excess(); !slices.Equal(got, newest(100)) {
		t.Errorf("got %v as excess, want the newest 100", got)
	}
	for _, c := range open[:200] {
		c.(*tls.Conn).NetConn().Close()
	}
	open = open[200:]
	pass(delays{time.Second, time.Second})
	if got := excess(); !slices.Equal(got, newest(50)) {
		t.Errorf("after half were closed: got %v as excess, want the newest 50", got)
	}
	for range 20 {
		pass(delays{})
	}
	if got := excess(); got != nil || l.limit.active() {
		t.Errorf("after the overload: got %v as excess, want none and no limit", got)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.conns.Len(); n != len(open) || l.open.Load() != int64(n) || l.backlog != longBacklog {
		t.Errorf("got %d connections in the list, %d counted and backlog %d, want %d, %d and %d",
			n, l.open.Load(), l.backlog, len(open), len(open), longBacklog)
	}
}

// TestListener_EvictsIdleUnderOverload checks that idle connections are evicted to admit newer ones
// on a machine that is slow for other reasons, and that connections with requests are not evicted.
func TestListener_EvictsIdleUnderOverload(t *testing.T) {
	l := NewListener(testkit.Listen(t), overrun(), Queries)
	var clients, servers []net.Conn
	for range minConnections + 1 {
		c, s := connect(t, l)
		clients, servers = append(clients, c), append(servers, s)
	}
	if connect(t, l); !l.Overloaded() || l.open.Load() != minConnections+2 {
		t.Errorf("got %d open connections, want %d and an overload", l.open.Load(), minConnections+2)
	}
	// All connections but one are idle for long.
	for _, c := range servers {
		c.(*trackedConn).deadline.Add(-int64(2 * idleTime))
	}
	if _, err := io.WriteString(clients[0], "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := servers[0].Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		connect(t, l)
	}
	if n := l.open.Load(); n != minConnections+2 {
		t.Errorf("after three newcomers: got %d open connections, want %d", n, minConnections+2)
	}
	if _, err := servers[0].Write([]byte("x")); err != nil {
		t.Errorf("the connection with a request was closed: %v", err)
	}
	if closed := closedOf(servers[1:]); closed != 3 {
		t.Errorf("got %d evicted connections, want 3", closed)
	}
}

// connect opens a connection to the listener and accepts it.
func connect(t *testing.T, l *Listener) (client, server net.Conn) {
	t.Helper()
	client = testkit.Dial(t, l.Addr().String())
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return client, server
}

// full returns a listener whose limit is reached, and its connections. All of them have been idle
// for longer than idleTime.
func full(t *testing.T, wrap func(net.Listener) net.Listener) (*Listener, []net.Conn) {
	t.Helper()
	l := NewListener(wrap(testkit.Listen(t)), overrun(), Queries)
	var all []net.Conn
	for range minConnections {
		_, c := connect(t, l)
		c.(*trackedConn).deadline.Add(-int64(3 * idleTime))
		all = append(all, c)
	}
	return l, all
}

func closedOf(all []net.Conn) (n int) {
	for _, c := range all {
		if _, err := c.Write([]byte("x")); err != nil {
			n++
		}
	}
	return n
}

// TestListener_EvictsIdleAtLimit checks that if idle connections have reached the limit, each new
// connection evicts one of them.
func TestListener_EvictsIdleAtLimit(t *testing.T) {
	l, all := full(t, func(l net.Listener) net.Listener { return l })
	for range 20 {
		if connect(t, l); l.Overloaded() {
			t.Error("a newcomer would be refused although an idle connection was evicted")
		}
	}
	if n := closedOf(all); n != 20 {
		t.Errorf("got %d evicted connections, want 20", n)
	}
}

// later is a listener that calls a function while it waits for a connection.
type later struct {
	net.Listener
	whileWaiting func()
}

func (l *later) Accept() (net.Conn, error) {
	l.whileWaiting()
	return l.Listener.Accept()
}

// TestListener_EvictsNoneAfterOverload checks that no connection is evicted to admit a connection
// that arrives after an overload, even if the listener began to wait for the arriving connection
// during the overload.
func TestListener_EvictsNoneAfterOverload(t *testing.T) {
	port := &later{whileWaiting: func() {}}
	l, all := full(t, func(l net.Listener) net.Listener { port.Listener = l; return port })
	l.open.Add(1) // one more than the limit
	port.whileWaiting = func() { l.limit.max.Store(unlimited) }
	connect(t, l)
	if n := closedOf(all); n != 0 {
		t.Errorf("got %d evicted connections, want none", n)
	}
}

// TestListener_AcceptsHalfClosedAmongFew checks that a client that has closed only its sending side
// is accepted while few connections are open.
func TestListener_AcceptsHalfClosedAmongFew(t *testing.T) {
	l := NewListener(testkit.Listen(t), overrun(), Queries)
	if l.Overloaded(); !l.limit.active() {
		t.Fatal("the limit is not active")
	}
	half := testkit.Dial(t, l.Addr().String())
	if err := half.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, c := connect(t, l); c.RemoteAddr().String() != half.LocalAddr().String() {
		t.Error("Accept skipped the half-closed connection")
	}
}

// TestListener_IdleTimeExcludesPauses checks that neither a pause of the process nor a change of
// the system clock makes a connection idle. Time in which the process runs must make it idle, and
// sooner if nothing has ever arrived on it.
func TestListener_IdleTimeExcludesPauses(t *testing.T) {
	l := NewListener(&net.TCPListener{}, new(Probe), Queries)
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	pass := func(d time.Duration) {
		at = at.Add(d)
		l.update(at, delays{})
	}
	pass(0)
	l.track(new(net.TCPConn)) // a silent connection
	asks := l.track(new(net.TCPConn))
	asks.extendDeadline(workTime) // as Read does
	wants := func(want int64, when string) {
		t.Helper()
		l.evictIdle()
		if n := l.open.Load(); n != want {
			t.Errorf("%s: got %d open connections, want %d", when, n, want)
		}
	}
	pass(time.Hour)
	wants(2, "after a pause")
	pass(-2 * time.Hour)
	wants(2, "after the clock was set back")
	for range 100 { // as if two goroutines read the time at once
		pass(time.Second / 2)
		pass(-time.Second / 2)
	}
	wants(2, "after half a second that was counted once")
	for range 2 * int(idleTime/time.Second) {
		pass(time.Second / 2)
	}
	wants(1, "after idleTime")
	if l.conns.Front() != asks.element {
		t.Error("the connection with a request was evicted, not the silent one")
	}
	for range 2 * int(idleTime/time.Second) {
		pass(time.Second / 2)
	}
	wants(0, "after workTime")
}

// TestListener_CloseEndsPause checks that closing the listener ends a pause of Accept.
func TestListener_CloseEndsPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewListener(&net.TCPListener{}, overrun(), Queries)
		began := time.Now()
		go func() { _ = l.Close() }()
		l.pause(time.Hour)
		if time.Since(began) > time.Minute {
			t.Error("the pause did not end with Close")
		}
	})
}
