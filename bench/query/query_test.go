package query

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"example.org/carstate/internal/test/testkit"
)

func serve(t *testing.T, each func(net.Conn)) (addr string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				each(c)
			}()
		}
	}()
	return l.Addr().String()
}

var anyRequest = [][]byte{[]byte("GET / HTTP/1.1\r\n\r\n")}

func TestTheGeneratorSeesAStall(t *testing.T) {
	const stall = 300 * time.Millisecond
	begin := make(chan struct{})
	var first sync.Once
	addr := serve(t, func(c net.Conn) {
		for buf := make([]byte, 4<<10); ; {
			if _, err := c.Read(buf); err != nil {
				return
			}
			first.Do(func() { time.AfterFunc(stall, func() { close(begin) }) })
			<-begin
			io.WriteString(c, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
		}
	})
	// During the stall, more requests are due than there are connections.
	r, err := generate(addr, anyRequest, 1000, 400*time.Millisecond)
	testkit.NoError(t, err)
	if r.Sent != 400 || r.P50 < stall/4 {
		t.Errorf("got %+v, want the delays of the requests during the stall", r)
	}
}

func TestTheGeneratorRefusesWhatIsNoAnswer(t *testing.T) {
	for _, answer := range []string{"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 200 OK\r\n\r\n", ""} {
		addr := serve(t, func(c net.Conn) {
			c.Read(make([]byte, 100))
			io.WriteString(c, answer)
		})
		if _, err := generate(addr, anyRequest, 1000, 10*time.Millisecond); err == nil {
			t.Errorf("the answer %q: got no error, want one", answer)
		}
	}
}
