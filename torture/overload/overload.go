// Package overload is the row of the torture in which far more is asked and sent
// than the service can do. It looks whether the service goes on doing what it can.
package overload

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"carstate/internal/broken"
	"carstate/internal/nodeprocess"
	"carstate/torture/row"
)

// Row is row 5 of the torture.
var Row = row.Row{
	Number:  5,
	Name:    "overload",
	Title:   "Ten times as much as it can do",
	Promise: "Asked for more than it can do, the service does nearly as much as at its best, refuses the newest with 503, answers those it took on in bounded time, keeps its memory, and is itself again within 2 s.",
	How: `A node is put into a group of processes that gets a tenth of a core (for telemetry a fifth), since one machine cannot offer ten times what
the whole of it can do. It is overloaded for some seconds that do not count, in which a node that has just started grows. Its peak is measured before and after each overload that does, by users who each ask as soon as they have their answer: 1,000 for queries and 512 for
telemetry, about as many as stay connected under overload; a request of telemetry has 5 samples. What 64 users get stands beside: queries mostly a little more, as their connections stay in the processor's cache, telemetry less, as they fill no group commit. Between, requests are due
at twice and at ten times that rate, whatever becomes of those before. Each is given to a user: one with an open connection if there is one, else one
who connects, up to 4,000. A user waits a second from when the request was due, then hangs up, and connects anew for the next. Answers are counted that are right and come within that second; those due in the first 1.5 s
are not, in which the connections come into being. Each 503 must say when to come back.

Right after the end of the load, a light one (100 a second, on connections of its own) shows whether the node is itself again: after the last request that
failed, and after the last second of which more than a hundredth took longer than 100 ms, or three times the p99 that a light load had before. Resident memory is read ten times a second.

The users and the node share two cores with whatever else runs. The quota keeps the node's part the same, so the ratio to the peak can be trusted, and the single figure
cannot. Clients that pipeline are not tried: what they send ahead waits in the kernel, at their own expense.`,
	Found: []string{
		"The query listener refused nobody, since a query takes microseconds and hardly ever two are in progress: users who had waited for too long connected anew, and what that cost was taken from the answers. At twice the capacity, 40 % of it was answered in time (the control).",
		"Both listeners now measure how long what arrives waits for its turn. While that is over 125 ms, newer connections get 503, few at a time, and the rest are left to the kernel.",
		"At ten times its capacity telemetry was taken at 43 to 86 % of the peak. More than 256 requests were refused at once on connections that stayed open, again and again, and who was let in came in hundreds as soon as the wait was over. Both listeners now find out how many connections they can serve, and all of those have their requests in work.",
	},
	Counts: "seconds of each overload",
	CI:     8,
	Long:   60,
	Controls: []row.Control{
		{Defect: broken.NoShedding, Says: "takes in everybody who comes", By: []string{"missed: query at *×: answered in time, of the peak is *"}, Count: 5},
	},
	Needs: needs,
	Run:   run,
}

// Quotas of the victim, in thousandths of a core.
const (
	queryQuota  = 100
	ingestQuota = 200
)

func run(ctx context.Context, a *row.Attempt) error {
	if err := one(ctx, a, "query", queryQuota, queryUsers, queries); err != nil || ctx.Err() != nil {
		return err
	}
	return one(ctx, a, "ingest", ingestQuota, ingestUsers, telemetry)
}

// one overloads one listener of a node of its own.
func one(ctx context.Context, a *row.Attempt, what string, thousandths, users int, prepare func(context.Context, *nodeprocess.Node) (*crowd, error)) (err error) {
	n, err := nodeprocess.Start(ctx, nodeprocess.Options{Binary: a.Binary, Dir: filepath.Join(a.Dir, what), Flags: []string{"--max-age", "24h"}})
	if err != nil {
		return err
	}
	q, err := newQuota(fmt.Sprintf("carstate-torture-%s-%d", what, os.Getpid()), thousandths)
	if err != nil {
		n.Kill()
		return err
	}
	defer func() {
		n.Kill()
		if e := q.remove(); err == nil {
			err = e
		}
	}()
	if err := n.AwaitReady(ctx, time.Minute); err != nil {
		return err
	}
	c, err := prepare(ctx, n)
	if err != nil {
		return err
	}
	if err := q.add(n.PID()); err != nil {
		return fmt.Errorf("the node cannot be limited: %w", err)
	}
	v := &victim{a: a, n: n, what: what, crowd: c, quota: q, users: users}
	return v.suffer(ctx)
}

// victim is a node that is overloaded.
type victim struct {
	a     *row.Attempt
	n     *nodeprocess.Node
	what  string
	crowd *crowd
	quota *quota
	users int // who ask at once when the peak is measured
}

// Times of the parts.
const (
	peakTime = 4 * time.Second
	calmTime = 3 * time.Second
	warmTime = 1500 * time.Millisecond // of an overload, before it counts
	growTime = 4 * time.Second         // of one that does not count at all
	watched  = 4 * time.Second         // after an overload
)

// How many ask at once when the peak is measured.
const (
	queryUsers  = 1000
	ingestUsers = 512
	fewUsers    = 64 // who show what the listener does at its ease
)

// What is promised.
const (
	recoverWithin = 2 * time.Second
	maxResident   = 256 << 20
)

