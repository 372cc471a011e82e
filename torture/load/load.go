package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"carstate/bench/must"
	"carstate/internal/access"
	"carstate/internal/nodeprocess"
	"carstate/torture/row"
)

// Flags are the flags of a node under load. A vehicle may send many samples in a second
// of real time, but its event times advance by one second per sample. So that they do
// not reach the future, they begin 23 hours in the past. The flag --max-age keeps the
// node from answering that they are stale.
var Flags = []string{"--max-age", "48h"}

// Numbers of concurrent senders and watchers.
const (
	posters     = 4   // goroutines that send by HTTP, each with its own fleet
	connections = 2   // by MQTT
	publishers  = 4   // goroutines on each MQTT connection, each with its own fleet
	fleetSize   = 150 // vehicles that report repeatedly
	watchers    = 2
)

// Load is the traffic of one attempt. It continues across restarts of the node.
type Load struct {
	a       *row.Attempt
	journal *journal
	fleets  []*fleet
	rnd     *rand.Rand // for checks
	choices *rand.Rand
	barrier int64 // time of barrierCar's newest sample, in s after base
	base    int64

	key, token string

	// Numbers of queries, of queries without an answer, and of acknowledged requests and
	// messages of telemetry.
	Asked, Unanswered, posted, published atomic.Int64
}

// ownSource is the name of the source with which the load sends telemetry.
const ownSource = "fleet"

// New returns a load whose random numbers depend on the attempt's seed.
func New(a *row.Attempt) *Load {
	l := &Load{a: a, journal: newJournal(), base: time.Now().Add(-23 * time.Hour).Unix()}
	l.rnd, l.choices = a.Rand(1), a.Rand(2)
	for i := range posters + connections*publishers {
		l.fleets = append(l.fleets, &fleet{rnd: a.Rand(10 + i), number: i, base: l.base, at: make([]int64, fleetSize)})
	}
	return l
}

// Prepare adds the source with which the load sends telemetry, and issues the token with which it
// queries. The node must be ready.
func (l *Load) Prepare(ctx context.Context, n *nodeprocess.Node) {
	l.key = must.Get(n.AddSource(ctx, ownSource))
	l.token = must.Get(n.IssueToken(ctx, "watcher")).AccessToken
}

func (l *Load) report(f finding) {
	if f.lost {
		l.a.Lost("%s", f.text)
	} else if f.text != "" {
		l.a.Wrong("%s", f.text)
	}
}

// Run puts load on the node until ctx or the node ends. It returns once all goroutines of the load
// have stopped.
func (l *Load) Run(ctx context.Context, n *nodeprocess.Node) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() {
		select {
		case <-n.Ended():
			cancel()
		case <-ctx.Done():
		}
	})
	for i := range posters {
		running.Go(func() { l.post(ctx, n, l.fleets[i]) })
	}
	for i := range connections {
		first := posters + i*publishers
		running.Go(func() { l.publish(ctx, n, i, l.fleets[first:first+publishers]) })
	}
	for i := range watchers {
		running.Go(func() { l.watch(ctx, n, i) })
	}
	running.Go(func() { l.operate(ctx, n) })
	running.Wait()
}

// fleet is the group of vehicles of one sender. The event times of a vehicle's samples increase.
type fleet struct {
	rnd    *rand.Rand
	number int
	base   int64
	at     []int64 // by vehicle: number of samples sent
	fresh  int
}

// single reports whether a vehicle sends only one sample.
func single(vid string) bool { return strings.HasPrefix(vid, "one") }

// again returns the next sample of a vehicle that reports repeatedly.
func (f *fleet) again(i int) sample {
	f.at[i]++
	return sample{fmt.Sprintf("many%dx%d", f.number, i), f.base + f.at[i]}
}

// once returns the only sample of a new vehicle.
func (f *fleet) once() sample {
	f.fresh++
	return sample{fmt.Sprintf("one%dx%d", f.number, f.fresh), f.base + f.rnd.Int64N(3600)}
}

// batch returns the samples of a POST.
func (f *fleet) batch() []sample {
	samples := make([]sample, 1+f.rnd.IntN(20))
	for i := range samples {
		if f.rnd.IntN(3) == 0 {
			samples[i] = f.once()
		} else {
			samples[i] = f.again(f.rnd.IntN(len(f.at)))
		}
	}
	return samples
}

// message returns the samples of an MQTT message, all of one vehicle.
func (f *fleet) message() []sample {
	if f.rnd.IntN(2) == 0 {
		return []sample{f.once()}
	}
	samples := make([]sample, 1+f.rnd.IntN(4))
	i := f.rnd.IntN(len(f.at))
	for k := range samples {
		samples[k] = f.again(i)
	}
	return samples
}

func lines(samples []sample) string {
	var b strings.Builder
	for _, s := range samples {
		b.WriteString(s.line())
	}
	return b.String()
}

// offer counts samples that are about to be sent.
func (l *Load) offer(samples []sample) {
	l.journal.offer(samples)
	l.a.Offered(len(samples))
}

// stored counts samples that were acknowledged.
func (l *Load) stored(samples []sample) {
	l.journal.acknowledge(samples)
	l.a.Acknowledged(len(samples))
}

// MustHaveHappened reports the numbers of acknowledged operations. It is a finding if there were none
// of a kind.
func (l *Load) MustHaveHappened() {
	n := l.journal.count()
	l.a.Some("HTTP requests acknowledged", int(l.posted.Load()))
	l.a.Some("MQTT messages acknowledged", int(l.published.Load()))
	l.a.Some("tokens issued", n[group{}]+n[group{gone: true}])
	l.a.Some("of them revoked", n[group{gone: true}])
	l.a.Some("sources added", n[group{source: true}]+n[group{source: true, gone: true}])
	l.a.Figure("of them removed", float64(n[group{source: true, gone: true}]), "")
}

// rest pauses briefly after a sender was refused. It reports whether ctx has not ended.
func rest(ctx context.Context) bool {
	row.Pause(ctx, 20*time.Millisecond)
	return ctx.Err() == nil
}

var everything = access.AllVehicles()
