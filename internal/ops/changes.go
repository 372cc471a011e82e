package ops

import (
	"context"
	"crypto/rand"
	"encoding/json/v2"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.org/carstate/internal/fleet"
	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

// Changes keeps the newest changes in memory for clients that follow them. Until the first client
// it does no work.
type Changes struct {
	fleet  *fleet.Table
	maxAge time.Duration
	now    func() time.Time
	run    string // ids of events begin with it, because each run numbers from 0

	// the last search for stale verdicts, in Unix milliseconds; 0: no client yet
	swept   atomic.Int64
	clients chan struct{} // one element for each client

	mu     sync.Mutex // guards the fields below
	newest []change   // change number n is in newest[n%keptChanges]
	next   int
}

type change struct {
	fleet.Listed
	at      signal.UnixMilli
	was, is ChangedStates
}

const (
	// keptChanges take about 12 MB
	keptChanges  = 1 << 16
	maxFollowers = 32
	// a search of 10 million vehicles takes about 50 ms
	staleEvery = 5 * time.Second

	followEvery = 250 * time.Millisecond
	atOnce      = 500
)

func NewChanges(f *fleet.Table, maxAge time.Duration, now func() time.Time) *Changes {
	return &Changes{fleet: f, maxAge: maxAge, now: now, run: rand.Text()[:8], clients: make(chan struct{}, maxFollowers)}
}

// Put takes the old states as they were at the last search for stale verdicts, because a verdict that
// has become stale since has no event yet. Thus Was of each event is Is of the vehicle's event before.
func (c *Changes) Put(id vehicle.ID, was, is fleet.Answer) {
	if swept := signal.UnixMilli(c.swept.Load()); swept != 0 {
		c.add(fleet.Listed{ID: id, Answer: is}, was, swept, signal.At(c.now()), func() bool { return true })
	}
}

// add keeps a change if holds, called with mu locked, returns true.
func (c *Changes) add(l fleet.Listed, was fleet.Answer, wasAt, at signal.UnixMilli, holds func() bool) {
	x := change{Listed: l, at: at}
	x.was.Driving, x.was.Throttle = was.States(wasAt, c.maxAge)
	x.is.Driving, x.is.Throttle = l.States(at, c.maxAge)
	if x.is == x.was {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !holds() {
		return
	}
	if c.next < keptChanges {
		c.newest = append(c.newest, x)
	} else {
		c.newest[c.next%keptChanges] = x
	}
	c.next++
}

// Forget removes the vid. It adds no event, because the vid may not be told any more.
func (c *Changes) Forget(id vehicle.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.newest {
		if c.newest[i].ID == id {
			c.newest[i] = change{}
		}
	}
}

func (c *Changes) Run(ctx context.Context) {
	for range periodic.NowAndEvery(ctx, staleEvery) {
		from, to := signal.UnixMilli(c.swept.Load()), signal.At(c.now())
		if from == 0 {
			continue
		}
		c.swept.Store(int64(to))
		for _, l := range c.fleet.ReadBetween(from.Add(-c.maxAge)-1, to.Add(-c.maxAge)-1) {
			// A vehicle that has reported or was forgotten meanwhile is not stale. If it reports after
			// this check, its event follows, because Put waits for mu.
			c.add(l, l.Answer, from, to, func() bool { return c.fleet.Get([]byte(l.ID)) == l.Answer })
		}
	}
}

// follow returns the number of the change after the event id, or that of the next change and why
// there is a gap.
func (c *Changes) follow(id string) (next int, gap string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.swept.CompareAndSwap(0, int64(signal.At(c.now())))
	if id == "" {
		return c.next, ""
	}
	run, number, _ := strings.Cut(id, "-")
	n, err := strconv.Atoi(number)
	switch {
	case err != nil || run != c.run || n < 0 || n > c.next:
		return c.next, "the id is of another node, or of this one before it started again"
	case n < c.next-keptChanges:
		return c.next, fmt.Sprintf("more than %d changes followed the id", keptChanges)
	}
	return n, ""
}

func (c *Changes) since(n int) (some []change, next int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n < c.next-keptChanges {
		return nil, n, false
	}
	for next = n; next < c.next && len(some) < atOnce; next++ {
		some = append(some, c.newest[next%keptChanges])
	}
	return some, next, true
}

type ChangedVehicle struct {
	ListedVehicle
	At  time.Time     `json:"at"`
	Was ChangedStates `json:"was"`
	Is  ChangedStates `json:"is"`
}

// ChangedStates are of fleet.DrivingStates and fleet.ThrottleStates.
type ChangedStates struct {
	Driving  string `json:"driving"`
	Throttle string `json:"throttle"`
}

type changeFilter struct{ driving, throttle []string }

func askedChanges(v url.Values) (f changeFilter, err error) {
	for name, values := range v {
		to, words := &f.driving, fleet.DrivingStates
		switch name {
		case "driving":
		case "throttle":
			to, words = &f.throttle, fleet.ThrottleStates
		default:
			return f, Refusalf(http.StatusBadRequest, "changes take driving and throttle")
		}
		*to = strings.Split(values[0], ",")
		if len(values) > 1 || slices.ContainsFunc(*to, func(s string) bool { return !slices.Contains(words, s) }) {
			return f, Refusalf(http.StatusBadRequest, "%s is given once, and is one or more of %s, separated by commas", name,
				strings.Join(words, ", "))
		}
	}
	return f, nil
}

func (f changeFilter) selects(x *change) bool {
	touches := func(states []string, was, is string) bool {
		return was != is && (slices.Contains(states, was) || slices.Contains(states, is))
	}
	return x.ID != "" && (f.driving == nil && f.throttle == nil ||
		touches(f.driving, x.was.Driving, x.is.Driving) || touches(f.throttle, x.was.Throttle, x.is.Throttle))
}

// ServeChanges sends events until [Operations.ServeEvents] ends, or valid returns false. After an
// error, nothing was sent.
func (p *Operations) ServeChanges(w http.ResponseWriter, r *http.Request, valid func() bool) error {
	c := p.cfg.Changes
	if err := p.mayList(); err != nil {
		return err
	}
	filter, err := askedChanges(r.URL.Query())
	if err != nil {
		return err
	}
	select {
	case c.clients <- struct{}{}:
		defer func() { <-c.clients }()
	default:
		return Refusalf(http.StatusServiceUnavailable, "%d clients follow the changes of this node, which is the most: end one",
			maxFollowers)
	}
	if r.Method == http.MethodHead { // must not begin the search for stale verdicts
		p.ServeEvents(w, r, "", nil)
		return nil
	}
	next, gap := c.follow(r.Header.Get("Last-Event-ID"))
	id := func() string { return fmt.Sprintf("id: %s-%d\n", c.run, next) }
	first := "retry: 2000\n" + id() + "\n"
	if gap != "" {
		first = fmt.Sprintf("retry: 2000\nevent: gap\n%sdata: {\"gap\":%q}\n\n", id(),
			gap+": read GET /v1/vehicles, then apply the events that follow") // ASCII, so it is quoted as in JSON
	}
	p.ServeEvents(w, r, first, func(silent bool) (text string, pause time.Duration, last bool) {
		if !valid() {
			return "", 0, true
		}
		some, after, ok := c.since(next)
		if !ok {
			return "", 0, true // the client's next request gets the gap
		}
		text = p.events(some, next, c.run, filter)
		if next = after; text == "" && silent {
			text = id() + "\n" // with a filter, the client's id would otherwise fall behind
		}
		if len(some) < atOnce {
			pause = followEvery
		}
		return text, pause, false
	})
	return nil
}

func (p *Operations) events(some []change, n int, run string, filter changeFilter) string {
	var b strings.Builder
	for i := range some {
		x := &some[i]
		if !filter.selects(x) {
			continue
		}
		// Marshal cannot fail here.
		text, _ := json.Marshal(ChangedVehicle{p.listedVehicle(x.Listed, x.at), x.at.Time(), x.was, x.is})
		fmt.Fprintf(&b, "event: change\nid: %s-%d\ndata: %s\n\n", run, n+i+1, text)
	}
	return b.String()
}