func (v *victim) suffer(ctx context.Context) error {
	calm := v.crowd.openLoop(ctx, calmRate, calmTime, time.Second)
	v.crowd.leave()
	normal := max(3*calm.p(0.99), 100*time.Millisecond)
	v.a.Figure(v.what+": p99 of a light load before", ms(calm.p(0.99)), "ms")
	if calm.good != calm.offered {
		return fmt.Errorf("%s: a light load was not borne: %d of %d, %w", v.what, calm.good, calm.offered, calm.wrong)
	}
	if calm.p(0.99) > tooBusy {
		return fmt.Errorf("%s: a light load had a p99 of %s: the machine is too busy with others to measure anything", v.what, calm.p(0.99))
	}
	// A node that has just started grows at first.
	v.crowd.openLoop(ctx, 2*float64(v.crowd.closedLoop(ctx, v.users, time.Second).good), warmTime+growTime, 0)
	v.crowd.leave()
	few := v.crowd.closedLoop(ctx, fewUsers, peakTime)
	v.crowd.leave()
	v.a.Figure(fmt.Sprintf("%s: peak with %d users", v.what, fewUsers), float64(few.good)/peakTime.Seconds(), "/s")
	for _, times := range []struct {
		factor  float64
		goodput float64
	}{{2, 0.9}, {10, 0.8}} {
		if err := v.under(ctx, times.factor, times.goodput, normal); err != nil || ctx.Err() != nil {
			return err
		}
	}
	return nil
}

// tooBusy is a p99 of a light load at which the machine has no time for this.
const tooBusy = 150 * time.Millisecond

// calmRate is the light load, in requests a second.
const calmRate = 100

// under overloads the victim.
func (v *victim) under(ctx context.Context, factor, least float64, normal time.Duration) error {
	before := v.crowd.closedLoop(ctx, v.users, peakTime)
	resident := watch(ctx, v.n)
	peak := float64(before.good) / peakTime.Seconds()
	if peak < 1 {
		return fmt.Errorf("%s: no peak was measured: %+v", v.what, before.wrong)
	}
	during := warmTime + time.Duration(v.a.Count)*time.Second
	r := v.crowd.openLoop(ctx, factor*peak, during, warmTime)
	users := v.crowd.connections()
	v.crowd.leave()
	recovered, probe := v.recovery(ctx, normal)
	most := resident()
	after := v.crowd.closedLoop(ctx, v.users, peakTime)
	if ctx.Err() != nil {
		return nil
	}
	v.a.Offered(r.offered)
	v.a.Acknowledged(r.good)
	for _, r := range []result{before, r, probe, after} {
		if r.wrong != nil {
			v.a.Wrong("%s at %g×: %v", v.what, factor, r.wrong)
		}
	}
	afterwards := float64(after.good) / peakTime.Seconds()
	lasting := afterwards / peak
	peak = (peak + afterwards) / 2
	good := float64(r.good) / float64(v.a.Count)
	name := fmt.Sprintf("%s at %g×: ", v.what, factor)
	v.a.Figure(name+"peak before and after", peak, "/s")
	v.a.Aimed(name+"peak after, of the peak before", 100*lasting, "%", "≥ 70 %", lasting >= 0.7)
	v.a.Figure(name+"offered", float64(r.offered)/float64(v.a.Count), "/s")
	v.a.Aimed(name+"answered in time, of the peak", 100*good/peak, "%", fmt.Sprintf("≥ %g %%", 100*least), good >= least*peak)
	v.a.Figure(name+"refused with 503", float64(r.refused)/float64(v.a.Count), "/s")
	v.a.Figure(name+"without an answer in 1 s", float64(r.failed)/float64(v.a.Count), "/s")
	v.a.Figure(name+"not sent, no user being free", float64(r.unsent)/float64(v.a.Count), "/s")
	v.a.Figure(name+"users", float64(users), "")
	v.a.Figure(name+"p50 of what was answered", ms(r.p(0.5)), "ms")
	v.a.Figure(name+"p99 of what was answered", ms(r.p(0.99)), "ms")
	v.a.Aimed(name+"itself again after", recovered.Seconds(), "s", "≤ 2 s", recovered <= recoverWithin)
	v.a.Aimed(name+"resident memory at most", float64(most)/(1<<20), "MiB", "≤ "+strconv.Itoa(maxResident>>20)+" MiB", most <= maxResident)
	return nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// recovery is how long after the load's end the node is itself again.
func (v *victim) recovery(ctx context.Context, normal time.Duration) (time.Duration, result) {
	light := &crowd{addr: v.crowd.addr, request: v.crowd.request, good: v.crowd.good, light: true}
	began := time.Now()
	r := light.openLoop(ctx, calmRate, watched, 0)
	light.leave()
	return recovered(r.all, began, normal), r
}

// recovered is when the last request failed, or the last second began in which more
// than a hundredth, but at least two, took longer than normal.
func recovered(all []fate, began time.Time, normal time.Duration) (after time.Duration) {
	slices.SortFunc(all, func(a, b fate) int { return a.due.Compare(b.due) })
	for i, f := range all {
		slow, asked := 0, 0
		for _, g := range all[i:] {
			if g.due.Sub(f.due) >= time.Second {
				break
			}
			asked++
			if g.took > normal {
				slow++
			}
		}
		if !f.good || f.took > normal && slow >= max(2, asked/100) {
			after = max(after, f.due.Sub(began)+f.took)
		}
	}
	return after
}

// watch follows a node's memory; what it returns ends that and tells the most.
func watch(ctx context.Context, n *nodeprocess.Node) (most func() int64) {
	ctx, cancel := context.WithCancel(ctx)
	found := make(chan int64, 1)
	go func() {
		var most int64
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			if now, err := n.Resident(); err == nil {
				most = max(most, now)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
		found <- most
	}()
	return func() int64 {
		cancel()
		return <-found
	}
}
