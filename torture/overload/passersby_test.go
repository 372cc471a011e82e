package overload

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"
)

// send has passers-by send what is due now.
func send(c *crowd, n int) {
	for range n {
		c.mu.Lock()
		c.passing <- time.Now()
		c.mu.Unlock()
	}
}

// A passer-by who is let in becomes a user. Where the kernel is slow to answer, not
// each of them is.
func TestPassersByAreLetIn(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "yes") }))
	defer s.Close()
	c := &crowd{
		addr:    strings.TrimPrefix(s.URL, "http://"),
		request: func(b []byte, _ int) []byte { return append(b, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"...) },
		good:    func(status int, body []byte) bool { return status == 200 && string(body) == "yes" },
		open:    true,
	}
	stop := c.passBy()
	send(c, 3)
	stop()
	c.await(t.Context(), time.Now().Add(time.Minute))
	connected := len(c.idle)
	c.leave()
	if r := c.take(); connected == 0 || connected+r.away != 3 || r.good != connected || r.connected != connected || r.unsent != 0 {
		t.Errorf("%d are connected: %+v", connected, r)
	}
}

// Who is not let in at once is counted, whether nobody listens or too many wait.
func TestPassersByAreTurnedAway(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	raw, err := l.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) { err = syscall.Listen(int(fd), 1) }); err != nil {
		t.Fatal(err)
	}
	to := netip.MustParseAddrPort(l.Addr().String())
	inside := 0
	for range 8 { // nobody accepts them
		conn, err := tryOnce(to)
		if err != nil {
			t.Fatal(err)
		}
		if conn != nil {
			inside++
			defer conn.Close()
		}
	}
	if inside < 1 || inside > 4 {
		t.Errorf("%d of 8 were let in where one may wait", inside)
	}
	_ = l.Close()
	c := &crowd{addr: to.String(), open: true}
	stop := c.passBy()
	send(c, 3)
	stop()
	if r := c.take(); r.away != 3 || r.unsent != 0 || len(c.users) != 0 {
		t.Errorf("where nobody listens: %+v", r)
	}
}
