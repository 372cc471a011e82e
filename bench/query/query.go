// Package query measures what one query costs, compared with the programs that an expert would use
// instead. All send the same body, look up the same data, and serve the same generator.
package query

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"example.org/carstate/bench/must"
	"example.org/carstate/bench/report"
	"example.org/carstate/internal/access"
	"example.org/carstate/internal/nodeprocess"
)

// The names of carstate and its peers, and the aims: ratios of CPU times per request.
const (
	self      = "carstate"
	expert    = "nginx + lua"
	floor     = "nginx return"
	aimExpert = 0.9
	aimGrowth = 1.15
)

// Run measures all peers side by side, and then the query server with growing tables.
func Run(ctx context.Context, p *report.Part) error {
	f := newField(p)
	defer f.stopAll()
	f.comparePeers(ctx)
	f.stopAll()
	f.compareSizes(ctx)
	return nil
}

const vehiclesKnown = 1000

func newField(p *report.Part) *field {
	f := &field{Part: p, self: must.Get(os.Executable()), tokens: filepath.Join(p.Dir, "tokens"),
		vehicles: filepath.Join(p.Dir, "vehicles"), targets: filepath.Join(p.Dir, "targets")}
	f.core, f.generator = cores()
	secret, _ := access.NewSecret(access.TokenKind)
	var vehicles bytes.Buffer
	for i := range vehiclesKnown {
		fmt.Fprintln(&vehicles, vidOf(i))
	}
	must.Do(os.WriteFile(f.tokens, []byte(secret+"\n"), 0o600), os.WriteFile(f.vehicles, vehicles.Bytes(), 0o600))
	writeTargets(f.targets, []string{secret}, vehiclesKnown)
	return f
}

type cost struct {
	cpu    float64 // µs of the server's processor time per request
	kernel float64 // µs of it in the kernel
	rate   float64 // requests per second
}

func (f *field) runLength() time.Duration {
	if f.Quick {
		return 2 * time.Second
	}
	return 4 * time.Second
}

func (f *field) measure(ctx context.Context, p *peer) cost {
	if p.before != nil {
		p.before(ctx)
	}
	user0, kernel0 := must.Get2(nodeprocess.TimesOf(p.pid))
	g := f.runGenerator(ctx, p, 0, f.runLength())
	user, kernel := must.Get2(nodeprocess.TimesOf(p.pid))
	return cost{
		cpu:    micros(user-user0+kernel-kernel0) / float64(g.Sent),
		kernel: micros(kernel-kernel0) / float64(g.Sent),
		rate:   float64(g.Sent) / g.Took.Seconds(),
	}
}

// rounds measures all peers in turn, in each round, so that other load on the machine affects all
// equally. The costs are by round, in the order of f.started.
func (f *field) rounds(ctx context.Context) [][]cost {
	all := make([][]cost, len(f.started))
	for round := range f.Rounds {
		for i, p := range f.started {
			c := f.measure(ctx, p)
			all[i] = append(all[i], c)
			f.Logf("round %d of %d: %-36s %6.2f µs a request, %7.0f a second", round+1, f.Rounds, p.name, c.cpu, c.rate)
		}
	}
	return all
}

func (f *field) comparePeers(ctx context.Context) {
	for _, s := range starters {
		p := s.start(ctx, f, s.name)
		must.Do(nodeprocess.Until(ctx, 20*time.Second, p.check))
	}
	all := f.rounds(ctx)
	for i, p := range f.started {
		f.Add(p.name, "server CPU a request", "µs", "", pick(all[i], func(c cost) float64 { return c.cpu })...)
		f.Add(p.name, "of it in the kernel", "µs", "", pick(all[i], func(c cost) float64 { return c.kernel })...)
		f.Add(p.name, "requests", "1/s", "closed loop, 64 connections, one core each",
			pick(all[i], func(c cost) float64 { return c.rate })...)
	}
	f.ratios(all)
	f.latencies(ctx, all)
}

func (f *field) ratios(all [][]cost) {
	by := make(map[string][]cost)
	for i, p := range f.started {
		by[p.name] = all[i]
	}
	f.AtMost(aimExpert, self, "CPU a request, over "+expert, "×", "", over(by[self], by[expert])...)
	f.Add(self, "CPU a request, over "+floor, "×", "", over(by[self], by[floor])...)
}

// over divides the CPU time of one peer by that of the other, round by round.
func over(one, other []cost) []float64 {
	q := make([]float64, len(one))
	for i := range one {
		q[i] = one[i].cpu / other[i].cpu
	}
	return q
}

