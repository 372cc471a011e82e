package load

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"example.org/carstate/internal/nodeprocess"
)

type journal struct {
	mu   sync.Mutex
	cars map[string]*car
	// one holds the vehicles with only one sample, whose loss no later sample can hide, in the
	// order of their acknowledgements; many holds all others except barrierCar.
	one, many []string
	records   []*record
	forgotten []string
}

// finding is what is wrong with an answer; text is "" if nothing is.
type finding struct {
	text string
	lost bool
}

// car is what is known about a vehicle. Times are in whole seconds, as in Last-Modified.
type car struct {
	offered      int64 // time of the newest sample that was sent
	acknowledged int64 // time of the newest sample that was acknowledged; 0: none
	seen         int64 // time of the newest sample that an answer included
	// unsure: forgetting was requested, and its result is unknown. lost: a loss was reported,
	// so the vehicle is not checked again.
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

func newJournal() *journal { return &journal{cars: make(map[string]*car)} }

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

func (j *journal) before(vid string) car {
	j.mu.Lock()
	defer j.mu.Unlock()
	if c := j.cars[vid]; c != nil {
		return *c
	}
	return car{}
}

// check compares an answer with was, what the journal knew before the query. settled means that
// everything acknowledged must be visible.
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

// pick returns the newest vehicles with a single sample, and random vehicles of all kinds.
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

func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Concat(j.one, j.many)
}

func (j *journal) watched(n int) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.many[:min(n, len(j.many))])
}

// group is tokens or sources, and whether they are revoked or removed.
type group struct{ source, gone bool }

// newest returns the n newest records of each group whose state is sure, the newest first.
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
