package restart

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"carstate/internal/access"
	"carstate/internal/admin"
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
	key, err := admin.LoadKey(p.dir)
	if err != nil {
		return nil, err
	}
	c := &admin.Client{URL: p.url("admin-addr"), Key: key}
	s, err := c.AddSource(ctx, source, access.AllVehicles(), time.Time{})
	if err != nil {
		return nil, err
	}
	return &cars{process: p, key: s.Key, from: from, n: n}, nil
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
						VID(c.from+int(i)%c.n), time.Now().UnixMilli(), 20+i%30)
				}
				if err := c.post(ctx, &body); err != nil {
					cancel(err)
				}
			}
		})
	}
	running.Wait()
	return context.Cause(ctx)
}

func (c *cars) post(ctx context.Context, body io.Reader) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.process.url("ingest-addr")+"/v1/telemetry", body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	req.Header.Set("Authorization", "Bearer "+c.key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body) // so that the connection is used again
	if resp.StatusCode != http.StatusAccepted {
		return fmt.Errorf("telemetry was answered with %s", resp.Status)
	}
	return nil
}
