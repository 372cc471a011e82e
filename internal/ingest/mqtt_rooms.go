package ingest

import "time"

// Limits of what the messages of MQTT hold in memory.
const (
	readBuffer     = 2 << 10  // bytes of each connection's read buffer
	maxSmallPacket = 16 << 10 // bytes of a packet that is no PUBLISH
	unaccounted    = 4 << 10  // bytes of a PUBLISH that count as part of the connection until they are all there
	maxQueued      = 4 << 20  // bytes of memory that a connection's unanswered messages may hold; one message always may
)

// rooms are the memory that all connections share. When a room is full, or a source's
// share of it, connections that want more of it are not read from, in turn, until there is
// some again.
//
// There are three, so that senders who are slow do not keep out those whose messages have
// arrived. They are taken in this order, and a connection that holds some of the last one
// waits for nothing but the store, which has a time limit. A packet gets its part of
// receiving as its bytes come. One that has a part and cannot get more gets all the rest
// from finishing, and so never waits there for others that wait for receiving. So what is
// full empties.
type rooms struct {
	receiving  *budget // packets that are on their way
	finishing  *budget // the rest of packets that found receiving full
	processing *budget // packets that have arrived, and the samples of unanswered messages
	grace      time.Duration
}

func newRooms(maxBytes int, grace time.Duration) *rooms {
	half, eighth := maxBytes/2, maxBytes/16
	return &rooms{newBudget(half - eighth), newBudget(eighth), newBudget(maxBytes - half), grace}
}

func (r *rooms) taken() int {
	return r.receiving.taken() + r.finishing.taken() + r.processing.taken()
}

// processingBytes is what the library and we need at most for a PUBLISH of n
// bytes from its arrival to its answer: the library's second copy, and for each
// byte of that no more than 9 of samples or, which are the library's, of user
// properties. TestProcessingBytes holds it against the worst messages.
func processingBytes(n int) int { return messageBytes + 10*n }
