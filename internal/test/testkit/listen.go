package testkit

import (
	"net"
	"testing"
	"time"
)

func Listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// Dial connects until the test ends. Reads and writes fail after [Patience].
func Dial(t testing.TB, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err == nil {
		err = c.SetDeadline(time.Now().Add(Patience))
	}
	NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}
