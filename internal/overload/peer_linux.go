package overload

import (
	"net"
	"syscall"
)

// peerClosed reports whether the other side of a TCP connection will send no more. A
// client that waited in the backlog for long has often gone; one that has closed only
// its sending side is taken for gone too.
func peerClosed(c net.Conn) (gone bool) {
	withFD(c, func(fd int) {
		const closing = 7 // TCP_CLOSE; TCP_CLOSE_WAIT is 8
		info, err := syscall.GetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_INFO)
		state := info & 0xff // the first byte, on the machines that we are built for
		gone = err == nil && (state == closing || state == closing+1)
	})
	return gone
}
