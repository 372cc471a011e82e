package overload

import (
	"net"
	"syscall"
)

// peerClosed reports whether the client of a TCP connection will send no more. Many clients give up
// while their connections wait long in the listen backlog. A client that has closed only its
// sending side is treated as if it had given up.
func peerClosed(c net.Conn) (gone bool) {
	withFD(c, func(fd int) {
		const closing = 7 // TCP_CLOSE; TCP_CLOSE_WAIT is 8
		info, err := syscall.GetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_INFO)
		state := info & 0xff // the first byte, on little-endian machines; we build for no others
		gone = err == nil && (state == closing || state == closing+1)
	})
	return gone
}
