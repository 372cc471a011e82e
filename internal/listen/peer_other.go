//go:build !linux

package listen

import "net"

// Only Linux has TCP_INFO, so others also accept connections whose clients have given up.
func peerClosed(net.Conn) bool { return false }
