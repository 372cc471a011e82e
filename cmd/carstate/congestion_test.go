package main

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// A byte that takes long makes the mean grow while it is still under way, and the
// mean goes down again after it.
func TestCongestion(t *testing.T) {
	g := new(congestion)
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for range 50 {
		if !g.send(at, at) {
			t.Fatal("a byte is under way that arrived")
		}
		g.arrived(at.Add(time.Millisecond))
		at = at.Add(probeTime)
	}
	waitAt := func(at time.Time) time.Duration { return g.waitsAt(at).mean }
	if got := g.waitsAt(at); got.mean > 2*time.Millisecond || got.least != time.Millisecond {
		t.Errorf("at rest it is %+v", got)
	}
	g.send(at, at)
	if g.send(at.Add(probeTime), at.Add(probeTime)) {
		t.Error("a second byte is sent")
	}
	if got := waitAt(at.Add(100 * time.Millisecond)); got > maxWait {
		t.Errorf("100 ms, which a quota takes, make it %s", got)
	}
	if got := waitAt(at.Add(300 * time.Millisecond)); got <= maxWait {
		t.Errorf("300 ms make it %s", got)
	}
	if got := g.waitsAt(at.Add(200 * time.Millisecond)).least; got != time.Millisecond {
		t.Errorf("the least of the last %s is %s", memory, got)
	}
	if got := g.waitsAt(at.Add(300 * time.Millisecond)).least; got != 300*time.Millisecond {
		t.Errorf("the least of none but one under way is %s", got)
	}
	at = at.Add(300 * time.Millisecond)
	g.arrived(at)
	// What is due in a pause of the process, and gets through at once after it, makes
	// the mean long and not the least.
	paused := g.waitsAt(at).mean
	at = at.Add(memory + probeTime)
	g.send(at.Add(-memory), at)
	g.arrived(at.Add(time.Millisecond))
	if got := g.waitsAt(at.Add(time.Millisecond)); got.least != time.Millisecond || got.mean <= paused {
		t.Errorf("after a pause it is %+v", got)
	}
	calm := 0
	for ; waitAt(at) > maxWait; calm++ {
		g.send(at, at)
		at = at.Add(probeTime)
		g.arrived(at)
	}
	if calm < 1 || calm > 25 {
		t.Errorf("%d bytes until it is over", calm)
	}
}

// Who asks with a time that he took before the byte was sent, because he was kept
// waiting since, is not told of a wait that nobody has.
func TestCongestionOfAnEarlierMoment(t *testing.T) {
	at := time.Now()
	for _, late := range []time.Duration{50 * time.Millisecond, 200 * time.Millisecond, time.Second, time.Minute} {
		g := &congestion{mean: time.Millisecond}
		g.send(at.Add(late), at.Add(late))
		if got := g.waitsAt(at); got.mean > time.Millisecond || got.least > time.Millisecond {
			t.Errorf("asked %s late, it is %+v", late, got)
		}
	}
}

// A process that may use a quarter of a core, and has two to run on, stands still for
// 88 of each 100 ms in which it uses that, and does all that it is asked all the same.
func TestQuotaIsNoOverload(t *testing.T) {
	g := new(congestion)
	a := newAllowance(maxTelemetryWait, leastTelemetryWait)
	g.follow(func(now time.Time, w waits) { a.adapt(now, w, 10*fewCallers) })
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	var due time.Time // of a tick that nobody has looked at
	var most time.Duration
	for ms := range 3000 {
		now := at.Add(time.Duration(ms) * time.Millisecond)
		if ms%20 == 7 && due.IsZero() {
			due = now
		}
		if still := ms >= 1000 && ms%100 >= 12; !still && !due.IsZero() && g.send(due, now) {
			due = time.Time{}
			g.arrived(now)
		}
		most = max(most, g.waitsAt(now).mean)
	}
	if most <= maxTelemetryWait || a.limited() {
		t.Errorf("the mean wait comes to %s; limited: %v", most, a.limited())
	}
}

// While a successor takes over, the two share the queue of a port. How the one that
// goes has left it does not outlast it.
func TestQueueAfterASuccession(t *testing.T) {
	port, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	shared, err := listeners{"": port}.share()
	if err != nil {
		t.Fatal(err)
	}
	goes, stays := newPaced(port, overrun(), maxWait, leastWait), newPaced(shared[""], new(congestion), maxWait, leastWait)
	defer stays.Close()
	stays.fit()
	goes.open.Store(2 * fewCallers)
	goes.overloaded()
	if n := queueOf(t, stays.Listener); n != shortQueue {
		t.Errorf("%d may wait in an overload", n)
	}
	if err := goes.Close(); err != nil {
		t.Fatal(err)
	}
	if n := queueOf(t, stays.Listener); n <= shortQueue {
		t.Errorf("only %d may wait", n)
	}
}

