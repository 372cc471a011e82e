//go:build !linux

package listen

import "net"

// peerClosed returns false, because only Linux has TCP_INFO with the state of a connection. So on
// other systems an overloaded listener also accepts connections whose clients have given up.
func peerClosed(net.Conn) bool { return false }
