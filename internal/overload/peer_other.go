//go:build !linux

package overload

import "net"

// peerClosed returns false, because only Linux has TCP_INFO with the state of a connection. On
// other systems an overloaded listener also accepts connections whose clients have gone.
func peerClosed(net.Conn) bool { return false }
