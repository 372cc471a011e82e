package overload

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"
)

// Passers-by send what is due while all users wait, so that as much is offered as is
// due. Each tries once to connect. Who is let in is a user from then on. Who is not
// has been turned away by the kernel, which keeps nothing of him and would hear from
// him again after a second, when his patience is at its end.

// maxConnected is how many users there are at most with those who were let in.
const maxConnected = 3 * maxUsers

// Passers-by come one after the other, from so many goroutines. Where more than
// behind of them are due, the machine cannot send what the row wants it to.
const (
	streets = 2
	behind  = 1024
)

// passBy has passers-by come. What it returns ends that.
func (c *crowd) passBy() (stop func()) {
	to := netip.MustParseAddrPort(c.addr)
	due := make(chan time.Time, behind)
	c.mu.Lock()
	c.passing = due
	c.mu.Unlock()
	var all sync.WaitGroup
	for range streets {
		all.Go(func() {
			for due := range due {
				conn, err := tryOnce(to)
				c.passed(due, conn, err)
			}
		})
	}
	return func() {
		c.mu.Lock()
		c.passing = nil
		c.mu.Unlock()
		close(due)
		all.Wait()
	}
}

// passed is told what became of a passer-by.
func (c *crowd) passed(due time.Time, conn net.Conn, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := !due.Before(c.from)
	switch {
	case conn != nil && len(c.users) < maxConnected:
		u := &user{of: c, fresh: true}
		u.use(conn)
		c.employ(u, due)
		return
	case conn != nil:
		_ = conn.Close()
	}
	switch {
	case !counts:
	case err != nil || conn != nil:
		c.now.unsent++
	default:
		c.now.away++
	}
}

// tryOnce connects, or returns nil if that does not succeed at once. An error says
// that it was not tried.
func tryOnce(to netip.AddrPort) (net.Conn, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	err = syscall.Connect(fd, &syscall.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
	state := 0
	if err == nil || errors.Is(err, syscall.EINPROGRESS) {
		// Over the loopback interface the answer has come by now if one comes at all.
		state, err = syscall.GetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_INFO)
	} else if !errors.Is(err, syscall.EADDRNOTAVAIL) {
		err = nil // refused
	}
	const established = 1 // TCP_ESTABLISHED, the first byte of TCP_INFO
	if err != nil || state&0xff != established {
		return nil, errors.Join(err, syscall.Close(fd))
	}
	f := os.NewFile(uintptr(fd), "")
	defer f.Close()
	return net.FileConn(f)
}
