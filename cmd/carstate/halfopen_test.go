package main

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"carstate/internal/nodeprocess"
)

// TestAnswersThatAreNotReadAreBounded: the bound on what the kernel keeps of answers
// reaches each connection through all that a node puts over it.
func TestAnswersThatAreNotReadAreBounded(t *testing.T) {
	certFile, keyFile, roots := certificate(t)
	f := defaults()
	f.DataDir = t.TempDir()
	f.QueryAddr, f.IngestAddr, f.MqttAddr, f.AdminAddr = "127.0.0.1:0", "127.0.0.1:0", "", "127.0.0.1:0"
	for name, files := range map[string][2]string{"plain": {}, "TLS": {certFile, keyFile}} {
		t.Run(name, func(t *testing.T) {
			f.TLSCert, f.TLSKey = files[0], files[1]
			s, err := startService(t.Context(), f, slog.New(slog.DiscardHandler), func(address) bool { return false })
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := s.close(); err != nil {
					t.Error(err)
				}
			}()
			for flag, want := range map[string]int{"--query-addr": 64 << 10, "--ingest-addr": 32 << 10} {
				c, err := net.Dial("tcp", s.ports[flag].Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				talk := c
				if f.TLSCert != "" {
					talk = tls.Client(c, &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"})
				}
				if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
					t.Fatal(err)
				}
				if _, err := io.WriteString(talk, "GET /none HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(talk, make([]byte, 12)); err != nil {
					t.Fatal(err)
				}
				got, err := sendBufferTo(c.LocalAddr())
				if err != nil || got != 2*want { // Linux doubles it, for what it needs itself
					t.Errorf("%s keeps %d bytes, %v, want %d", flag, got, err, 2*want)
				}
			}
		})
	}
}

// TestARefusalEndsInPeace: who is refused before all that he sends was read is told
// where the answer ends, and not that the connection was reset. net/http waits for
// half a second in between, so one try of many must be soon enough.
func TestARefusalEndsInPeace(t *testing.T) {
	p := start(t, t.TempDir())
	const tries = 20
	for i := range tries {
		c, err := net.Dial("tcp", p.Address(nodeprocess.Ingest))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, "POST /v1/telemetry HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n"+strings.Repeat("x", 20_000)); err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(c)
		if !bytes.HasPrefix(text, []byte("HTTP/1.1 401 ")) {
			t.Fatalf("it was answered %q", text)
		}
		if err == nil {
			return
		}
		t.Logf("try %d: %v", i, err)
	}
	t.Error("no answer ended in peace")
}

// sendBufferTo is how much the kernel keeps for the connection of this process to an
// address.
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
			continue // no connection
		}
		if p, ok := name.(*syscall.SockaddrInet4); ok && netip.AddrPortFrom(netip.AddrFrom4(p.Addr), uint16(p.Port)) == want {
			return syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_SNDBUF)
		}
	}
	return 0, errors.New("there is no connection to " + peer.String())
}
