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
	"slices"
	"sync"
	"time"

	"carstate/internal/nodeprocess"
)

// journal is what was sent and what was acknowledged. Safe for concurrent use.
type journal struct {
	mu   sync.Mutex
	cars map[string]*car
	// one holds the vehicles of a single sample, of which none can hide behind
	// another, in the order of their acknowledgements; many the others, but for
	// the barrier: of its last samples nobody waits until they are seen.
	one, many []string
	records   []*record
	forgotten []string
}

// finding is what is wrong with an answer; its text is "" if nothing is. lost: something
// was acknowledged and is not there.
type finding struct {
	text string
	lost bool
}

// How a row tells the findings that say that the load has lost something, for its
// controls.
const (
	LostSample = "lost: * was acknowledged with a sample of *, and its state is of *"
	LostCar    = "lost: * was acknowledged with a sample of * and is unknown"
	WentBack   = "wrong: * went back in time: its state was of * and is of *"
)

// car is what is known of a vehicle. Times are event times in whole seconds,
// because Last-Modified knows no others.
type car struct {
	offered      int64 // of the newest sample that was sent
	acknowledged int64 // of the newest that was acknowledged; 0: none was
	seen         int64 // of the newest that an answer rested on
	// unsure: it was asked to be forgotten, and nobody knows whether it is.
	unsure, forgotten, lost bool
}

// record is what was acknowledged of a token or a source.
type record struct {
	source bool
	id     string // of a token; a source's name
	secret string
	only   string    // the one vehicle that a token may ask for; "": all
	gone   bool      // revoked or removed
	unsure bool      // a deed was not acknowledged, and nobody knows whether it was done
	made   time.Time // acknowledged
}

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

func newJournal() *journal { return &journal{cars: make(map[string]*car)} }

// offer notes samples before they are sent.
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

// acknowledge notes that samples were acknowledged.
func (j *journal) acknowledge(samples []sample) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, s := range samples {
		c := j.cars[s.vid]
		switch {
		case c.acknowledged != 0 || s.vid == barrierCar:
		case single(s.vid):
			j.one = append(j.one, s.vid)
		default:
			j.many = append(j.many, s.vid)
		}
		c.acknowledged = max(c.acknowledged, s.at)
	}
}

// before is what an answer is held against: what was known before it was asked
// for.
func (j *journal) before(vid string) car {
	j.mu.Lock()
	defer j.mu.Unlock()
	if c := j.cars[vid]; c != nil {
		return *c
	}
	return car{}
}

// judge holds an answer against what was known before it was asked for. settled
// says that all that was acknowledged by then must be seen.
func (j *journal) judge(vid string, was car, a nodeprocess.Answer, settled bool) finding {
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
		return finding{fmt.Sprintf("%s was acknowledged with a sample of %s and is unknown", vid, clock(was.acknowledged)), true}
	case a.Status == 0 && was.seen != 0:
		return wrong("%s had a state of %s and is unknown now", vid, clock(was.seen))
	case a.Status == 0:
		return finding{}
	case a.Driving != "1":
		return wrong("%s drives normally, and the answer is %q", vid, a.Driving)
	case at > c.offered:
		return wrong("%s has a state of %s, of which no sample was sent", vid, clock(at))
	case settled && at < was.acknowledged:
		c.lost = true
		text := fmt.Sprintf("%s was acknowledged with a sample of %s, and its state is of %s", vid, clock(was.acknowledged), clock(at))
		if at < was.seen {
			text += fmt.Sprintf(" and went back in time: it was of %s", clock(was.seen))
		}
		return finding{text, true}
	case at < was.seen:
		return wrong("%s went back in time: its state was of %s and is of %s", vid, clock(was.seen), clock(at))
	}
	if at > c.seen {
		c.seen = at
	}
	return finding{}
}

func clock(s int64) string { return time.Unix(s, 0).UTC().Format(time.TimeOnly) }

// pick returns up to n vehicles that were acknowledged: the newest of one sample
// each first, then some of all.
func (j *journal) pick(rnd *rand.Rand, newest, any int) []string {
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
func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append(append([]string(nil), j.one...), j.many...)
}

// watched returns vehicles that report again and again.
func (j *journal) watched(n int) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]string(nil), j.many[:min(n, len(j.many))]...)
}

// count counts records of tokens or of sources.
func (j *journal) count(sources bool) (all, gone int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range j.records {
		if r.source == sources {
			if all++; r.gone {
				gone++
			}
		}
	}
	return all, gone
}

// newest returns copies of the records that are wanted, the newest first.
func (j *journal) newest(wanted func(*record) bool) (found []record) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range slices.Backward(j.records) {
		if !r.unsure && wanted(r) {
			found = append(found, *r)
		}
	}
	return found
}
