// Package matrix is the row on who is answered what, and on how long the answers take.
package matrix

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"example.org/carstate/bench/must"
	"example.org/carstate/bench/report"
	"example.org/carstate/internal/access"
	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/internal/vehicle"
	"example.org/carstate/torture/row"
)

const (
	inCI     = 100_000
	perCheck = 4_000
	cars     = 128 // of each sort
)

var Row = row.Row{
	Name: "matrix", Counts: "triples", CI: inCI,
	Run: run,
}

func run(ctx context.Context, a *row.Attempt) {
	machine(ctx, a)
	timing(ctx, a)
}

var wrong = regexp.MustCompile(`(?m)failed after \d+ tests: wrong: (.*)$`)

func machine(ctx context.Context, a *row.Attempt) {
	test, counts := filepath.Join(a.Dir, "matrix.test"), filepath.Join(a.Dir, "counts.json")
	must.Do(nodeprocess.Build(ctx, "..", "./cmd/carstate", test))
	cmd := exec.CommandContext(ctx, test, "-test.run=^TestMatrix$", "-test.timeout=0", "-rapid.nofailfile",
		"-rapid.shrinktime=5s",
		"-rapid.checks="+strconv.Itoa(max(1, a.Count/perCheck)), "-rapid.seed="+strconv.FormatUint(a.Seed, 10),
		"-binary="+a.Binary, "-matrix.counts="+counts)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // with the node that it started
	cmd.Env = append(os.Environ(), "TMPDIR="+a.Dir)
	out, err := cmd.CombinedOutput()
	if found := wrong.FindSubmatch(out); found != nil {
		a.Logf("%s", out)
		a.Wrong("%s", found[1])
	} else if err != nil {
		must.Fail("TestMatrix: %w: %s", err, bytes.TrimSpace(out))
	}
	var did struct{ Asked, Served, Granted, Revoked, Rotated, Forgotten, During int }
	must.Do(json.Unmarshal(must.Get(os.ReadFile(counts)), &did))
	a.Offered(did.Asked)
	a.Acknowledged(did.Served)
	report := func(what string, n int) { a.Figure(what, float64(n), "") }
	if a.Count >= inCI && ctx.Err() == nil {
		report = a.Some
	}
	report("vehicles granted to a token, or removed from it", did.Granted)
	report("tokens revoked", did.Revoked)
	report("tokens rotated", did.Rotated)
	report("vehicles forgotten", did.Forgotten)
	report("queries asked while a change was in progress", did.During)
	must.Do(ctx.Err())
}

// The round trips of single queries would hide differences.
const (
	rounds = 6000
	batch  = 16
	// The allowed difference of the median answer times, in percent.
	aim = 3.0
	// A difference, in percent, that catches a defect. Noise increases the bound of the confidence
	// interval, but not this.
	detectable = 10.0
)

// The token covers only the first sort. Silent vehicles have never reported.
const (
	grantedSilent = iota
	forbiddenReporting
	forbiddenSilent
	sorts
)

func timing(ctx context.Context, a *row.Attempt) {
	node := must.Get(a.Start(ctx))
	defer node.Kill()
	key, admin := must.Get(node.AddSource(ctx, "gateway")), must.Get(node.AdminClient())
	var vids [sorts][]vehicle.ID // of one length
	var lines strings.Builder
	for i := range cars {
		for sort := range sorts {
			vids[sort] = append(vids[sort], vehicle.ID(fmt.Sprintf("CAR%d%013d", sort, i)))
		}
		fmt.Fprintf(&lines, `{"vid":"%s","time":%d,"signals":{"Vehicle.Speed":50,"Vehicle.OBD.ThrottlePosition":20}}`+"\n",
			vids[forbiddenReporting][i], time.Now().UnixMilli())
	}
	row.Feed(ctx, node, key, lines.String())
	must.Get(node.AwaitMetrics(ctx, time.Minute,
		func(m nodeprocess.Metrics) bool { return m["carstate_vehicles"] == cars }))
	t := must.Get(admin.IssueToken(ctx, access.Credential{Developer: "Mallory", Operations: access.AllOperations,
		Vehicles: access.VehicleSet(vids[grantedSilent]...)}))
	c := must.Get(net.Dial("tcp", node.Address(nodeprocess.Query)))
	defer c.Close()
	var out []byte
	buf := make([]byte, 64<<10)
	rng := a.Rand(2000)
	var times [sorts][]float64 // µs per query, by round
	for round := range rounds {
		if ctx.Err() != nil {
			return
		}
		path := []string{nodeprocess.DrivingPath, nodeprocess.ThrottlePath}[rng.IntN(2)]
		for _, sort := range rng.Perm(sorts) {
			out = out[:0]
			for range batch {
				out = append(out, row.Question(path, t.AccessToken, string(vids[sort][rng.IntN(cars)]))...)
			}
			took := exchange(c, out, buf)
			if round >= rounds/10 {
				times[sort] = append(times[sort], took)
			}
		}
	}
	base := report.Quantile(times[grantedSilent], 0.5)
	a.Figure("an answer about a granted vehicle that does not exist, median", base, "µs")
	for _, x := range []struct {
		sort int
		name string
	}{{forbiddenReporting, "a vehicle that reports and is not granted"},
		{forbiddenSilent, "one that neither exists nor is granted"}} {
		difference, bound := paired(times[x.sort], times[grantedSilent])
		if a.Control != nil {
			a.AtMost("the answer about "+x.name+" takes longer by (median)", 100*difference/base, "%", detectable)
			continue
		}
		a.Figure("the answer about "+x.name+" takes longer by (median)", 100*difference/base, "%")
		a.AtMost("the answer about "+x.name+" differs in time by at most (99 % confidence)", 100*bound/base, "%", aim)
	}
	must.Do(node.Stop())
}

func exchange(c net.Conn, questions, buf []byte) float64 {
	must.Do(c.SetDeadline(time.Now().Add(time.Minute)))
	began := time.Now()
	must.Get(c.Write(questions))
	for have, answers := 0, 0; answers < batch; {
		n := must.Get(io.ReadAtLeast(c, buf[have:], 1))
		// The end of an answer may be split between two reads.
		answers += bytes.Count(buf[max(0, have-2):have+n], []byte(`"}}`))
		have += n
	}
	return float64(time.Since(began).Nanoseconds()) / 1000 / batch
}

// paired returns the median of a[i]-b[i], and its greatest distance from zero with 99 % confidence,
// which follows from their order.
func paired(a, b []float64) (difference, bound float64) {
	d := make([]float64, len(a))
	for i := range d {
		d[i] = a[i] - b[i]
	}
	slices.Sort(d)
	n := float64(len(d))
	reach := 2.576 * math.Sqrt(n) / 2
	low, high := int(n/2-reach), int(math.Ceil(n/2+reach))
	return d[len(d)/2], max(math.Abs(d[max(low, 0)]), math.Abs(d[min(high, len(d)-1)]))
}
