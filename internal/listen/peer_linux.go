package listen

import (
	"net"
	"syscall"
)

// During an overload, many clients give up while they wait in the backlog.
func peerClosed(c net.Conn) (gone bool) {
	withFD(c, func(fd int) {
		const closing = 7 // TCP_CLOSE; TCP_CLOSE_WAIT is 8
		info, err := syscall.GetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_INFO)
		state := info & 0xff // the first byte on a little-endian machine; we build for no others
		gone = err == nil && (state == closing || state == closing+1)
	})
	return gone
}
