// Package load is what cars, developers and operators do to a node that is about
// to suffer, and the journal of what the node has acknowledged. The journal is kept
// here, outside the victim, and holds it to its word: what was acknowledged is
// there, and nothing goes back in time. It breaks nothing itself.
package load

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"carstate/internal/nodeprocess"
)

// Journal is what was sent and what was acknowledged. Safe for concurrent use.
type Journal struct {
	mu   sync.Mutex
	cars map[string]*car
	// one holds the vehicles of a single sample, of which none can hide behind
	// another, in the order of their acknowledgements; many the others.
	one, many []string
	tokens    []*token
	sources   []*source
	forgotten []string
	dead      []string // secrets of tokens that expired or were replaced
}

// car is what is known of a vehicle. Times are event times in whole seconds,
// because Last-Modified knows no others.
type car struct {
	offered      int64 // of the newest sample that was sent
	acknowledged int64 // of the newest that was acknowledged; 0: none was
	seen         int64 // of the newest that an answer rested on
	// unsure: it was asked to be forgotten, and nobody knows whether it is.
	unsure, forgotten, lost bool
}

// token and source are what was acknowledged of them. unsure: another deed was
// under way, and nobody knows whether it was done.
type (
	token struct {
		id, secret      string
		only            string // the one vehicle it may ask for; "": all
		revoked, unsure bool
	}
	source struct {
		name, key       string
		removed, unsure bool
	}
)

// sample is one reading of a vehicle.
type sample struct {
	vid string
	at  int64 // s
}

// line is the sample as a car sends it. Its speed follows from the vehicle and the
// time, so that a state can be told from that of another sample.
func (s sample) line() string {
	return fmt.Sprintf("{\"vid\":%q,\"time\":%d,\"signals\":{\"Vehicle.Speed\":%d,\"Vehicle.OBD.ThrottlePosition\":20}}\n", s.vid, s.at*1000, s.speedKmh())
}

func (s sample) speedKmh() int64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(s.vid)) // cannot fail
	return 60 + (int64(h.Sum32())+s.at)%30
}

func newJournal() *Journal { return &Journal{cars: make(map[string]*car)} }

// offer notes samples before they are sent.
func (j *Journal) offer(samples []sample) {
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

// acknowledge notes that samples were acknowledged.
func (j *Journal) acknowledge(samples []sample) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, s := range samples {
		c := j.cars[s.vid]
		if c.acknowledged == 0 {
			if single(s.vid) {
				j.one = append(j.one, s.vid)
			} else {
				j.many = append(j.many, s.vid)
			}
		}
		c.acknowledged = max(c.acknowledged, s.at)
	}
}

// before is what an answer is held against: what was known before it was asked
// for.
func (j *Journal) before(vid string) car {
	j.mu.Lock()
	defer j.mu.Unlock()
	if c := j.cars[vid]; c != nil {
		return *c
	}
	return car{}
}

// judge holds an answer against what was known before it was asked for. settled
// says that all that was acknowledged by then must be seen. It returns what is
// wrong, or "", and whether that is a loss.
func (j *Journal) judge(vid string, was car, a nodeprocess.Answer, settled bool) (finding string, lost bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	c := j.cars[vid]
	if c == nil {
		if a.Status != 0 {
			return fmt.Sprintf("%s has never reported and is answered for", vid), false
		}
		return "", false
	}
	at := a.Modified.Unix()
	switch {
	case a.HTTP != http.StatusOK:
		return fmt.Sprintf("%s is answered with %d", vid, a.HTTP), false
	case was.forgotten && a.Status != 0:
		return fmt.Sprintf("%s was forgotten and is back", vid), false
	case c.unsure || c.forgotten || c.lost:
		return "", false
	case a.Status == 0 && settled && was.acknowledged != 0:
		c.lost = true
		return fmt.Sprintf("%s was acknowledged with a sample of %s and is unknown", vid, clock(was.acknowledged)), true
	case a.Status == 0 && was.seen != 0:
		return fmt.Sprintf("%s had a state of %s and is unknown now", vid, clock(was.seen)), false
	case a.Status == 0:
		return "", false
	case a.Driving != "1":
		return fmt.Sprintf("%s drives normally, and the answer is %q", vid, a.Driving), false
	case at > c.offered:
		return fmt.Sprintf("%s has a state of %s, of which no sample was sent", vid, clock(at)), false
	case at < was.seen:
		return fmt.Sprintf("%s went back in time: its state was of %s and is of %s", vid, clock(was.seen), clock(at)), false
	case settled && at < was.acknowledged:
		c.lost = true
		return fmt.Sprintf("%s was acknowledged with a sample of %s, and its state is of %s", vid, clock(was.acknowledged), clock(at)), true
	}
	c.seen = max(c.seen, at)
	return "", false
}

func clock(s int64) string { return time.Unix(s, 0).UTC().Format(time.TimeOnly) }

// pick returns up to n vehicles that were acknowledged: the newest of one sample
// each first, then some of all.
func (j *Journal) pick(rnd *rand.Rand, newest, any int) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	picked := append([]string(nil), j.one[max(0, len(j.one)-newest):]...)
	for range any {
		i := rnd.IntN(len(j.one) + len(j.many) + 1)
		switch {
		case i < len(j.one):
			picked = append(picked, j.one[i])
		case i < len(j.one)+len(j.many):
			picked = append(picked, j.many[i-len(j.one)])
		}
	}
	return picked
}

// all returns every vehicle that was acknowledged.
func (j *Journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append(append([]string(nil), j.one...), j.many...)
}

// watched returns vehicles that report again and again.
func (j *Journal) watched(n int) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]string(nil), j.many[:min(n, len(j.many))]...)
}

// Counts says how much the journal holds.
func (j *Journal) Counts() (vehicles, tokens, revoked, sources, removed, forgotten int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, t := range j.tokens {
		if t.revoked {
			revoked++
		}
	}
	for _, s := range j.sources {
		if s.removed {
			removed++
		}
	}
	return len(j.one) + len(j.many), len(j.tokens), revoked, len(j.sources), removed, len(j.forgotten)
}
