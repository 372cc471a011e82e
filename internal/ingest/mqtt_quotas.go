package ingest

import "time"

// Limits of the memory that MQTT messages use.
const (
	readBuffer     = 2 << 10  // bytes of each connection's read buffer
	maxSmallPacket = 16 << 10 // bytes of a packet that is not a PUBLISH
	smallPublish   = 4 << 10  // bytes; a PUBLISH up to this size takes memory from a quota only after its arrival
	maxQueued      = 4 << 20  // bytes of memory of a connection's unacknowledged messages, unless there is only one
)

// packetQuotas are the memory quotas that all MQTT connections share. If too little memory of a
// quota, or of the source's share of it, is free for a packet, nothing is read from the packet's
// connection until enough is free. Sources that wait are served in turn.
//
// There are three quotas, so that slow senders do not keep out messages that have arrived
// completely. A packet takes memory from
//
//  1. receiving, in several steps, while its bytes arrive. For the first step, the packet waits
//     until enough is free. For a later step it does not wait, but uses finishing if too little is
//     free;
//  2. finishing, in one step, for all bytes that are still to arrive. It waits if necessary;
//  3. processing, when it has arrived completely. It waits if necessary.
type packetQuotas struct {
	receiving  *quota // packets that are arriving
	finishing  *quota // the rest of packets for which receiving had too little
	processing *quota // packets that have arrived, and the samples of unacknowledged messages
	grace      time.Duration
}

func newPacketQuotas(maxBytes int, grace time.Duration) *packetQuotas {
	half, eighth := maxBytes/2, maxBytes/16
	return &packetQuotas{newQuota(half - eighth), newQuota(eighth), newQuota(maxBytes - half), grace}
}

func (r *packetQuotas) inUse() int {
	return r.receiving.inUse() + r.finishing.inUse() + r.processing.inUse()
}

// processingBytes returns the maximum memory, in bytes, that a PUBLISH of n bytes needs from its
// arrival to its acknowledgement: messageBytes + n + 9 n. The parts are the message itself, the
// packet, which takes no memory of receiving if it is small, and the samples or user properties
// that are decoded from it. TestProcessingBytes verifies the sum with the most expensive messages.
func processingBytes(n int) int { return messageBytes + 10*n }
