// Package query measures what one query costs, compared with the programs that an expert would use
// instead. All programs send the same body, look up the same data, and serve the same generator.
package query

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"carstate/bench/must"
	"carstate/bench/report"
	"carstate/internal/access"
)

const part = "query"

// The names of carstate and of the peers with which it is compared, and the limits of the aims. The
// limits are ratios of CPU times per request: carstate's to that of the expert, and that with a
// large table to that with a small one.
const (
	self      = "carstate"
	expert    = "nginx + lua"
	floor     = "nginx return"
	aimExpert = 0.9
	aimGrowth = 1.15
)

// Run measures the queries. It first measures all peers side by side, and then carstate's table
// with growing numbers of vehicles and tokens.
func Run(ctx context.Context, o report.Options, r *report.Results) error {
	f, generator := newField(o)
	defer f.stopAll()
	comparePeers(ctx, o, f, generator, r)
	f.stopAll()
	compareSizes(ctx, o, f, generator, r)
	return nil
}

// vehiclesKnown is how many vehicles the peers know in the comparison.
const vehiclesKnown = 1000

// newField writes the files from which all peers are filled.
func newField(o report.Options) (f *field, generator int) {
	f = &field{dir: o.Dir, binary: o.Binary, self: must.Get(os.Executable())}
	f.core, generator = cores()
	f.tokens, f.vehicles, f.targets = filepath.Join(o.Dir, "tokens"), filepath.Join(o.Dir, "vehicles"),
		filepath.Join(o.Dir, "targets")
	secret, _ := access.NewSecret(access.TokenKind)
	var vehicles bytes.Buffer
	for i := range vehiclesKnown {
		fmt.Fprintln(&vehicles, vidOf(i))
	}
	must.Do(os.WriteFile(f.tokens, []byte(secret+"\n"), 0o600), os.WriteFile(f.vehicles, vehicles.Bytes(), 0o600))
	writeTargets(f.targets, []string{secret}, vehiclesKnown)
	return f, generator
}

// cost is the result of one run against one server.
type cost struct {
	cpu    float64 // µs of the server's processor time per request
	kernel float64 // µs of it in the kernel
	rate   float64 // requests per second
}

// runLength returns the duration of a run of the generator.
func runLength(o report.Options) time.Duration {
	if o.Quick {
		return 2 * time.Second
	}
	return 4 * time.Second
}

// measure runs the generator against a server once.
func measure(ctx context.Context, o report.Options, f *field, generator int, p *peer) (c cost) {
	if p.before != nil {
		p.before(ctx)
	}
	before := p.cpu()
	g := runGenerator(ctx, f, generator, p, 0, runLength(o))
	after := p.cpu()
	user, kernel := micros(after.user-before.user), micros(after.system-before.system)
	return cost{
		cpu:    (user + kernel) / float64(g.Sent),
		kernel: kernel / float64(g.Sent),
		rate:   float64(g.Sent) / g.Took.Seconds(),
	}
}

// rounds measures all peers in turn, o.Rounds times, so that other load on the machine
// affects all of them equally.
func rounds(ctx context.Context, o report.Options, f *field, generator int, peers []*peer) [][]cost {
	all := make([][]cost, len(peers))
	for round := range o.Rounds {
		for i, p := range peers {
			c := measure(ctx, o, f, generator, p)
			all[i] = append(all[i], c)
			o.Logf("round %d of %d: %-36s %6.2f µs a request, %7.0f a second", round+1, o.Rounds, p.name, c.cpu, c.rate)
		}
	}
	return all
}

// comparePeers measures all peers side by side.
func comparePeers(ctx context.Context, o report.Options, f *field, generator int, r *report.Results) {
	for _, s := range starters {
		s.start(ctx, f, s.name).check(ctx)
	}
	peers := f.started
	all := rounds(ctx, o, f, generator, peers)
	for i, p := range peers {
		add(r, p.name, "server CPU a request", "µs", "", 0, pick(all[i], func(c cost) float64 { return c.cpu }))
		add(r, p.name, "of it in the kernel", "µs", "", 0, pick(all[i], func(c cost) float64 { return c.kernel }))
		add(r, p.name, "requests", "1/s", "closed loop, 64 connections, one core each", 0,
			pick(all[i], func(c cost) float64 { return c.rate }))
	}
	ratios(peers, all, r)
	latencies(ctx, o, f, generator, peers, all, r)
}

