package restart

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"carstate/internal/nodeprocess"
)

const (
	// atOnce bounds the requests in progress at a fixed rate.
	atOnce = 32
	// connections is the number of senders that send as fast as they are answered.
	connections = 4
)

// Cars are cars that report to a node in turn, one sample each, round after round.
type Cars struct {
	Node *nodeprocess.Node
	Key  string // of a source that may send samples of all cars
	// PerBody is the maximum number of samples, each of another car, in one request.
	PerBody int
	Sent    atomic.Int64
	next    atomic.Int64 // the car that reports next
}

// Drive sends samples of a number of cars at a fixed rate, however fast the node answers,
// and returns when all are acknowledged. A sample's time is the time at which it was due.
// If perSecond is 0, a few connections send as fast as they are answered.
func (c *Cars) Drive(ctx context.Context, cars int, perSecond float64, samples int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	body, workers := min(c.PerBody, max(1, int(perSecond/10))), atOnce
	if perSecond == 0 {
		body, workers = c.PerBody, connections
	}
	start := time.Now()
	var begun atomic.Int64 // samples that a worker has taken for sending
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			var text []byte
			for ctx.Err() == nil {
				first := int(begun.Add(int64(body))) - body
				n := min(body, samples-first)
				if n <= 0 {
					return
				}
				due := time.Now()
				if perSecond > 0 {
					due = start.Add(time.Duration(float64(first) / perSecond * float64(time.Second)))
					select {
					case <-ctx.Done():
						return
					case <-time.After(time.Until(due)):
					}
				}
				text = text[:0]
				car := int(c.next.Add(int64(n))) - n
				for i := range n {
					text = appendSample(text, (car+i)%cars, due)
				}
				status, said, err := c.Node.Post(ctx, c.Key, string(text))
				if err == nil && status != http.StatusAccepted {
					err = fmt.Errorf("telemetry was answered with %d: %s", status, said)
				}
				if err != nil {
					cancel(err)
					return
				}
				c.Sent.Add(int64(n))
			}
		})
	}
	running.Wait()
	return context.Cause(ctx)
}

// appendSample appends the sample of car i at a time.
func appendSample(b []byte, i int, at time.Time) []byte {
	return fmt.Appendf(b,
		`{"vid":%q,"time":%d,"signals":{"Vehicle.Speed":%.1f,`+
			`"Vehicle.OBD.ThrottlePosition":%.1f,"Vehicle.OBD.EngineSpeed":%d}}`+"\n",
		VID(i), at.UnixMilli(), 20+float64(i%600)/10, 15+float64(i%100)/10, 1500+i%400)
}
