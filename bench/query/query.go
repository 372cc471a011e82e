// Package query measures what one query costs, beside the programs that an expert would use
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
	"slices"
	"strings"
	"time"

	"example.org/carstate/bench/must"
	"example.org/carstate/bench/report"
	"example.org/carstate/internal/access"
	"example.org/carstate/internal/test/nodeprocess"
)

// The aims are ratios of CPU times per request.
const (
	self      = "carstate"
	expert    = "nginx + lua"
	floor     = "nginx return"
	aimExpert = 0.9
	aimGrowth = 1.15
)

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

func (f *field) measure(ctx context.Context, p *peer, all report.Rounds) {
	if p.before != nil {
		p.before(ctx)
	}
	user0, kernel0 := must.Get2(nodeprocess.TimesOf(p.pid))
	g := f.runGenerator(ctx, p, 0)
	user, kernel := must.Get2(nodeprocess.TimesOf(p.pid))
	all.Add("CPU", micros(user-user0+kernel-kernel0)/float64(g.Sent))
	all.Add("kernel", micros(kernel-kernel0)/float64(g.Sent))
	all.Add("rate", float64(g.Sent)/g.Took.Seconds())
}

// Peers take turns, so that other load affects all equally.
func (f *field) rounds(ctx context.Context) []report.Rounds {
	all := make([]report.Rounds, len(f.started))
	for round := range f.Rounds {
		for i, p := range f.started {
			if all[i] == nil {
				all[i] = make(report.Rounds)
			}
			f.measure(ctx, p, all[i])
			f.Logf("round %d of %d: %-36s %6.2f µs a request, %7.0f a second", round+1, f.Rounds, p.name,
				all[i]["CPU"][round], all[i]["rate"][round])
		}
	}
	return all
}

func (f *field) comparePeers(ctx context.Context) {
	for _, s := range starters {
		p := s.start(ctx, f, s.name)
		must.Do(nodeprocess.Until(ctx, 20*time.Second, p.check))
	}
	all, cpu := f.rounds(ctx), make(report.Rounds)
	for i, p := range f.started {
		cpu[p.name] = all[i]["CPU"]
		f.Add(p.name, "server CPU a request", "µs", "", all[i]["CPU"]...)
		f.Add(p.name, "of it in the kernel", "µs", "", all[i]["kernel"]...)
		f.Add(p.name, "requests", "1/s", "closed loop, 64 connections, one core each", all[i]["rate"]...)
	}
	f.AtMost(aimExpert, self, "CPU a request, over "+expert, "×", "", over(cpu[self], cpu[expert])...)
	f.Add(self, "CPU a request, over "+floor, "×", "", over(cpu[self], cpu[floor])...)
	for i, p := range f.started {
		f.latencies(ctx, p, report.Median(all[i]["rate"]))
	}
}

func over(one, other []float64) []float64 {
	q := make([]float64, len(one))
	for i := range one {
		q[i] = one[i] / other[i]
	}
	return q
}

// A peer other than carstate that fails three times gets no figure.
func (f *field) latencies(ctx context.Context, p *peer, capacity float64) {
	if p.before != nil {
		p.before(ctx)
	}
	var l generated
	var err error
	for range 3 {
		err = must.Caught(func() { l = f.runGenerator(ctx, p, capacity/2) })
		must.Do(ctx.Err())
		if err == nil {
			break
		}
		f.Logf("at half of capacity: %s", err)
	}
	if err != nil && !strings.HasPrefix(p.name, "carstate") {
		return
	}
	must.Do(err)
	const remark = "open loop, at half of what the same peer answered in the closed one"
	f.Add(p.name, "p50 at half of capacity", "µs", remark, micros(l.P50))
	f.Add(p.name, "p99 at half of capacity", "µs", remark, micros(l.P99))
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

func (f *field) runGenerator(ctx context.Context, p *peer, rate float64) (l generated) {
	seconds := "4"
	if f.Quick {
		seconds = "2"
	}
	g := f.launch(ctx, "the generator", f.generator, f.self, "self", "generate",
		"-addr", p.addr, "-targets", p.targets, "-rate", fmt.Sprint(rate), "-seconds", seconds)
	defer g.stop()
	said, err := io.ReadAll(g.out)
	if err != nil || json.Unmarshal(said, &l) != nil {
		must.Do(ctx.Err())
		must.Fail("the generator failed with %s; see its output above", p.name)
	}
	return l
}

func (p *peer) check(ctx context.Context) error {
	target, _, _ := strings.Cut(string(must.Get(os.ReadFile(p.targets))), "\n")
	req := must.Get(http.NewRequestWithContext(ctx, "GET", "http://"+p.addr+target, nil))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("%s: no answer", p.name) // err contains the URL with its token
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil || resp.StatusCode != 200 || string(said) != bodyBefore+string(vidOf(0))+bodyAfter {
		return fmt.Errorf("%s: unexpected answer: %s", p.name, resp.Status)
	}
	return nil
}

func (f *field) compareSizes(ctx context.Context) {
	const many = 100_000 // of tokens
	sizes := []struct{ vehicles, tokens int }{{1000, 1}, {many, 1}, {1_000_000, 1}, {10_000_000, 1}, {many, 1000},
		{many, 100_000}}
	last := 3
	if f.Quick {
		sizes, last = slices.Delete(sizes, 3, 4), 2
	}
	for i, s := range sizes {
		name := report.Count(s.vehicles) + " vehicles, " + report.Count(s.tokens) + " tokens"
		if s.tokens == 1 {
			name = report.Count(s.vehicles) + " vehicles, 1 token"
		}
		f.Logf("filling a table: %s", name)
		targets := filepath.Join(f.Dir, fmt.Sprintf("targets-%d", i))
		f.startSelf(ctx, name, targets, "table", "-targets", targets,
			"-vehicles", fmt.Sprint(s.vehicles), "-tokens", fmt.Sprint(s.tokens))
	}
	all := f.rounds(ctx)
	for i, p := range f.started {
		f.Add(p.name, "server CPU a request", "µs", "query server alone, table filled synthetically", all[i]["CPU"]...)
	}
	f.AtMost(aimGrowth, self, fmt.Sprintf("CPU with %s vehicles, over 1 k", report.Count(sizes[last].vehicles)), "×", "",
		over(all[last]["CPU"], all[0]["CPU"])...)
	f.AtMost(aimGrowth, self, "CPU with 100 k tokens, over 1", "×", "", over(all[len(all)-1]["CPU"], all[1]["CPU"])...)
}
