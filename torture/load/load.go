package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"carstate/internal/access"
	"carstate/internal/nodeprocess"
	"carstate/torture/row"
)

// Flags are what a node under load is started with: the samples' times lie up to
// a day back, so that every vehicle can be given a new one each second.
var Flags = []string{"--max-age", "48h"}

// How many do it at once.
const (
	posters     = 4   // HTTP, each with a fleet of its own
	connections = 2   // MQTT
	publishers  = 4   // on each connection, each with a fleet of its own
	fleetSize   = 150 // vehicles that report again and again
	watchers    = 2
)

// Load is the traffic of one attempt. It goes on from one life of the node to the
// next.
type Load struct {
	a       *row.Attempt
	journal *journal
	fleets  []*fleet
	rnd     *rand.Rand // of whoever checks
	deeds   *rand.Rand
	barrier int64 // event time of the next barrier
	base    int64

	key, token string

	// How many queries were asked, and not answered; how many requests and messages of
	// telemetry were acknowledged.
	Asked, Unanswered, posted, published atomic.Int64
}

// source is the name of the load's own source.
const ownSource = "fleet"

// New prepares a load whose randomness is that of the attempt.
func New(a *row.Attempt) *Load {
	l := &Load{a: a, journal: newJournal(), base: time.Now().Add(-23 * time.Hour).Unix()}
	l.rnd = rand.New(rand.NewPCG(a.Seed, 1))
	l.deeds = rand.New(rand.NewPCG(a.Seed, 2))
	for i := range posters + connections*publishers {
		f := &fleet{rnd: rand.New(rand.NewPCG(a.Seed, uint64(10+i))), number: i, base: l.base}
		f.at = make([]int64, fleetSize)
		l.fleets = append(l.fleets, f)
	}
	return l
}

// Prepare gets the load its source and its token from a node that is ready.
func (l *Load) Prepare(ctx context.Context, n *nodeprocess.Node) (err error) {
	if l.key, err = n.AddSource(ctx, ownSource); err != nil {
		return err
	}
	t, err := n.IssueToken(ctx, "watcher")
	l.token = t.AccessToken
	return err
}

// report tells of a finding.
func (l *Load) report(f finding) {
	if f.lost {
		l.a.Lost("%s", f.text)
	} else if f.text != "" {
		l.a.Wrong("%s", f.text)
	}
}

func (l *Load) wrong(format string, args ...any) {
	l.a.Wrong(format, args...)
}

// Run loads the node until the context ends or the node does, and returns once
// everybody has stopped.
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

// fleet is the vehicles of one sender, whose times rise.
type fleet struct {
	rnd    *rand.Rand
	number int
	base   int64
	at     []int64 // by vehicle: how many samples it has sent
	fresh  int
}

// single vehicles send one sample in their life.
func single(vid string) bool { return strings.HasPrefix(vid, "one") }

// again is a sample of a vehicle that reports again and again.
func (f *fleet) again() sample {
	i := f.rnd.IntN(len(f.at))
	f.at[i]++
	return sample{fmt.Sprintf("many%dx%d", f.number, i), f.base + f.at[i]}
}

// another is the next sample of the same vehicle.
func (f *fleet) another(s sample) sample {
	var i int
	if _, err := fmt.Sscanf(s.vid, fmt.Sprintf("many%dx%%d", f.number), &i); err != nil {
		panic(err) // it is ours
	}
	f.at[i]++
	return sample{s.vid, f.base + f.at[i]}
}

// once is the only sample of a vehicle.
func (f *fleet) once() sample {
	f.fresh++
	return sample{fmt.Sprintf("one%dx%d", f.number, f.fresh), f.base + f.rnd.Int64N(3600)}
}

// sampled makes a batch for a POST.
func (f *fleet) batch() []sample {
	samples := make([]sample, 1+f.rnd.IntN(20))
	for i := range samples {
		if f.rnd.IntN(3) == 0 {
			samples[i] = f.once()
		} else {
			samples[i] = f.again()
		}
	}
	return samples
}

// message makes samples of one vehicle for an MQTT message.
func (f *fleet) message() []sample {
	if f.rnd.IntN(2) == 0 {
		return []sample{f.once()}
	}
	samples := []sample{f.again()}
	for range f.rnd.IntN(4) {
		samples = append(samples, f.another(samples[0]))
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

// MustHaveHappened finds it wrong if something was never acknowledged that the row
// is about: then the row says nothing about it.
func (l *Load) MustHaveHappened() {
	tokens, revoked := l.journal.count(false)
	sources, _ := l.journal.count(true)
	for _, x := range []struct {
		n    int64
		what string
	}{
		{l.posted.Load(), "no HTTP request"}, {l.published.Load(), "no MQTT message"},
		{int64(tokens), "no token"}, {int64(revoked), "no revocation"}, {int64(sources), "no source"},
	} {
		if x.n == 0 {
			l.a.Wrong("%s was acknowledged: the row says nothing about them", x.what)
		}
	}
}

// rest lets a sender that was refused wait a little. It reports whether to go on.
func rest(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(20 * time.Millisecond):
		return true
	}
}

var everything = access.AllVehicles()
