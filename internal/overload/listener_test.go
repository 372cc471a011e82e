package overload

import (
	"crypto/tls"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestListenerShedsLoad(t *testing.T) {
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := NewListener(plain, overrun(), Queries)
	defer l.Close()
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	var open []net.Conn
	for range minConnections + 1 {
		if l.Overloaded() {
			t.Fatalf("%d connections are too many", len(open))
		}
		dial()
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	if !l.Overloaded() {
		t.Errorf("%d connections that wait a second are not too many", len(open))
	}

	// Accept skips a connection whose client has closed it.
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
		t.Error("a connection was handed out that its other side had closed")
	}
	if l.backlog != shortBacklog {
		t.Error("as many as ever may wait")
	}
	for _, c := range append(open, c) {
		c.Close()
		c.Close()
	}
	if n := l.open.Load(); n != 0 || l.Overloaded() {
		t.Errorf("%d connections are open", n)
	}
	dial()
	if _, err := l.Accept(); err != nil || l.backlog != longBacklog {
		t.Errorf("it does not go on as before: %v", err)
	}
}

// layer is a layer over a connection, as servers use them.
type layer struct{ net.Conn }

func (l layer) NetConn() net.Conn { return l.Conn }

// Exactly the newest connections beyond the limit are marked, and Excess sees the mark through
// the layers over a connection. This holds after older ones were closed. Without a limit none
// is marked.
func TestNewestIsExcess(t *testing.T) {
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := NewListener(plain, new(Probe), Queries)
	defer l.Close()
	var open []net.Conn
	for range 400 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		k, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { k.Close() })
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
		l.adapt(at, d)
	}
	if got := excess(); got != nil {
		t.Errorf("without a limit %v are too many", got)
	}
	pass(delays{time.Second, time.Second})
	if got := excess(); !slices.Equal(got, newest(100)) {
		t.Errorf("a quarter less is allowed, and %v are too many", got)
	}
	for _, c := range open[:200] {
		c.(*tls.Conn).NetConn().Close()
	}
	open = open[200:]
	pass(delays{time.Second, time.Second})
	if got := excess(); !slices.Equal(got, newest(50)) {
		t.Errorf("a quarter less of the rest is allowed, and %v are too many", got)
	}
	for range 20 {
		pass(delays{})
	}
	if got := excess(); got != nil || l.limit.active() {
		t.Errorf("after it %v are too many", got)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for c := l.newest; c != nil; c = c.older {
		n++
	}
	if n != len(open) || l.open.Load() != int64(n) || l.backlog != longBacklog {
		t.Errorf("%d are listed and %d counted of %d; %d may queue", n, l.open.Load(), len(open), l.backlog)
	}
}

// On a machine that is slow for other reasons, idle connections are evicted for newer ones,
// and those with requests are not.
func TestIdleConnectionsHoldNoPlace(t *testing.T) {
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := NewListener(plain, overrun(), Queries)
	defer l.Close()
	come := func() (client, server net.Conn) { t.Helper(); return connect(t, l) }
	var clients, servers []net.Conn
	for range minConnections + 1 {
		c, s := come()
		clients, servers = append(clients, c), append(servers, s)
	}
	if come(); !l.Overloaded() || l.open.Load() != minConnections+2 {
		t.Errorf("%d connections are open that came just now", l.open.Load())
	}
	// All but one are idle for long.
	for _, c := range servers {
		c.(*trackedConn).holds.Add(-int64(2 * idleTime))
	}
	if _, err := io.WriteString(clients[0], "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := servers[0].Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		come()
	}
	if n := l.open.Load(); n != minConnections+2 {
		t.Errorf("%d connections are open", n)
	}
	if _, err := servers[0].Write([]byte("x")); err != nil {
		t.Errorf("the one that asks: %v", err)
	}
	closed := 0
	for _, c := range servers[1:] {
		if _, err := c.Write([]byte("x")); err != nil {
			closed++
		}
	}
	if closed != 3 {
		t.Errorf("%d of 3 made room", closed)
	}
}

// connect opens a connection to the listener and accepts it.
func connect(t *testing.T, l *Listener) (client, server net.Conn) {
	t.Helper()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return client, server
}

