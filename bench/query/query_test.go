package query

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"example.org/carstate/bench/report"
)

// TestMain also runs the programs that the bench starts from its own binary.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "self" {
		if err := Self(os.Args[2:], os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func newTestField(t *testing.T) *field {
	t.Helper()
	return newField(&report.Part{Quick: true, Rounds: 1, Dir: t.TempDir(), Logf: t.Logf})
}

// TestTableAnswers checks that the query server alone gives the answer that every peer must give, and
// that the generator accepts it. The bench checks the other peers before it measures them.
func TestTableAnswers(t *testing.T) {
	f := newTestField(t)
	ctx := context.Background()
	targets := filepath.Join(f.Dir, "targets-table")
	p := f.startSelf(ctx, "table", targets, "table", "-targets", targets, "-vehicles", "1000", "-tokens", "10")
	t.Cleanup(p.stop)
	if err := p.check(ctx); err != nil {
		t.Fatal(err)
	}
	f.generator = f.core
	l := f.runGenerator(ctx, p, 500, 200*time.Millisecond)
	if l.Sent != 100 || l.P50 <= 0 || l.P99 < l.P50 || l.Max < l.P99 {
		t.Errorf("got %+v, want 100 requests with rising latencies", l)
	}
}

// serve listens on a new address until the test ends, and calls each for every connection.
func serve(t *testing.T, each func(net.Conn)) (addr string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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

// TestTheGeneratorSeesAStall checks that a latency is measured from the time at which the request
// was due. So a server that stalls cannot hide the delay of requests.
func TestTheGeneratorSeesAStall(t *testing.T) {
	const stall = 300 * time.Millisecond
	// The server stalls from its first request on, even if the connections took long to open.
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
	if err != nil {
		t.Fatal(err)
	}
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
			t.Errorf("%q was accepted as an answer", answer)
		}
	}
}

func TestRatiosAreByRound(t *testing.T) {
	f := field{Part: &report.Part{Logf: t.Logf}, started: []*peer{{name: expert}, {name: floor}, {name: self}}}
	all := [][]cost{{{cpu: 10}, {cpu: 20}, {cpu: 30}}, {{cpu: 5}, {cpu: 5}, {cpu: 5}},
		{{cpu: 9}, {cpu: 16}, {cpu: 60}}}
	f.ratios(all)
	if r := f.Figures[0]; r.Value != 0.9 || r.Low != 0.8 || r.High != 2 || !*r.Met {
		t.Errorf("got %+v", r)
	}
}
