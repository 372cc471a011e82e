// Package load simulates the cars, developers and operators of a node that is about to be broken,
// and keeps a journal, outside the node, of everything that the node acknowledges. The node is
// compared with the journal: everything acknowledged must be present, and no event time may
// decrease. The package itself causes no faults.
package load

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"carstate/bench/must"
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

	// Numbers of queries, of those without an answer, and of what was acknowledged.
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

// Prepare adds the source and the token of the load. The node must be ready.
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

// Run puts load on the node until ctx or the node ends, and then ends all its goroutines.
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

// lines returns samples in the form in which a car sends them. The speed is a function of the
// vehicle and the time, so that a check can detect if the speed comes from another sample.
func lines(samples []sample) string {
	var b strings.Builder
	for _, s := range samples {
		fmt.Fprintf(&b, `{"vid":%q,"time":%d,"signals":{"Vehicle.Speed":%d,"Vehicle.OBD.ThrottlePosition":20}}`+"\n",
			s.vid, s.at*1000, s.speedKmh())
	}
	return b.String()
}

// MustHaveHappened reports what was acknowledged. A kind that never was is a finding.
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

// journal records what was sent and what was acknowledged. It is safe for concurrent use.
type journal struct {
	mu   sync.Mutex
	cars map[string]*car
	// one holds the vehicles with only one sample, in the order of their acknowledgements. If
	// such a sample is lost, no later sample can hide the loss. many holds all other vehicles
	// except barrierCar, because no check waits for the last samples of barrierCar.
	one, many []string
	records   []*record
	forgotten []string
}

// finding is an error in an answer, or "". If lost, something acknowledged is missing.
type finding struct {
	text string
	lost bool
}

// car is what is known about a vehicle. Times are event times in whole seconds, because
// Last-Modified has no finer resolution.
type car struct {
	offered      int64 // time of the newest sample that was sent
	acknowledged int64 // time of the newest sample that was acknowledged; 0: none
	seen         int64 // time of the newest sample that an answer included
	// unsure means that an operator requested to forget the vehicle, and the result is unknown.
	unsure, forgotten, lost bool
}

// record is what was acknowledged about a token or a source.
type record struct {
	group
	id     string // of a token; the name of a source
	secret string
	only   string    // the only vehicle that a token may query; "": all
	unsure bool      // an operation on it was not acknowledged; its result is unknown
	made   time.Time // of a token: when its issue was acknowledged
}

type sample struct {
	vid string
	at  int64 // s
}

func (s sample) speedKmh() int64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(s.vid)) // never fails
	return 60 + (int64(h.Sum32())+s.at)%30
}

func newJournal() *journal { return &journal{cars: make(map[string]*car)} }

// offer records samples before they are sent.
func (j *journal) offer(samples []sample) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, s := range samples {
		c := j.cars[s.vid]
		if c == nil {
			c = new(car)
			j.cars[s.vid] = c
		}
		c.offered = max(c.offered, s.at)
	}
}

// acknowledge records that samples were acknowledged.
func (j *journal) acknowledge(samples []sample) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, s := range samples {
		c := j.cars[s.vid]
		switch {
		case c.acknowledged != 0 || s.vid == barrierCar:
		case strings.HasPrefix(s.vid, "one"): // see fleet.once
			j.one = append(j.one, s.vid)
		default:
			j.many = append(j.many, s.vid)
		}
		c.acknowledged = max(c.acknowledged, s.at)
	}
}

// before returns what is known about a vehicle. It is called before the vehicle is queried.
func (j *journal) before(vid string) car {
	j.mu.Lock()
	defer j.mu.Unlock()
	if c := j.cars[vid]; c != nil {
		return *c
	}
	return car{}
}

// check compares an answer with the parameter was, which is what the journal knew before the query.
// settled means that everything acknowledged before the query must be visible.
func (j *journal) check(vid string, was car, a nodeprocess.Answer, settled bool) finding {
	j.mu.Lock()
	defer j.mu.Unlock()
	wrong := func(format string, args ...any) finding { return finding{text: fmt.Sprintf(format, args...)} }
	c := j.cars[vid]
	if c == nil {
		if a.Status != 0 {
			return wrong("%s has never reported and is answered for", vid)
		}
		return finding{}
	}
	at := a.Modified.Unix()
	switch {
	case a.HTTP != http.StatusOK:
		return wrong("%s is answered with %d", vid, a.HTTP)
	case was.forgotten && a.Status != 0:
		return wrong("%s was forgotten and is back", vid)
	case c.unsure || c.forgotten || c.lost:
		return finding{}
	case a.Status == 0 && settled && was.acknowledged != 0:
		c.lost = true
		return finding{fmt.Sprintf("%s was acknowledged with a sample of %s and is unknown", vid, clock(was.acknowledged)),
			true}
	case a.Status == 0 && was.seen != 0:
		return wrong("%s had a state of %s and is unknown now", vid, clock(was.seen))
	case a.Status == 0:
		return finding{}
	case a.Driving != "1":
		return wrong("%s drives normally, and the answer is %q", vid, a.Driving)
	case at > c.offered:
		return wrong("%s has a state of %s, but no such sample was sent", vid, clock(at))
	case settled && at < was.acknowledged:
		c.lost = true
		return finding{fmt.Sprintf("%s was acknowledged with a sample of %s, and its state is of %s", vid,
			clock(was.acknowledged), clock(at)), true}
	case at < was.seen:
		return wrong("%s went back in time: its state was of %s and is of %s", vid, clock(was.seen), clock(at))
	}
	c.seen = max(c.seen, at)
	return finding{}
}

func clock(s int64) string { return time.Unix(s, 0).UTC().Format(time.TimeOnly) }

// pick returns the newest acknowledged vehicles with a single sample, and random vehicles of all
// kinds. The parameters newest and any are the maximum numbers of the two groups.
func (j *journal) pick(rnd *rand.Rand, newest, any int) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	picked := slices.Clone(j.one[max(0, len(j.one)-newest):])
	all := slices.Concat(j.one, j.many)
	for range min(any, len(all)) {
		picked = append(picked, all[rnd.IntN(len(all))])
	}
	return picked
}

// all returns every vehicle with an acknowledged sample.
func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Concat(j.one, j.many)
}

// watched returns up to n vehicles that report repeatedly.
func (j *journal) watched(n int) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.many[:min(n, len(j.many))])
}

// group is a kind of records: of tokens or of sources, and whether they are revoked or removed.
type group struct{ source, gone bool }

// count returns the numbers of records, by their groups.
func (j *journal) count() map[group]int {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := make(map[group]int)
	for _, r := range j.records {
		n[r.group]++
	}
	return n
}

// newest returns copies of the n newest records of each group, the newest first.
func (j *journal) newest(n int) (found []record) {
	j.mu.Lock()
	defer j.mu.Unlock()
	of := make(map[group]int)
	for _, r := range slices.Backward(j.records) {
		if !r.unsure && of[r.group] < n {
			of[r.group]++
			found = append(found, *r)
		}
	}
	return found
}
