package restart

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	carConnections = 4
	samplesInBody  = 500
)

// cars report to a process, each once and one after the other, from the first to
// the last and then again.
type cars struct {
	process *process
	key     string
	from, n int
	next    atomic.Int64
}

// newCars makes cars from..from+n-1 ready to report.
func newCars(ctx context.Context, p *process, source string, from, n int) (*cars, error) {
	key, err := p.AddSource(ctx, source)
	if err != nil {
		return nil, err
	}
	return &cars{process: p, key: key, from: from, n: n}, nil
}

// report sends so many samples and returns when all are acknowledged.
func (c *cars) report(ctx context.Context, samples int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	last := c.next.Load() + int64(samples)
	var running sync.WaitGroup
	for range carConnections {
		running.Go(func() {
			var body bytes.Buffer
			for ctx.Err() == nil {
				first := c.next.Add(samplesInBody) - samplesInBody
				if first >= last {
					return
				}
				body.Reset()
				for i := first; i < first+samplesInBody; i++ {
					fmt.Fprintf(&body, `{"vid":"%s","time":%d,"signals":{"Vehicle.Speed":%d.5,"Vehicle.OBD.ThrottlePosition":17.6,"Vehicle.OBD.EngineSpeed":1850}}`+"\n",
						vid(c.from+int(i)%c.n), time.Now().UnixMilli(), 20+i%30)
				}
				status, _, err := c.process.Post(ctx, c.key, body.String())
				if err == nil && status != http.StatusAccepted {
					err = fmt.Errorf("telemetry was answered with %d", status)
				}
				if err != nil {
					cancel(err)
				}
			}
		})
	}
	running.Wait()
	return context.Cause(ctx)
}
