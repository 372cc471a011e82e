package node

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"carstate/internal/testkit"
)

// TestAnswersThatAreNotReadAreBounded: the bound on what the kernel keeps of answers
// reaches each connection through all that a node puts over it.
func TestAnswersThatAreNotReadAreBounded(t *testing.T) {
	certFile, keyFile, roots := testkit.Certificate(t)
	for name, secure := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			config := configOf(t)
			if secure {
				config.TLSCert, config.TLSKey = certFile, keyFile
				for i := range config.Listeners {
					config.Listeners[i].TLS = config.Listeners[i].Name != AdminAddr
				}
			}
			n := startNode(t, config)
			for flag, want := range map[string]int{QueryAddr: 64 << 10, IngestAddr: 32 << 10} {
				c, err := net.Dial("tcp", n.Addr(flag).String())
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				talk := c
				if secure {
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
