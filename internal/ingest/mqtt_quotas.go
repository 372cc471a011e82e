package ingest

import "example.org/carstate/internal/telemetry"

const (
	messageBytes   = 512 // memory of a message without its samples, estimated
	readBuffer     = 2 << 10
	maxSmallPacket = 16 << 10 // of one that is no PUBLISH
	smallPublish   = 4 << 10  // up to which a PUBLISH takes memory only after its arrival
	maxQueued      = 4 << 20  // of a connection's unacknowledged messages, unless there is only one
)

// packetQuotas: see DESIGN.md, "Three parts".
type packetQuotas struct {
	receiving  *quota // packets that are arriving
	finishing  *quota // what receiving had no room for
	processing *quota // packets that have arrived, and unacknowledged samples
}

func (r *packetQuotas) inUse() int {
	return r.receiving.inUse() + r.finishing.inUse() + r.processing.inUse()
}

func processingBytes(n int) int { return messageBytes + n + telemetry.Growth*n }
