package listen_test

import (
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"example.org/carstate/internal/listen"
	"example.org/carstate/internal/test/testkit"
)

// Silent and sending ones go first, then idle ones, then those silent just now; held ones never.
func TestEvict_Order(t *testing.T) {
	var dropped atomic.Int64
	l := guard(t, listen.Config{Max: 8, Dropped: func() { dropped.Add(1) }})
	clients := 0
	connect := func() pair { // an address of its own, and so a small share
		t.Helper()
		clients++
		from := &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(1+clients))}
		c, err := (&net.Dialer{LocalAddr: from, Timeout: testkit.Patience}).Dial("tcp", l.Addr().String())
		testkit.NoError(t, err)
		return accept(t, l, c)
	}
	all := make([]pair, 8)
	for i := range all {
		all[i] = connect()
		all[i].Become(listen.Held)
	}
	silent, idle, unread := all[1], all[4], all[6]
	silent.Send(time.Now().Add(time.Hour)) // not silent for long
	silent.Become(listen.Silent)
	idle.Become(listen.Idle)
	unread.Send(time.Now().Add(-time.Minute))
	for i, want := range []pair{unread, idle, silent} {
		connect().Become(listen.Held)
		want.wantsEnd(t, fmt.Sprint("eviction ", i))
	}
	if c, err := net.Dial("tcp", l.Addr().String()); err == nil {
		defer c.Close()
		go func() { _, _ = l.Accept() }()
		pair{nil, c}.wantsEnd(t, "one too many")
	}
	if n := dropped.Load(); n != 4 {
		t.Errorf("got %d dropped connections, want 4", n)
	}
}

func TestBacklogFollowsTheLoad(t *testing.T) {
	port := testkit.Listen(t)
	l := listen.New(listen.Config{Max: 100, Limit: overloaded(2)}).Listener(port)
	for range 2 {
		defer connect(t, l).Close()
	}
	last := connect(t, l)
	if n := backlogOf(t, port); n != 16 {
		t.Errorf("backlog under overload: got %d, want 16", n)
	}
	_ = last.Close()
	for range 2 {
		_ = connect(t, l).Close()
	}
	if n := backlogOf(t, port); n != 16 {
		t.Errorf("backlog at the limit: got %d, want 16", n)
	}
}

func backlogOf(t *testing.T, l net.Listener) int {
	t.Helper()
	raw, err := l.(*net.TCPListener).SyscallConn()
	testkit.NoError(t, err)
	var info [64]byte
	testkit.NoError(t, raw.Control(func(fd uintptr) {
		size := uint32(len(info))
		if _, _, e := syscall.Syscall6(syscall.SYS_GETSOCKOPT, fd, syscall.IPPROTO_TCP, syscall.TCP_INFO,
			uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0); e != 0 {
			t.Errorf("getsockopt: got %v, want no error", e)
		}
	}))
	const sacked = 28 // tcpi_sacked, which is the backlog of a listener
	return int(*(*uint32)(unsafe.Pointer(&info[sacked])))
}