// latencies measures each peer at half of the rate that it can answer. A peer other than carstate
// that fails three times gets no figure.
func (f *field) latencies(ctx context.Context, all [][]cost) {
	for i, p := range f.started {
		capacity := report.Median(pick(all[i], func(c cost) float64 { return c.rate }))
		if p.before != nil {
			p.before(ctx)
		}
		var l generated
		var err error
		for range 3 { // more than one attempt, for a peer that drops a connection now and then
			err = must.Caught(func() { l = f.runGenerator(ctx, p, capacity/2, f.runLength()) })
			must.Do(ctx.Err())
			if err == nil {
				break
			}
			f.Logf("at half of capacity: %s", err)
		}
		if err != nil && !strings.HasPrefix(p.name, "carstate") {
			continue // it cannot keep its connections at that rate, so it has no such figure
		}
		must.Do(err)
		const remark = "open loop, at half of what the same peer answered in the closed one"
		f.Add(p.name, "p50 at half of capacity", "µs", remark, micros(l.P50))
		f.Add(p.name, "p99 at half of capacity", "µs", remark, micros(l.P99))
	}
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

func (f *field) runGenerator(ctx context.Context, p *peer, rate float64, during time.Duration) (l generated) {
	g := launch(ctx, "the generator", f.generator, f.Dir, f.self, "self", "generate",
		"-addr", p.addr, "-targets", p.targets, "-rate", fmt.Sprint(rate), "-seconds", fmt.Sprint(during.Seconds()))
	defer g.stop()
	said, err := io.ReadAll(g.reader)
	if err != nil || json.Unmarshal(said, &l) != nil {
		must.Do(ctx.Err())
		must.Fail("%s: %w", p.name, g.failed())
	}
	return l
}

// check requests the first target, whose answer must be that of all peers.
func (p *peer) check(ctx context.Context) error {
	target, _, _ := strings.Cut(string(must.Get(os.ReadFile(p.targets))), "\n")
	req := must.Get(http.NewRequestWithContext(ctx, "GET", "http://"+p.addr+target, nil))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("%s: no answer", p.name) // err is not returned: it contains the URL with its token
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil || resp.StatusCode != 200 || string(said) != bodyBefore+string(vidOf(0))+bodyAfter {
		return fmt.Errorf("%s: unexpected answer: %s", p.name, resp.Status)
	}
	return nil
}

func pick(costs []cost, of func(cost) float64) []float64 {
	v := make([]float64, len(costs))
	for i, c := range costs {
		v[i] = of(c)
	}
	return v
}

type size struct{ vehicles, tokens int }

func (s size) String() string {
	tokens := "1 token"
	if s.tokens > 1 {
		tokens = report.Count(s.tokens) + " tokens"
	}
	return report.Count(s.vehicles) + " vehicles, " + tokens
}

// compareSizes measures only the query server, in a process for each size of its tables.
func (f *field) compareSizes(ctx context.Context) {
	vehicles := []int{1000, 100_000, 1_000_000, 10_000_000}
	tokens := []int{1, 1000, 100_000}
	if f.Quick {
		vehicles = []int{1000, 100_000, 1_000_000}
	}
	var sizes []size
	for _, n := range vehicles {
		sizes = append(sizes, size{n, 1})
	}
	const many = 100_000 // vehicles in the tables with growing numbers of tokens
	for _, n := range tokens[1:] {
		sizes = append(sizes, size{many, n})
	}

	for i, s := range sizes {
		f.Logf("filling a table: %s", s)
		targets := filepath.Join(f.Dir, fmt.Sprintf("targets-%d", i))
		f.startSelf(ctx, s.String(), targets, "table", "-targets", targets,
			"-vehicles", fmt.Sprint(s.vehicles), "-tokens", fmt.Sprint(s.tokens))
	}
	all := f.rounds(ctx)
	for i, s := range sizes {
		f.Add(s.String(), "server CPU a request", "µs", "query server alone, table filled synthetically",
			pick(all[i], func(c cost) float64 { return c.cpu })...)
	}
	last := len(vehicles) - 1
	f.AtMost(aimGrowth, self, fmt.Sprintf("CPU with %s vehicles, over 1 k", report.Count(vehicles[last])), "×", "",
		over(all[last], all[0])...)
	f.AtMost(aimGrowth, self, "CPU with 100 k tokens, over 1", "×", "", over(all[len(sizes)-1], all[1])...)
}
