package sample

import (
	"context"
	"net/http"
	"time"

	"github.com/valyala/fasthttp"

	"example.org/carstate/bench/must"
	"example.org/carstate/bench/report"
	"example.org/carstate/internal/test/nodeprocess"
)

func runLone(ctx context.Context, n *node, perSecond float64, lasting time.Duration, all report.Rounds) {
	const atOnce, cars = 64, 1000
	s := newSender(n.Address(nodeprocess.Ingest), n.key, atOnce)
	defer s.client.CloseIdleConnections()
	before := must.Get(n.Metrics(ctx))
	acks := new(latencies)
	openLoop(ctx, perSecond, atOnce, lasting, func(i int, due time.Time) {
		b := newBody(i%cars, 1, 1)
		b.stamp(due)
		s.post(b.text)
		acks.add(time.Since(due))
	})
	after := must.Get(n.Metrics(ctx))
	all.Add("p50", acks.quantile(0.5))
	all.Add("p99", acks.quantile(0.99))
	all.Add("commits", since(before, after, "carstate_commit_samples_sum")/since(before, after,
		"carstate_commit_samples_count"))
}

// One probe at a time sends a sample, and is queried until the answer includes it.
const (
	probes    = 100
	probeRate = 50
	// By this pause, a time may be too long.
	askAgain = 200 * time.Microsecond
)

const answeredCars = 10_000

// derive looks up a car's state in the engine for its first sample, which must not be measured.
func hearOfAll(ctx context.Context, n *node) {
	const atOnce, perBody = 4, 100
	s := newSender(n.Address(nodeprocess.Ingest), n.key, atOnce)
	defer s.client.CloseIdleConnections()
	before := must.Get(n.Metrics(ctx))
	at := time.Now().Add(-5 * time.Minute)
	for first := 0; first < answeredCars+probes; first += perBody {
		b := newBody(first, perBody, 1)
		b.stamp(at)
		s.post(b.text)
	}
	must.Get(n.AwaitMetrics(ctx, time.Minute, func(after nodeprocess.Metrics) bool {
		return since(before, after, "carstate_samples_folded_total") >= answeredCars+probes
	}))
}

func runAnswered(ctx context.Context, n *node, perSecond float64, lasting time.Duration) *latencies {
	const atOnce, cars, perBody = 32, answeredCars, 10
	s := newSender(n.Address(nodeprocess.Ingest), n.key, 2*atOnce)
	defer s.client.CloseIdleConnections()
	bodies := make([]*body, cars/perBody)
	for i := range bodies {
		bodies[i] = newBody(i*perBody, perBody, 1)
	}
	asker := &fasthttp.HostClient{Addr: n.Address(nodeprocess.Query), MaxConns: probes}
	defer asker.CloseIdleConnections()

	background, cancel := context.WithCancel(ctx)
	defer cancel()
	load := make(chan error, 1)
	go func() {
		load <- must.Caught(func() {
			openLoop(background, perSecond/perBody, atOnce, lasting, func(i int, due time.Time) {
				b := bodies[i%len(bodies)]
				text := *b
				text.text = append([]byte(nil), b.text...)
				text.stamp(due)
				s.post(text.text)
			})
		})
	}()
	l := new(latencies)
	// The time in an answer has whole seconds, so the samples of a probe are one second apart.
	first := time.Now().Add(-4 * time.Minute).Truncate(time.Second)
	openLoop(ctx, probeRate, probes, lasting, func(i int, due time.Time) {
		b := newBody(cars+i%probes, 1, 1)
		at := first.Add(time.Duration(i/probes) * time.Second)
		b.stamp(at)
		s.post(b.text)
		askUntil(ctx, asker, n, vid(cars+i%probes), at)
		l.add(time.Since(due))
	})
	must.Do(<-load)
	return l
}

func askUntil(ctx context.Context, c *fasthttp.HostClient, n *node, vid string, at time.Time) {
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.SetRequestURI(n.URL(nodeprocess.Query) + nodeprocess.DrivingPath + "?access_token=" + n.token + "&vid=" + vid)
	want := at.UTC().Format(http.TimeFormat)
	for asked := time.Now(); ; time.Sleep(askAgain) {
		must.Do(c.Do(req, resp))
		if resp.StatusCode() != http.StatusOK {
			must.Fail("a query was answered with %d", resp.StatusCode())
		}
		if string(resp.Header.Peek("Last-Modified")) == want {
			return
		}
		must.Do(ctx.Err())
		if time.Since(asked) > time.Minute {
			must.Fail("a sample was acknowledged, but not part of an answer for a minute")
		}
	}
}
