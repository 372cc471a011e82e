//go:build !linux

package overload

import "net"

// peerClosed returns false: only Linux has TCP_INFO with the state of a connection. On other
// systems an overloaded listener accepts a connection whose client has gone, like any other.
func peerClosed(net.Conn) bool { return false }
