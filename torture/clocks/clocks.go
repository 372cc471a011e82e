// Package clocks is a row (one test) of the torture. It sets the clocks of a running service ahead,
// back, and to other centuries.
package clocks

import (
	"context"
	_ "embed"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"slices"
	"time"

	"carstate/bench/must"
	"carstate/internal/nodeprocess"
	"carstate/internal/ops"
	"carstate/torture/defects"
	"carstate/torture/row"
)

//go:embed row.md.tmpl
var prose string

// Row is row 9 of the torture: a node whose clocks jump.
var Row = row.Row{
	Number: 9, Name: "clocks", Title: "Clocks that jump", Text: prose,
	Counts: "sequences of jumps", CI: 200, Long: 20_000,
	Controls: defects.Controls("clocks", "stuck-limiter", "expiry-cached", "future-fresh"),
	Needs:    needs,
	Run:      run,
}

func run(ctx context.Context, a *row.Attempt) {
	t := &trial{a: a, rng: rand.New(rand.NewPCG(a.Seed, 0)), calls: make(map[int64]between), answers: make(map[int]int),
		queries: make(map[int]int)}
	t.start(ctx)
	defer func() { t.node.Kill() }()
	t.source = must.Get(t.node.AddSource(ctx, "gateway"))
	steady := must.Get(t.node.IssueToken(ctx, "Steady"))
	t.steady, t.steadyID = steady.AccessToken, steady.ID
	for n := range a.Count {
		must.Do(ctx.Err())
		if err := must.Caught(func() { t.sequence(ctx, n) }); err != nil {
			must.Fail("sequence %d, with the clock off by %s: %w", n+1, t.wall, err)
		}
	}
	t.jump(ctx, 0, 0)
	if err := must.Caught(func() { t.monotonic(ctx) }); err != nil {
		must.Fail("with the monotonic clock ahead by %s: %w", t.mono, err)
	}
	t.counted(ctx)
	a.Figure("jumps", float64(t.jumps), "")
	for _, status := range slices.Sorted(maps.Keys(t.queries)) {
		a.Figure(fmt.Sprintf("queries answered with %d", status), float64(t.queries[status]), "")
	}
	a.Figure("samples too far in the future, all to be refused", float64(t.early), "")
	for _, x := range []struct {
		status int
		what   string
	}{{http.StatusOK, "were valid"}, {http.StatusUnauthorized, "were refused"}} {
		a.Figure("times that secrets that expire "+x.what, float64(t.answers[x.status]), "")
		if t.answers[x.status] == 0 {
			a.Wrong("secrets that expire never %s, so the row proves nothing about them", x.what)
		}
	}
	must.Do(t.node.Stop())
}

// trial is a node whose clock the row sets, and what is known about it.
type trial struct {
	a      *row.Attempt
	rng    *rand.Rand
	clock  shifted
	node   *nodeprocess.Node
	source string
	// steady is a token that never expires and covers all vehicles and both operations, and
	// steadyID is its id. calls counts the queries that were made with it, for each day of the
	// node's clock.
	steady, steadyID string
	calls            map[int64]between

	wall, mono time.Duration // how far the node's clocks are ahead
	jumps      int
	answers    map[int]int // to secrets that expire, by status
	queries    map[int]int // all queries that were answered, by status
	early      int         // samples too far in the future
}

func (t *trial) start(ctx context.Context) {
	t.clock, t.wall, t.mono = shifted{}, 0, 0
	t.node = must.Get(nodeprocess.Start(ctx, nodeprocess.Options{
		Binary: t.a.Binary, Dir: t.a.Dir + "/data", Flags: []string{"--trusted-proxies", "127.0.0.1", "--max-age",
			maxAge.String()},
		Begin: func(cmd *exec.Cmd) error { return t.clock.start(cmd) },
	}))
	must.Do(t.node.AwaitReady(ctx, time.Minute))
}

// between is the range in which the node's count of one day's calls must lie. The field least
// leaves out the calls that were not answered or were made at midnight, because it is unknown
// whether the node has counted them for that day. The field most includes them.
type between struct{ least, most int64 }

// called records a query with the steady token. The parameters before and after are the node's
// times before and after the query.
func (t *trial) called(before, after time.Time, answered bool) {
	first, last := day(before), day(after)
	for d := first; d <= last; d++ {
		b := t.calls[d]
		if b.most++; answered && first == last {
			b.least++
		}
		t.calls[d] = b
	}
}

// day returns the number of a day in UTC.
func day(at time.Time) int64 { return at.Unix() / (24 * 60 * 60) }

// now returns the node's time.
func (t *trial) now() time.Time { return time.Now().Add(t.wall) }

// jump sets the node's clock, and waits until the node is ready again.
func (t *trial) jump(ctx context.Context, wall, mono time.Duration) {
	t.wall, t.mono = wall.Truncate(time.Second), mono.Truncate(time.Second)
	t.jumps++
	t.clock.set(t.wall, t.mono)
	must.Do(t.node.AwaitReady(ctx, time.Minute))
}