// ratios compares carstate, round by round, with the peers that the aims name.
func ratios(peers []*peer, all [][]cost, r *report.Results) {
	index := func(name string) int {
		return slices.IndexFunc(peers, func(p *peer) bool { return p.name == name })
	}
	mine := index(self)
	for _, other := range []string{expert, floor} {
		i := index(other)
		most := 0.0
		if other == expert {
			most = aimExpert
		}
		add(r, self, "CPU a request, over "+other, "×", "", most, over(all[mine], all[i]))
	}
}

// over divides the CPU time of one peer by that of the other, round by round.
func over(one, other []cost) []float64 {
	q := make([]float64, len(one))
	for i := range one {
		q[i] = one[i].cpu / other[i].cpu
	}
	return q
}

// latencies measures the latencies of each peer at half of the rate that the peer can answer. The
// requests are sent at even intervals.
func latencies(ctx context.Context, o report.Options, f *field, generator int, peers []*peer, all [][]cost,
	r *report.Results) {
	for i, p := range peers {
		capacity := report.Median(pick(all[i], func(c cost) float64 { return c.rate }))
		if p.before != nil {
			p.before(ctx)
		}
		var l generated
		var err error
		for range 3 { // more than one attempt, for a peer that drops a connection now and then
			err = must.Caught(func() { l = runGenerator(ctx, f, generator, p, capacity/2, runLength(o)) })
			must.Do(ctx.Err())
			if err == nil {
				break
			}
			o.Logf("at half of capacity: %s", err)
		}
		if err != nil && !strings.HasPrefix(p.name, "carstate") {
			continue // it cannot keep its connections at that rate, so it has no such figure
		}
		must.Do(err)
		o.Logf("at half of capacity: %-36s p50 %4d µs, p99 %5d µs", p.name, l.P50.Microseconds(), l.P99.Microseconds())
		const remark = "open loop, at half of what the same peer answered in the closed one"
		add(r, p.name, "p50 at half of capacity", "µs", remark, 0, []float64{micros(l.P50)})
		add(r, p.name, "p99 at half of capacity", "µs", remark, 0, []float64{micros(l.P99)})
	}
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// runGenerator runs the generator on its core.
func runGenerator(ctx context.Context, f *field, core int, p *peer, rate float64, during time.Duration) (l generated) {
	g := launch(ctx, "the generator", core, f.dir, f.self, "self", "generate",
		"-addr", p.addr, "-targets", p.targets, "-rate", fmt.Sprint(rate), "-seconds", fmt.Sprint(during.Seconds()))
	defer g.stop()
	said, err := io.ReadAll(g.reader)
	if err != nil || json.Unmarshal(said, &l) != nil {
		must.Do(ctx.Err())
		must.Fail("%s: %w", p.name, g.failed())
	}
	return l
}

// check requests the first target of the peer and compares the answer's body with the expected one.
// All peers must give the same answer.
func (p *peer) check(ctx context.Context) {
	target, _, _ := strings.Cut(string(must.Get(os.ReadFile(p.targets))), "\n")
	if err := get(ctx, "http://"+p.addr+target, 200, bodyBefore+string(vidOf(0))+bodyAfter); err != nil {
		must.Fail("%s: %w", p.name, err)
	}
}

// add adds a figure of all rounds. The parameter most is the figure's aim, an upper limit; 0 means
// no aim.
func add(r *report.Results, subject, name, unit, remark string, most float64, rounds []float64) float64 {
	return r.Measure(report.Figure{Part: part, Subject: subject, Name: name, Unit: unit, Remark: remark, AtMost: most},
		rounds...)
}

// pick returns one number of every round.
func pick(costs []cost, of func(cost) float64) []float64 {
	v := make([]float64, len(costs))
	for i, c := range costs {
		v[i] = of(c)
	}
	return v
}