// queueOf is how many may wait to be accepted.
func queueOf(t *testing.T, l net.Listener) (n int) {
	t.Helper()
	control(l, func(fd int) {
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			t.Fatal(err)
		}
		n = int(info.Sacked) // of a listener
	})
	return n
}

// Bytes go through the pipe.
func TestCongestionRuns(t *testing.T) {
	g := new(congestion)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- g.run(ctx) }()
	if err := until(time.Minute, func() error {
		if _, w := g.now(); w.mean == 0 || w.least == 0 {
			return errors.New("no byte has arrived")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// overrun is a congestion of a node that is a second behind.
func overrun() *congestion {
	g := &congestion{mean: time.Second}
	g.lately[g.last] = passage{time.Now(), time.Second}
	return g
}

func TestPaced(t *testing.T) {
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := newPaced(plain, overrun(), maxWait, leastWait)
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
	for range fewCallers + 1 {
		if l.overloaded() {
			t.Fatalf("%d connections are too many", len(open))
		}
		dial()
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	if !l.overloaded() {
		t.Errorf("%d connections that wait a second are not too many", len(open))
	}

	// Who has gone is not handed out.
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
	if l.queue != shortQueue {
		t.Error("as many as ever may wait")
	}
	for _, c := range append(open, c) {
		c.Close()
		c.Close()
	}
	if n := l.open.Load(); n != 0 || l.overloaded() {
		t.Errorf("%d connections are open", n)
	}
	dial()
	if _, err := l.Accept(); err != nil || l.queue != longQueue {
		t.Errorf("it does not go on as before: %v", err)
	}
}

// The newest of too many are marked, through all that is put over a connection, and
// no others: not when older ones have gone meanwhile, nor once there is no limit.
func TestNewestIsExcess(t *testing.T) {
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := new(congestion)
	l := newPaced(plain, g, maxWait, leastWait)
	defer l.Close()
	door := newHalfOpen(l, true)
	var open []net.Conn
	for range 400 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		k, err := door.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { k.Close() })
		open = append(open, tls.Server(k, new(tls.Config)))
	}
	excess := func() (all []int) {
		for i, c := range open {
			if l.excess(c) {
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
	pass := func(w waits) {
		at = at.Add(adaptTime)
		l.adapt(at, w)
	}
	if got := excess(); got != nil {
		t.Errorf("without a limit %v are too many", got)
	}
	pass(waits{time.Second, time.Second})
	if got := excess(); !slices.Equal(got, newest(100)) {
		t.Errorf("a quarter less is allowed, and %v are too many", got)
	}
	for _, c := range open[:200] {
		c.(*tls.Conn).NetConn().Close()
	}
	open = open[200:]
	pass(waits{time.Second, time.Second})
	if got := excess(); !slices.Equal(got, newest(50)) {
		t.Errorf("a quarter less of the rest is allowed, and %v are too many", got)
	}
	for range 20 {
		pass(waits{})
	}
	if got := excess(); got != nil || l.allowed.limited() {
		t.Errorf("after it %v are too many", got)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for c := l.newest; c != nil; c = c.older {
		n++
	}
	if n != len(open) || l.open.Load() != int64(n) || l.queue != longQueue {
		t.Errorf("%d are listed and %d counted of %d; %d may queue", n, l.open.Load(), len(open), l.queue)
	}
}

// On a machine that is slow for other reasons, connections on which nobody asks hold
// no places that newer ones could have; those that ask do.
func TestIdleConnectionsHoldNoPlace(t *testing.T) {
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := newPaced(plain, overrun(), maxWait, leastWait)
	defer l.Close()
	come := func() (client, server net.Conn) {
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
	var clients, servers []net.Conn
	for range fewCallers + 1 {
		c, s := come()
		clients, servers = append(clients, c), append(servers, s)
	}
	if come(); !l.overloaded() || l.open.Load() != fewCallers+2 {
		t.Errorf("%d connections are open that came just now", l.open.Load())
	}
	// All but one ask nothing for long.
	for _, c := range servers {
		c.(*counted).read.Add(-int64(2 * idleTime))
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
	if n := l.open.Load(); n != fewCallers+2 {
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

// A pause ends when the listener is closed.
func TestPauseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPaced(&net.TCPListener{}, overrun(), maxWait, leastWait)
		began := time.Now()
		go func() { _ = l.Close() }()
		l.pause(time.Hour)
		if time.Since(began) > time.Minute {
			t.Error("it went on")
		}
	})
}
