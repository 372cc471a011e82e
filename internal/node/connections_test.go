package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"carstate/internal/access"
	"carstate/internal/fleet"
	"carstate/internal/ingest"
	"carstate/internal/overload"
	"carstate/internal/query"
	"carstate/internal/testkit"
)

// countedServer is a server behind a listener that sheds load, and that counts the
// connections it has handed out.
type countedServer struct {
	*overload.Listener
	open     atomic.Int64
	shutdown func(context.Context) error
	ended    chan error
}

// Accept counts the connection until it is closed.
func (s *countedServer) Accept() (net.Conn, error) {
	c, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	s.open.Add(1)
	return &countedConn{tcpConn: c.(tcpConn), of: s}, nil
}

type countedConn struct {
	tcpConn
	of   *countedServer
	once sync.Once
}

func (c *countedConn) NetConn() net.Conn { return c.tcpConn }

func (c *countedConn) Close() error {
	c.once.Do(func() { c.of.open.Add(-1) })
	return c.tcpConn.Close()
}

// startCounted serves queries or telemetry on a port of its own. The bounds say whether
// it is overloaded.
func startCounted(t *testing.T, name string, b overload.Bounds, c *tls.Config) *countedServer {
	t.Helper()
	port, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := overload.NewListener(port, new(overload.Probe), b)
	s := &countedServer{Listener: l, ended: make(chan error, 1)}
	if name == "query" {
		q := query.New(query.Config{Tokens: new(access.Tokens), Fleet: fleet.New(), Overloaded: l.Overloaded, Excess: l.Excess, TLS: c, HeadTimeout: time.Minute})
		s.shutdown = q.Shutdown
		go func() { s.ended <- q.Serve(s) }()
		return s
	}
	door := newHalfOpen(s, c != nil)
	h := ingest.NewHTTP(ingest.Config{Sources: new(access.Sources), Overloaded: l.Overloaded, Excess: l.Excess, TLS: c})
	s.shutdown = func(ctx context.Context) error { door.closeWaiting(); return h.Shutdown(ctx) }
	go func() { s.ended <- h.Serve(door) }()
	return s
}

// opens waits until no more connections than that count as open, and no less than none.
func (s *countedServer) opens(t *testing.T, most int64) {
	t.Helper()
	if err := until(time.Minute, func() error {
		if n := s.open.Load(); n < 0 || n > most {
			return fmt.Errorf("%d connections count as open, want at most %d", n, most)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// However a connection ends, its server closes it, and no overload keeps the server
// from ending.
func TestEveryConnectionIsClosed(t *testing.T) {
	certFile, keyFile, roots := testkit.Certificate(t)
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"query", "ingest"} {
		// No delay is below the bounds of the second.
		for what, bounds := range map[string]overload.Bounds{"at rest": overload.Queries, "overloaded": {MaxMean: -1, Target: -1}} {
			for _, c := range []*tls.Config{nil, {Certificates: []tls.Certificate{pair}}} {
				t.Run(fmt.Sprintf("%s %s %t", name, what, c != nil), func(t *testing.T) {
					t.Parallel()
					countsAll(t, startCounted(t, name, bounds, c), c != nil, roots)
				})
			}
		}
	}
}

func countsAll(t *testing.T, s *countedServer, secure bool, roots *x509.CertPool) {
	address := s.Addr().String()
	const silent = 129 // one more than an overloaded listener always admits
	mute := make([]net.Conn, 0, silent)
	defer func() {
		for _, c := range mute {
			c.Close()
		}
	}()
	if err := until(time.Minute, func() error {
		// On a machine that stands still some are closed meanwhile, for their silence.
		mute = slices.DeleteFunc(mute, ended)
		for len(mute) < silent {
			c, err := net.Dial("tcp", address)
			if err != nil {
				return err
			}
			mute = append(mute, c)
		}
		if n := s.open.Load(); n != silent {
			return fmt.Errorf("%d connections count as open, want %d", n, silent)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	const get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	ends := map[string]func(plain net.Conn, c net.Conn) error{
		"silent": func(net.Conn, net.Conn) error { return nil },
		"reset": func(plain, c net.Conn) error {
			_, _ = io.WriteString(c, get)
			return plain.(*net.TCPConn).SetLinger(0)
		},
		"half a head": func(_, c net.Conn) error { _, _ = io.WriteString(c, "GET / HT"); return nil },
		"nonsense": func(plain, _ net.Conn) error {
			_, _ = io.WriteString(plain, "\x00\x01\x02\r\n\r\n")
			_, _ = io.Copy(io.Discard, plain)
			return nil
		},
		"asked": func(_, c net.Conn) error {
			_, _ = io.WriteString(c, get)
			_, _ = c.Read(make([]byte, 100))
			return nil
		},
		"old": func(_, c net.Conn) error {
			_, _ = io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
			_, _ = io.Copy(io.Discard, c)
			return nil
		},
		"pipelined": func(_, c net.Conn) error { _, _ = io.WriteString(c, strings.Repeat(get, 50)); return nil },
		"half closed": func(plain, c net.Conn) error {
			_, _ = io.WriteString(c, get)
			err := plain.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, c)
			if errors.Is(err, syscall.ENOTCONN) { // it had been waited for too long
				err = nil
			}
			return err
		},
	}
	var all sync.WaitGroup
	for how, end := range ends {
		for range 5 {
			all.Go(func() {
				plain, err := net.Dial("tcp", address)
				if err != nil {
					t.Error(err)
					return
				}
				defer plain.Close()
				_ = plain.SetDeadline(time.Now().Add(time.Minute))
				c := plain
				if secure && how != "nonsense" {
					c = tls.Client(plain, &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"})
				}
				if err := end(plain, c); err != nil {
					t.Errorf("%s: %v", how, err)
				}
			})
		}
	}
	all.Wait()
	s.opens(t, silent)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.shutdown(ctx); err != nil && !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	<-s.ended
	s.opens(t, 0)
}

// ended reports whether the other side has closed a connection on which nothing comes,
// and then closes it.
func ended(c net.Conn) bool {
	_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := c.Read(make([]byte, 1))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	_ = c.Close()
	return true
}
