package overload

import (
	"net"
	"syscall"
	"testing"
	"unsafe"

	"example.org/carstate/internal/testkit"
)

// TestBacklogFollowsTheLoad checks that the listen backlog is short during an overload, and long
// again after it.
func TestBacklogFollowsTheLoad(t *testing.T) {
	port := testkit.Listen(t)
	l := NewListener(port, overrun(), Queries)
	l.open.Store(2 * minConnections)
	l.Overloaded()
	if n := backlogOf(t, port); n != shortBacklog {
		t.Errorf("backlog under overload: got %d, want %d", n, shortBacklog)
	}
	l.open.Store(0)
	l.Overloaded()
	if n := backlogOf(t, port); n <= shortBacklog {
		t.Errorf("backlog after it: got %d, want more than %d", n, shortBacklog)
	}
}

// backlogOf returns the listen backlog that the kernel uses.
func backlogOf(t *testing.T, l net.Listener) int {
	t.Helper()
	var info [64]byte
	withFD(l, func(fd int) {
		size := uint32(len(info))
		_, _, e := syscall.Syscall6(syscall.SYS_GETSOCKOPT, uintptr(fd), syscall.IPPROTO_TCP, syscall.TCP_INFO,
			uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
		if e != 0 {
			t.Fatalf("getsockopt: %v", e)
		}
	})
	const sacked = 28 // the offset of tcpi_sacked, which for a listener is its backlog
	return int(*(*uint32)(unsafe.Pointer(&info[sacked])))
}
