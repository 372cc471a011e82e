package sample

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"example.org/carstate/bench/must"
	"example.org/carstate/internal/nodeprocess"
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

// post sends a body and returns once it is acknowledged. While the source has too much unfolded, it
// sends the body again. Any other answer ends the measurement.
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
	for ; resp.StatusCode() == http.StatusTooManyRequests; must.Do(s.client.Do(req, resp)) {
		time.Sleep(10 * time.Millisecond)
	}
	if resp.StatusCode() != http.StatusAccepted {
		must.Fail("telemetry was answered with %d", resp.StatusCode())
	}
}

// flood is the result of sending full bodies in a closed loop.
type flood struct {
	rate   float64       // samples acknowledged per second
	cpu    time.Duration // of the node, per sample, until all samples were folded
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

// send sends bodies over a number of connections, again and again until the time lasting has
// passed, and returns how many samples were acknowledged. Each connection sends the next body when
// the previous one is answered. All samples of a car use the same connection.
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

// runFlood sends bodies to a node for the time lasting and waits, for two minutes at most, until
// all samples are folded.
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
		states: since(before, after, "carstate_states_stored_total") / float64(sent),
		drain:  drain,
	}
}

// body is an NDJSON text. Only its times change from one request to the next, so the sender needs
// almost no CPU to prepare it.
type body struct {
	text   []byte
	times  []int // offset of each sample's time in text, in order
	perCar int   // samples of one car, consecutive
}

// timeText is the format of a time: RFC 3339 with milliseconds.
const timeText = "2006-01-02T15:04:05.000Z"

// step is the time between two samples of one car.
const step = 100 * time.Millisecond

// newBody returns a body of the cars first, first+1, …, with perCar samples each.
func newBody(first, cars, perCar int) *body {
	b := &body{perCar: perCar}
	for c := range cars {
		for range perCar {
			b.text = append(b.text, `{"vid":"`...)
			b.text = append(b.text, vid(first+c)...)
			b.text = append(b.text, `","time":"`...)
			b.times = append(b.times, len(b.text))
			b.text = append(b.text, timeText...)
			n := first + c + len(b.times)
			b.text = append(b.text, `","signals":{"Vehicle.Speed":`...)
			b.text = strconv.AppendFloat(b.text, 20+float64(n%600)/10, 'f', 1, 64)
			b.text = append(b.text, `,"Vehicle.OBD.ThrottlePosition":`...)
			b.text = strconv.AppendFloat(b.text, 15+float64(n%100)/10, 'f', 1, 64)
			b.text = append(b.text, `,"Vehicle.OBD.EngineSpeed":`...)
			b.text = strconv.AppendInt(b.text, int64(1500+n%400), 10)
			b.text = append(b.text, "}}\n"...)
		}
	}
	return b
}

func (b *body) samples() int { return len(b.times) }

// stamp sets the times. Each car's samples begin at start and are step apart.
func (b *body) stamp(start time.Time) {
	var text [32]byte
	for k := range b.perCar {
		at := start.Add(time.Duration(k)*step).UTC().AppendFormat(text[:0], timeText)
		for i := k; i < len(b.times); i += b.perCar {
			copy(b.text[b.times[i]:], at)
		}
	}
}

// vid returns the id of car n. It is as long as the ids in the documentation.
func vid(n int) string { return fmt.Sprintf("NHeN4UqVsohGS5%07d", n) }
