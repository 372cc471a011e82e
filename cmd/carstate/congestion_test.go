package main

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// A byte that takes long makes the mean grow while it is still under way, and the
// mean goes down again after it.
func TestCongestion(t *testing.T) {
	g := new(congestion)
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for range 50 {
		if !g.send(at) {
			t.Fatal("a byte is under way that arrived")
		}
		g.arrived(at.Add(time.Millisecond))
		at = at.Add(probeTime)
	}
	if got := g.waitAt(at); got > 2*time.Millisecond {
		t.Errorf("at rest it is %s", got)
	}
	g.send(at)
	if g.send(at.Add(probeTime)) {
		t.Error("a second byte is sent")
	}
	if got := g.waitAt(at.Add(100 * time.Millisecond)); got > maxWait {
		t.Errorf("100 ms, which a quota takes, make it %s", got)
	}
	if got := g.waitAt(at.Add(300 * time.Millisecond)); got <= maxWait {
		t.Errorf("300 ms make it %s", got)
	}
	at = at.Add(300 * time.Millisecond)
	g.arrived(at)
	calm := 0
	for ; g.waitAt(at) > maxWait; calm++ {
		g.send(at)
		at = at.Add(probeTime)
		g.arrived(at)
	}
	if calm < 1 || calm > 25 {
		t.Errorf("%d bytes until it is over", calm)
	}
}

// Bytes go through the pipe.
func TestCongestionRuns(t *testing.T) {
	g := new(congestion)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- g.run(ctx) }()
	if err := until(time.Minute, func() error {
		if g.wait() == 0 {
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
func overrun() *congestion { return &congestion{mean: time.Second} }

func TestPaced(t *testing.T) {
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := newPaced(plain, overrun(), maxWait)
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

// A pause ends when the listener is closed.
func TestPauseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPaced(&net.TCPListener{}, overrun(), maxWait)
		began := time.Now()
		go func() { _ = l.Close() }()
		l.pause(time.Hour)
		if time.Since(began) > time.Minute {
			t.Error("it went on")
		}
	})
}
