package sample

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"carstate/bench/must"
	"carstate/internal/nodeprocess"
)

// sender posts NDJSON to a node.
type sender struct {
	client *fasthttp.HostClient
	auth   string
	url    string
}

func newSender(addr, key string, connections int) *sender {
	return &sender{
		client: &fasthttp.HostClient{
			Addr: addr, MaxConns: connections, MaxConnWaitTimeout: time.Minute,
			ReadTimeout: time.Minute, WriteTimeout: time.Minute,
			// Do not retry, because a sample that was not acknowledged is a failure.
			MaxIdemponentCallAttempts: 1,
		},
		auth: "Bearer " + key,
		url:  "http://" + addr + "/v1/telemetry",
	}
}

// post sends a body and returns once it is acknowledged.
func (s *sender) post(body []byte) {
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.Header.SetMethod(http.MethodPost)
	req.SetRequestURI(s.url)
	req.Header.SetContentType("application/x-ndjson")
	req.Header.Set("Authorization", s.auth)
	req.SetBodyRaw(body)
	must.Do(s.client.Do(req, resp))
	if resp.StatusCode() != http.StatusAccepted {
		must.Fail("telemetry was answered with %d", resp.StatusCode())
	}
}

// flood is the result of sending full bodies in a closed loop.
type flood struct {
	rate   float64       // samples acknowledged per second
	cpu    time.Duration // of the node, per sample, until all samples were folded
	commit float64       // samples per group commit
	states float64       // states stored per sample
	drain  time.Duration // from the last acknowledgement until all samples were folded
}

// floodBodies returns the bodies for a number of cars, with perCar samples each.
func floodBodies(cars, perCar int) []*body {
	const perBody = 1000 // cars
	bodies := make([]*body, (cars+perBody-1)/perBody)
	for i := range bodies {
		bodies[i] = newBody(i*perBody, min(perBody, cars-i*perBody), perCar)
	}
	return bodies
}

// send sends bodies over a number of connections, and returns how many samples were acknowledged.
// Each connection sends the next body when the previous one is answered. All samples of a car use
// the same connection.
func (s *sender) send(ctx context.Context, bodies []*body, connections int, lasting time.Duration) int {
	start := time.Now()
	var sent atomic.Int64
	connections = min(connections, len(bodies))
	together(connections, func(worker int) {
		for round := 0; ; round++ {
			for i := worker; i < len(bodies); i += connections {
				must.Do(ctx.Err())
				if time.Since(start) > lasting {
					return
				}
				// The times of the samples begin two minutes ago, because samples
				// may be sent faster than their times advance.
				b := bodies[i]
				b.stamp(start.Add(-2*time.Minute + time.Duration(round*b.perCar)*step))
				s.post(b.text)
				sent.Add(int64(b.samples()))
			}
		}
	})
	return int(sent.Load())
}

// runFlood sends bodies to a node for a while and waits until all samples are folded.
func runFlood(ctx context.Context, n *node, bodies []*body, connections int, lasting time.Duration) flood {
	s := newSender(n.Address(nodeprocess.Ingest), n.key, connections)
	defer s.client.CloseIdleConnections()
	before := must.Get(n.Metrics(ctx))
	cpu0 := must.Get(n.CPU())
	start := time.Now()
	sent := s.send(ctx, bodies, connections, lasting)
	took := time.Since(start)
	after := must.Get(n.AwaitMetrics(ctx, 2*time.Minute, func(m nodeprocess.Metrics) bool {
		return since(before, m, "carstate_samples_folded_total") >= float64(sent)
	}))
	drain := time.Since(start) - took
	cpu1 := must.Get(n.CPU())
	return flood{
		rate:   float64(sent) / took.Seconds(),
		cpu:    (cpu1 - cpu0) / time.Duration(sent),
		commit: since(before, after, "carstate_commit_samples_sum") / since(before, after, "carstate_commit_samples_count"),
		states: since(before, after, "carstate_states_stored_total") / float64(sent),
		drain:  drain,
	}
}

// together runs f in n goroutines and waits for all. If any of them fails, the measurement ends.
func together(n int, f func(i int)) {
	var running sync.WaitGroup
	errs := make(chan error, n)
	for i := range n {
		running.Go(func() { errs <- must.Caught(func() { f(i) }) })
	}
	running.Wait()
	close(errs)
	for err := range errs {
		must.Do(err)
	}
}
