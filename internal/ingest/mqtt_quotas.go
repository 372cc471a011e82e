package ingest

import "time"

// Limits of memory, in bytes.
const (
	readBuffer     = 2 << 10
	maxSmallPacket = 16 << 10 // of one that is no PUBLISH
	smallPublish   = 4 << 10  // up to which a PUBLISH takes memory only after its arrival
	maxQueued      = 4 << 20  // of a connection's unacknowledged messages, unless there is only one
)

// packetQuotas are the quotas of all connections. While a packet finds too little memory, nothing
// is read from its connection. There are three, so that slow senders do not keep out what has
// arrived: receiving grows with the bytes, and waits only at the first step; then finishing has all
// that is still to arrive; processing is for what is complete.
type packetQuotas struct {
	receiving  *quota // packets that are arriving
	finishing  *quota // what receiving had no room for
	processing *quota // packets that have arrived, and unacknowledged samples
	grace      time.Duration
}

func newPacketQuotas(maxBytes int, grace time.Duration) *packetQuotas {
	half, eighth := maxBytes/2, maxBytes/16
	return &packetQuotas{newQuota(half - eighth), newQuota(eighth), newQuota(maxBytes - half), grace}
}

func (r *packetQuotas) inUse() int {
	return r.receiving.inUse() + r.finishing.inUse() + r.processing.inUse()
}

// processingBytes is the most that a PUBLISH of n bytes needs: messageBytes, the packet, and 9 n
// for what is decoded from it (TestProcessingBytes).
func processingBytes(n int) int { return messageBytes + 10*n }
