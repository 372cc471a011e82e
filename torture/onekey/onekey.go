// Package onekey is a row (one test) of the torture. In it, the key of one source is stolen and
// used to occupy as much of the service as possible, while the delays of another source are
// measured.
package onekey

import (
	"context"
	"crypto/tls"
	_ "embed"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"carstate/bench/must"
	"carstate/internal/access"
	"carstate/internal/nodeprocess"
	"carstate/internal/testkit"
	"carstate/torture/cores"
	"carstate/torture/defects"
	"carstate/torture/row"
)

//go:embed row.md.tmpl
var prose string

// Row is row 13 of the torture: floods of requests with one stolen key.
var Row = row.Row{
	Number: 13, Name: "onekey", Title: "One key against all others", Text: prose,
	Fields: map[string]any{"Streams": streams, "Rate": rate, "Windows": windows},
	Counts: "stalled requests of one source", CI: 2100, Long: 2100, // a source may have no more
	Controls: defects.Controls("onekey", "unshared-room"),
	Run:      run,
}

const (
	windows = 8 // seconds measured before and during each flood
	// rounds is the maximum number of times that a flood is made. The flood is repeated while
	// the other source's delays are too long. Other load on the machine can only lengthen the
	// delays, so the result is that of the round in which they grew least.
	rounds = 3
)

func run(ctx context.Context, a *row.Attempt) {
	// This process sends for all sources. The process ends with the row, so it need not restore
	// its set of processors. If there are two processors, the sources and the node use
	// different ones.
	parts := cores.Split(os.Getpid())
	cores.Confine(os.Getpid(), &parts.One)
	// TLS handshakes would cost the sources more than the node. So only HTTP/2 uses TLS,
	// because it requires TLS.
	for _, t := range []*target{
		{name: "plain", floods: []*flood{
			{name: "stalled requests over HTTP/1.1", count: a.Count, within: comeWithin, stall: overHTTP1},
			{name: "stalled MQTT packets", count: a.Count * 13 / 210, within: comeWithin, stall: overMQTT},
		}},
		{name: "TLS", tls: true, floods: []*flood{
			{name: "stalled streams of HTTP/2", count: a.Count, within: comeWithin, stall: overHTTP2},
		}},
	} {
		t.run(ctx, a, &parts.Others)
		must.Do(ctx.Err())
	}
}

// target is a node and the floods that it receives.
type target struct {
	*nodeprocess.Node
	name   string
	tls    bool
	floods []*flood

	config *tls.Config // nil: no TLS
	key    string      // the stolen key

	mu      sync.Mutex     // guards clients
	clients []*http.Client // HTTP/2 clients
}

const (
	thief         = "thief" // the source whose key is stolen
	telemetryPath = "/v1/telemetry"
)

// run starts a node, and runs its floods against it one after the other.
func (t *target) run(ctx context.Context, a *row.Attempt, processors *cores.Set) {
	dir := filepath.Join(a.Dir, t.name)
	must.Do(os.MkdirAll(dir, 0o700))
	// The flags set the limits, because the node would choose lower limits on a machine with
	// few descriptors.
	flags := []string{"--ingest-connections", "4096", "--mqtt-connections", "2000", "--query-connections", "100"}
	if t.tls {
		cert, key, roots, err := testkit.WriteCertificate(dir, time.Now().Add(time.Hour))
		must.Do(err)
		flags, t.config = append(flags, "--tls-cert", cert, "--tls-key", key), &tls.Config{RootCAs: roots}
	}
	options := nodeprocess.Options{Binary: a.Binary, Dir: filepath.Join(dir, "data"), Flags: flags}
	t.Node = must.Get(nodeprocess.StartReady(ctx, options, time.Minute))
	defer t.Kill()
	cores.Confine(t.PID(), processors)
	c := must.Get(t.AdminClient())
	t.key = must.Get(c.AddSource(ctx, access.Request{Name: thief, Vehicles: access.VehicleSet("Stolen")})).Key
	p := newProbe(a, t, must.Get(t.AddSource(ctx, "other")))
	p.measure(ctx, 2, "nothing") // the first requests warm up both sides
	for _, f := range t.floods {
		f.compare(ctx, a, t, p)
		must.Do(ctx.Err())
	}
	a.Offered(p.sent)
	a.Acknowledged(p.sent - p.failed)
	a.None("samples of the other source that failed, "+t.name, p.failed)
}

// compare compares the delays before a flood with those during the flood,
// for the source whose key is not stolen.
func (f *flood) compare(ctx context.Context, a *row.Attempt, t *target, p *probe) {
	var ratios, during []float64 // of the best round, by protocol
	atOnce := 0
	for range rounds {
		before := p.measure(ctx, windows, "nothing")
		began, cpu := time.Now(), must.Get(t.CPU())
		stop := f.start(ctx, t)
		err := f.await(ctx)
		var under []time.Duration
		if err == nil {
			under = p.measure(ctx, windows, f.name)
		}
		busy := float64(must.Get(t.CPU())-cpu) / float64(time.Since(began))
		held := stop()
		must.Do(ctx.Err())
		must.Do(err)
		var now, times []float64
		for i := range before {
			now = append(now, float64(under[i].Microseconds())/1000)
			times = append(times, math.Round(100*float64(under[i])/float64(before[i]))/100)
		}
		a.Logf("%s, %d at once, the node busy for %.2f of the time: p99 of others in ms %v, to before %v",
			f.name, held, busy, now, times)
		if ratios == nil || max(times[0], times[1]) < max(ratios[0], ratios[1]) {
			ratios, during, atOnce = times, now, held
		}
		// Wait until the node has released the memory that the flood held.
		must.Get(t.AwaitMetrics(ctx, time.Minute, func(m nodeprocess.Metrics) bool {
			return m[`carstate_ingest_held_bytes{protocol="http"}`] == 0
		}))
		if max(ratios[0], ratios[1]) <= 2 {
			break
		}
	}
	a.Figure(f.name+" at once, median", float64(atOnce), "")
	for i, protocol := range protocols {
		a.Figure(f.name+": p99 of another source by "+protocol, during[i], "ms")
		a.AtMost(f.name+": p99 of another source by "+protocol+", to before", ratios[i], "×", 2)
	}
}