// full returns a listener whose limit is reached by connections that are idle for long, and
// these connections.
func full(t *testing.T, wrap func(net.Listener) net.Listener) (*Listener, []net.Conn) {
	t.Helper()
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := NewListener(wrap(plain), overrun(), Queries)
	t.Cleanup(func() { l.Close() })
	var all []net.Conn
	for range minConnections {
		_, c := connect(t, l)
		c.(*trackedConn).holds.Add(-int64(3 * idleTime))
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

// If all places are taken by idle connections, each newcomer gets the place of one of them.
func TestTheLastPlaceIsGiven(t *testing.T) {
	l, all := full(t, func(l net.Listener) net.Listener { return l })
	for range 20 {
		if connect(t, l); l.Overloaded() {
			t.Error("a newcomer would be refused")
		}
	}
	if n := closedOf(all); n != 20 {
		t.Errorf("%d made room for 20", n)
	}
}

// later is a listener that calls a function while it waits for a connection.
type later struct {
	net.Listener
	meanwhile func()
}

func (l *later) Accept() (net.Conn, error) {
	l.meanwhile()
	return l.Listener.Accept()
}

// No connection is evicted for a newcomer that arrives after an overload, even if the
// listener began to wait for it during the overload.
func TestNoRoomIsMadeAfterAnOverload(t *testing.T) {
	port := &later{meanwhile: func() {}}
	l, all := full(t, func(l net.Listener) net.Listener { port.Listener = l; return port })
	l.open.Add(1) // one more than the limit
	port.meanwhile = func() { l.limit.max.Store(unlimited) }
	connect(t, l)
	if n := closedOf(all); n != 0 {
		t.Errorf("%d were closed", n)
	}
}

// A client that has closed only its sending side is accepted while few connections are open.
func TestHalfClosedIsAnsweredAmongFew(t *testing.T) {
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := NewListener(plain, overrun(), Queries)
	defer l.Close()
	if l.Overloaded(); !l.limit.active() {
		t.Fatal("there is no limit")
	}
	dial := func() net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	half := dial()
	if err := half.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	dial()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.RemoteAddr().String() != half.LocalAddr().String() {
		t.Error("it was closed without an answer")
	}
}

// A pause of the process, or a change of the system clock, does not make a connection idle.
// The time in which the process ran does, and sooner if nothing has ever arrived on it.
func TestIdleWhileItRan(t *testing.T) {
	l := NewListener(&net.TCPListener{}, new(Probe), Queries)
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	pass := func(d time.Duration) {
		at = at.Add(d)
		l.adapt(at, delays{})
	}
	pass(0)
	silent := l.track(new(net.TCPConn))
	asks := l.track(new(net.TCPConn))
	asks.extendDeadline(workTime) // as Read does
	wants := func(want int64, when string) {
		t.Helper()
		l.evictIdle()
		if n := l.open.Load(); n != want {
			t.Errorf("%d are open %s, want %d", n, when, want)
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
	wants(1, "when one has asked nothing for long")
	if l.newest != asks || silent.newer != nil {
		t.Error("the one was closed that has asked")
	}
	for range 2 * int(idleTime/time.Second) {
		pass(time.Second / 2)
	}
	wants(0, "when the other has asked nothing more for long")
}

// After something has arrived, a connection keeps its place for longer than a silent one.
func TestInWork(t *testing.T) {
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := NewListener(plain, new(Probe), Queries)
	defer l.Close()
	client, server := connect(t, l)
	holds := func() time.Duration {
		return time.Duration(server.(*trackedConn).holds.Load() - l.clock.Load())
	}
	if d := holds(); d != idleTime {
		t.Errorf("one that came just now holds its place for %s", d)
	}
	if _, err := io.WriteString(client, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if d := holds(); d != workTime {
		t.Errorf("one that asked holds its place for %s", d)
	}
}

// A pause ends when the listener is closed.
func TestPauseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewListener(&net.TCPListener{}, overrun(), Queries)
		began := time.Now()
		go func() { _ = l.Close() }()
		l.pause(time.Hour)
		if time.Since(began) > time.Minute {
			t.Error("it went on")
		}
	})
}
