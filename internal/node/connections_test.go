package node_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/fleet"
	"example.org/carstate/internal/ingest"
	"example.org/carstate/internal/listen"
	"example.org/carstate/internal/node"
	"example.org/carstate/internal/query"
	"example.org/carstate/internal/test/testkit"
)

type countedServer struct {
	net.Listener
	open     atomic.Int64
	shutdown func(context.Context) error
	ended    chan error
}

func (s *countedServer) Accept() (net.Conn, error) {
	c, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	s.open.Add(1)
	return &countedConn{TCPConn: c.(*net.TCPConn), of: s}, nil
}

type countedConn struct {
	*net.TCPConn
	of   *countedServer
	once sync.Once
}

func (c *countedConn) Close() error {
	c.once.Do(func() { c.of.open.Add(-1) })
	return c.TCPConn.Close()
}

func startCounted(t *testing.T, name string, b listen.Bounds, c *tls.Config) *countedServer {
	t.Helper()
	s := &countedServer{Listener: testkit.Listen(t), ended: make(chan error, 1)}
	limit := listen.NewLimit(new(listen.Probe), b)
	log, registry := slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	if name == "query" {
		q := query.New(query.Config{Tokens: new(access.Tokens), Fleet: fleet.New(), Limit: limit,
			Log: log, Registry: registry, TLS: c, HeadTimeout: time.Minute})
		s.shutdown = q.Shutdown
		go func() { s.ended <- q.Serve(s) }()
		return s
	}
	h := ingest.NewHTTP(ingest.Config{Sources: new(access.Sources), Ready: func() error { return nil },
		Limit: limit, Log: log, Registry: registry, TLS: c})
	s.shutdown = h.Shutdown
	go func() { s.ended <- h.Serve(s) }()
	return s
}

func (s *countedServer) opens(t *testing.T, most int64) {
	t.Helper()
	if err := until(time.Minute, func() error {
		if n := s.open.Load(); n < 0 || n > most {
			return fmt.Errorf("%d connections count as open, want at most %d", n, most)
		}
		return nil
	}); err != nil {
		t.Errorf("the connections: got %v, want no error", err)
	}
}

// A server closes a connection, however its client ends it, and an overloaded one can be shut down.
func TestEveryConnectionIsClosed(t *testing.T) {
	certFile, keyFile, roots := testkit.Certificate(t)
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	testkit.NoError(t, err)
	for _, name := range []string{"query", "ingest"} {
		// Every delay exceeds the bounds of the second listener, so it is always overloaded.
		for what, bounds := range map[string]listen.Bounds{"at rest": listen.Queries,
			"overloaded": {MaxMean: -1, Target: -1, Least: 128, Idle: time.Hour}} {
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
	const silent = 129
	mute := make([]net.Conn, 0, silent)
	defer func() {
		for _, c := range mute {
			c.Close()
		}
	}()
	if err := until(time.Minute, func() error {
		// A slow machine may have closed some of the silent connections after their timeout.
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
		t.Fatalf("the connections: got %v, want no error", err)
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
			if errors.Is(err, syscall.ENOTCONN) {
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
					t.Errorf("Dial: got %v, want no error", err)
					return
				}
				defer plain.Close()
				_ = plain.SetDeadline(time.Now().Add(time.Minute))
				c := plain
				if secure && how != "nonsense" {
					c = tls.Client(plain, &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"})
				}
				if err := end(plain, c); err != nil {
					t.Errorf("%s: got %v, want no error", how, err)
				}
			})
		}
	}
	all.Wait()
	s.opens(t, silent)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.shutdown(ctx); err != nil && !errors.Is(err, net.ErrClosed) {
		t.Errorf("Shutdown: got %v, want no error or %v", err, net.ErrClosed)
	}
	<-s.ended
	s.opens(t, 0)
}

func ended(c net.Conn) bool {
	_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := c.Read(make([]byte, 1))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	_ = c.Close()
	return true
}

// The limit on the kernel's send buffer reaches each connection through all layers.
func TestAnswersThatAreNotReadAreBounded(t *testing.T) {
	certFile, keyFile, roots := testkit.Certificate(t)
	for name, secure := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			config := configOf(t)
			if secure {
				config.TLSCert, config.TLSKey = certFile, keyFile
				for i := range config.Listeners {
					config.Listeners[i].TLS = config.Listeners[i].Name != node.AdminAddr
				}
			}
			n := startNode(t, config)
			for flag, want := range map[string]int{node.QueryAddr: 64 << 10, node.IngestAddr: 32 << 10} {
				c, err := net.Dial("tcp", n.Addr(flag).String())
				testkit.NoError(t, err)
				defer c.Close()
				talk := c
				if secure {
					talk = tls.Client(c, &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"})
				}
				testkit.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
				_, err = io.WriteString(talk, "GET /none HTTP/1.1\r\nHost: a\r\n\r\n")
				testkit.NoError(t, err)
				_, err = io.ReadFull(talk, make([]byte, 12))
				testkit.NoError(t, err)
				got, err := sendBufferTo(c.LocalAddr())
				if err != nil || got != 2*want { // Linux doubles it for its own bookkeeping
					t.Errorf("%s keeps %d bytes, %v, want %d", flag, got, err, 2*want)
				}
			}
		})
	}
}

func sendBufferTo(peer net.Addr) (int, error) {
	want, err := netip.ParseAddrPort(peer.String())
	if err != nil {
		return 0, err
	}
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0, err
	}
	for _, file := range files {
		fd, err := strconv.Atoi(file.Name())
		if err != nil {
			return 0, err
		}
		name, err := syscall.Getpeername(fd)
		if err != nil {
			continue // not a connection
		}
		if p, ok := name.(*syscall.SockaddrInet4); ok && netip.AddrPortFrom(netip.AddrFrom4(p.Addr), uint16(p.Port)) == want {
			return syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_SNDBUF)
		}
	}
	return 0, errors.New("there is no connection to " + peer.String())
}