// ends are times around which number formats overflow.
var ends = []time.Time{
	time.Date(2038, 1, 19, 3, 14, 6, 0, time.UTC),
	time.Date(2038, 1, 19, 3, 14, 9, 0, time.UTC),
	time.Date(2106, 2, 7, 6, 28, 14, 0, time.UTC),
	time.Date(2106, 2, 7, 6, 28, 17, 0, time.UTC),
	time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC),
}

// next chooses how far ahead of the true time the node's clock is set next.
func (t *trial) next() time.Duration {
	either := time.Duration(1 - 2*t.rng.IntN(2))
	switch t.rng.IntN(8) {
	case 0:
		return 0
	case 1:
		return time.Until(ends[t.rng.IntN(len(ends))])
	case 2:
		return t.wall + either*time.Hour
	case 3:
		return t.wall + either*24*time.Hour
	case 4:
		return either * time.Hour
	case 5:
		return either * 24 * time.Hour
	case 6:
		return either * time.Duration(t.rng.Int64N(int64(72*time.Hour)))
	}
	return t.wall + either*time.Duration(2+t.rng.IntN(118))*time.Second
}

// sequence is one sequence of jumps with new tokens and a new car.
func (t *trial) sequence(ctx context.Context, n int) {
	t.jump(ctx, 0, 0)
	s := t.newScene(ctx, n)
	const jumps = 8
	for i := range jumps {
		if i > 0 {
			t.jump(ctx, t.next(), 0)
		}
		for _, part := range []func(context.Context){s.ends, s.report, s.limited, s.guess} {
			part(ctx)
			must.Do(ctx.Err())
		}
	}
}

// monotonic lets the monotonic clock jump ahead, and checks that the node soon works again.
func (t *trial) monotonic(ctx context.Context) {
	const once = "ONCE" // a car that reports only once, so that no later report restores it
	must.Do(nodeprocess.Until(ctx, time.Minute, t.works(once)))
	for i, ahead := range []time.Duration{time.Minute, time.Hour, 24 * time.Hour} {
		must.Do(ctx.Err())
		// The tasks that run every hour then run with the clock in 2038.
		t.wall, t.mono = time.Until(ends[0]).Truncate(time.Second), t.mono+ahead
		t.clock.set(t.wall, t.mono)
		t.jumps++
		// On the node and on the client, operations that wait for an answer time out at
		// once.
		began := time.Now()
		must.Do(nodeprocess.Until(ctx, 2*time.Minute, t.works("DURING")))
		took := time.Since(began)
		t.jump(ctx, 0, t.mono)
		if err := t.known(once)(ctx); err != nil {
			t.a.Wrong("a car that reported before the clock was ahead is unknown: %v", err)
		}
		t.a.Figure(fmt.Sprintf("until it answers and ingests again, with the monotonic clock %s ahead and the wall clock "+
			"in 2038", t.mono), math.Round(took.Seconds()*10)/10, "s")
		t.newScene(ctx, -1-i).ends(ctx)
	}
}

// works returns a function that returns an error if the node is not ready, or does not answer a
// query about a car that has just reported.
func (t *trial) works(vid string) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if err := t.node.Ready(ctx); err != nil {
			return err
		}
		if taken, status, err := t.post(ctx, vid, t.now()); err != nil || !taken {
			return fmt.Errorf("telemetry is answered %d, %w", status, err)
		}
		return t.known(vid)(ctx)
	}
}

// known returns a function that returns an error if the node does not answer a query about the car
// vid.
func (t *trial) known(vid string) func(context.Context) error {
	return func(ctx context.Context) error {
		a, err := t.ask(ctx, vid, t.steady, "")
		if err == nil && (a.HTTP != http.StatusOK || a.Reason != "") {
			err = fmt.Errorf("a query is answered %d, %q", a.HTTP, a.Reason)
		}
		return err
	}
}

// counted restarts the node at the true time and checks the node's count of today's calls.
func (t *trial) counted(ctx context.Context) {
	t.jump(ctx, 0, t.mono)
	must.Do(t.node.Stop())
	t.start(ctx)
	c := must.Get(t.node.AdminClient())
	today := int64(-1)
	var record ops.TokenRecord
	for today != day(time.Now()) { // again if midnight has passed
		today = day(time.Now())
		record = must.Get(c.Token(ctx, t.steadyID))
	}
	var sum int64
	for op := range record.Usage.Today.Calls {
		for _, n := range record.Usage.Today.Calls[op] {
			sum += n
		}
	}
	asked := t.calls[today]
	if sum < asked.least || sum > asked.most {
		t.a.Wrong("of the calls of today, which were %d, or %d with those that were not answered, %d are counted after a "+
			"restart", asked.least, asked.most, sum)
	}
	t.a.Figure("calls of today that were answered", float64(asked.least), "")
	t.a.Figure("calls that are counted for today after a restart", float64(sum), "")
}
