package restart

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"example.org/carstate/internal/nodeprocess"
)

const (
	// atOnce is the maximum number of requests in progress at a fixed rate.
	atOnce = 32
	// connections is the number of senders that send the next request as soon as the previous
	// one is answered.
	connections = 4
)

// Cars are cars that report to a node one after the other, one sample each, in repeated rounds.
type Cars struct {
	Node *nodeprocess.Node
	Key  string // of a source that may send samples of all cars
	// PerBody is the maximum number of samples in one request. Each of them is of another car.
	PerBody int
	Sent    atomic.Int64
	next    atomic.Int64 // the car that reports next
}

// Drive sends a number of samples, of the cars 0 to cars-1 in turn and perSecond of them a second,
// and returns when all are acknowledged. The rate does not depend on the speed of the node's
// answers, as long as fewer than atOnce requests wait for one. The time of a sample is the time at
// which it was due. If perSecond is 0, a few connections send instead, each as soon as its previous
// request is answered. If a request is not accepted, Drive stops and returns the error; if ctx
// ends, it returns the cause.
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

// appendSample appends the sample of car i for the time at.
func appendSample(b []byte, i int, at time.Time) []byte {
	return fmt.Appendf(b,
		`{"vid":%q,"time":%d,"signals":{"Vehicle.Speed":%.1f,`+
			`"Vehicle.OBD.ThrottlePosition":%.1f,"Vehicle.OBD.EngineSpeed":%d}}`+"\n",
		VID(i), at.UnixMilli(), 20+float64(i%600)/10, 15+float64(i%100)/10, 1500+i%400)
}
