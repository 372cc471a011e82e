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

// append draws a number and writes the ID.
func (r *requestIDs) append(b []byte) (_ []byte, n uint64) {
	n = r.last.Add(1)
	return strconv.AppendUint(append(b, r.prefix...), n, 36), n
}
