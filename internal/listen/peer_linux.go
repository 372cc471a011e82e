package listen

import (
	"net"
	"syscall"
)

// peerClosed reports whether the client of a TCP connection will send no more, because it has
// closed the connection or only its sending side. In both cases the client is taken to have given
// up. Many clients give up during an overload, while their connections wait in the listen backlog.
func peerClosed(c net.Conn) (gone bool) {
	withFD(c, func(fd int) {
		const closing = 7 // TCP_CLOSE; TCP_CLOSE_WAIT is 8
		info, err := syscall.GetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_INFO)
		state := info & 0xff // the first byte, on little-endian machines; we build for no others
		gone = err == nil && (state == closing || state == closing+1)
	})
	return gone
}
