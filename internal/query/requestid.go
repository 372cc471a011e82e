package query

import (
	"crypto/rand"
	"strconv"
	"sync/atomic"
)

// requestIDs makes the values of X-Request-Id: a prefix drawn for this process
// and a counter. They are unique and say nothing about the request.
type requestIDs struct {
	prefix string
	last   atomic.Uint64
}

func newRequestIDs() *requestIDs {
	return &requestIDs{prefix: rand.Text()[:12] + "-"}
}

func (r *requestIDs) append(b []byte) []byte {
	return strconv.AppendUint(append(b, r.prefix...), r.last.Add(1), 36)
}
