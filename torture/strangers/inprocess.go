package strangers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"time"

	"carstate/internal/access"
	"carstate/internal/fleet"
	"carstate/internal/query"
	"carstate/internal/vehicle"
	"carstate/torture/row"

	"github.com/prometheus/client_golang/prometheus"
)

// proxy is where the crowds' connections come from.
var proxy = netip.MustParseAddr("192.0.2.1")

// Sizes of a crowd: of one that comes through the proxy, and of one that comes
// from an address of its own.
const (
	largeCrowd = 10_000
	smallCrowd = 5
)

// inProcess sends strangers through a query server in this process.
func inProcess(ctx context.Context, a *row.Attempt, strangers int) (err error) {
	tokens, cars := new(access.Tokens), fleet.New()
	d := &queryDoor{vid: "Car1", other: "X1"}
	now := time.Now()
	verdict := fleet.Answer{
		Driving:  vehicle.DrivingVerdict{State: vehicle.NormalDriving, Time: vehicle.At(now)},
		Throttle: vehicle.ThrottleVerdict{System: vehicle.ThrottleNormal, Time: vehicle.At(now)},
	}
	cars.Put(vehicle.ID(d.other), verdict)
	for i := range 10_000 {
		cars.Put(vehicle.ID(fmt.Sprint("Car", i)), verdict)
	}
	for secret, vehicles := range map[*string]access.Vehicles{&d.right: access.AllVehicles(), &d.granted: access.VehicleSet("Car1")} {
		t, s, err := access.Issue(access.TokenRequest{Developer: "Ada", Operations: access.AllOperations, Vehicles: vehicles}, now)
		if err != nil {
			return err
		}
		tokens.Put(t)
		*secret = s
	}
	registry := prometheus.NewRegistry()
	server := query.New(query.Config{Tokens: tokens, Fleet: cars, TrustedProxies: []netip.Prefix{netip.PrefixFrom(proxy, 32)}, Registry: registry})
	listener := &memoryListener{arriving: make(chan net.Conn), closed: make(chan struct{})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = errors.Join(err, server.Shutdown(ending), <-served)
	}()

	heapBefore, seriesBefore, err := measure(registry)
	if err != nil {
		return err
	}
	began := time.Now()
	answered, came := 0, 0
	done := make(chan *memoryConn)
	room := runtime.GOMAXPROCS(0)
	coming := 0
	collect := func() {
		c := <-done
		coming--
		answered += c.answered
		if c.wrong != nil {
			a.Wrong("in process: %v", c.wrong)
		}
	}
	for came < strangers && ctx.Err() == nil {
		if coming == room {
			collect()
		}
		c := &memoryConn{crowd: newCrowd(d, a.Seed, came, min(largeCrowd, strangers-came)), peer: proxy, done: done}
		// Every hundredth stranger comes by itself, so that connections count too.
		if came%largeCrowd >= largeCrowd-largeCrowd/100 {
			c.crowd = newCrowd(d, a.Seed, came, min(smallCrowd, strangers-came))
			c.peer = netip.AddrFrom4([4]byte{10, byte(came >> 18), byte(came >> 10), byte(came >> 2)})
		} else {
			c.n = min(c.n, largeCrowd-largeCrowd/100-came%largeCrowd)
		}
		came += c.n
		select {
		case listener.arriving <- c:
			coming++
		case <-ctx.Done():
		}
	}
	for coming > 0 {
		collect()
	}
	if ctx.Err() != nil {
		return nil
	}
	took := time.Since(began)
	if err := tally(a, "in process", came, answered); err != nil {
		return err
	}
	heapAfter, seriesAfter, err := measure(registry)
	if err != nil {
		return err
	}
	grew(a, "in process", heapAfter-heapBefore, seriesBefore, seriesAfter)
	a.Figure("in process: strangers", float64(came), "")
	a.Figure("in process: strangers a second", float64(came)/took.Seconds(), "")
	return nil
}

// measure is the heap in use after a garbage collection, and the number of series.
func measure(registry *prometheus.Registry) (heap int64, series int, err error) {
	families, err := registry.Gather()
	for _, f := range families {
		series += len(f.GetMetric())
	}
	families = nil
	runtime.GC()
	runtime.GC() // what a pool held is given up only now
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse), series, err
}

// memoryListener hands out connections that are memory.
type memoryListener struct {
	arriving chan net.Conn
	closed   chan struct{}
}

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.arriving:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close is called once, by the server.
func (l *memoryListener) Close() error {
	close(l.closed)
	return nil
}

func (l *memoryListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 2), Port: 80} }

// memoryConn is a connection of a crowd: the server's reads make requests, and its
// writes are judged, with nothing in between.
type memoryConn struct {
	*crowd
	peer netip.Addr
	done chan<- *memoryConn
}

func (c *memoryConn) Write(p []byte) (int, error) {
	n, err := c.crowd.Write(p)
	if errors.Is(err, errAll) {
		err = nil
	}
	return n, err
}

// Close is called once, by the server.
func (c *memoryConn) Close() error {
	c.done <- c
	return nil
}

func (c *memoryConn) LocalAddr() net.Addr { return (*memoryListener)(nil).Addr() }

func (c *memoryConn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(c.peer, 4711))
}

// What is asked for is always there: no deadline is ever over.
func (c *memoryConn) SetDeadline(time.Time) error      { return nil }
func (c *memoryConn) SetReadDeadline(time.Time) error  { return nil }
func (c *memoryConn) SetWriteDeadline(time.Time) error { return nil }
