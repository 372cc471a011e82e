package road

import (
	"math"
	"math/bits"
	"slices"
	"sync/atomic"

	"carstate/internal/vehicle"
)

// aheadMetres is how far ahead a car's likeliest way is looked at. A car is judged by
// the 300 m behind and ahead of it, and what is farther ahead is what it comes to next.
const aheadMetres = 450

// knownShare is the share of a car's way whose free flow must be known.
const knownShare = 0.5

// Map holds the stretches. Its methods may be called at the same time. The zero Map
// holds none.
type Map struct {
	shards  [shards]shard
	dropped [NumDropped]atomic.Uint64
	judged  [vehicle.NumFreeFlowSources]atomic.Uint64
	refused atomic.Uint64
	out     outbox
}

// Bound sets how many stretches the map holds at most, in steps of 64. Without
// it, there is no bound. Evidence of a stretch that is
// not in a full map is refused, and counted by [Map.Refused]: nothing that is known is
// dropped for it.
func (m *Map) Bound(most int) {
	for i := range m.shards {
		sh := &m.shards[i]
		sh.mu.Lock()
		sh.most = uint32(min(max(1, most/shards), mostInShard))
		sh.mu.Unlock()
	}
}

// Refused is how often evidence of an unknown stretch was refused because the map was
// full.
func (m *Map) Refused() uint64 { return m.refused.Load() }

// Observe folds a sample into the state of its vehicle, as [vehicle.Observe] does, and
// in the light of the road that the car is on. What the car shows of that road counts
// for others from then on.
func (m *Map) Observe(s vehicle.State, x vehicle.Sample) vehicle.State {
	if x.Time >= s.Time && x.Time > s.Way.Time {
		m.locate(&s, &x)
	}
	next := vehicle.Observe(s, x)
	if next.Time != s.Time && next.Pace != 0 {
		m.judged[next.Traffic.Source].Add(1)
	}
	return next
}

// locate moves a car to the fix of a sample, if it has one.
func (m *Map) locate(s *vehicle.State, x *vehicle.Sample) {
	f, has, why := fixOf(s, x)
	if !has {
		return
	}
	if why != NumDropped {
		m.dropped[why].Add(1)
		return
	}
	var driven parts
	follow(&s.Way, f, &driven)
	if !s.Driving().NotDriving {
		m.show(&driven, voiceOf(x.Vehicle), f.time)
	}
	s.Road = m.around(&s.Way, f.time)
}

// voiceOf is the number by which a vehicle counts on a stretch, the same on all nodes:
// 5 bits of FNV-1a.
func voiceOf(id vehicle.ID) uint8 {
	h := uint32(2166136261)
	for i := range len(id) {
		h = (h ^ uint32(id[i])) * 16777619
	}
	return uint8((h ^ h>>15) % 32)
}

// unixOf is an event time in seconds since 1970, from 1970 to 2106.
func unixOf(t vehicle.UnixMilli) uint32 { return uint32(min(max(0, t/1000), math.MaxUint32)) }

// show adds what a car drove to the stretches.
func (m *Map) show(driven *parts, voice uint8, at vehicle.UnixMilli) {
	for i := range driven.part[:driven.n] {
		p := &driven.part[i]
		e := evidence{stretch: p.stretch, voice: voice, unix: unixOf(at)}
		e.from, e.fromMetres, e.fromSeconds = p.from.Stretch, p.from.Metres, p.from.Seconds
		if m.apply(&e, func(st *stretch) {
			wasMetres, wasSeconds := st.capped(p.before.Metres, p.before.Seconds)
			metres, seconds := st.capped(p.before.Metres+p.metres, p.before.Seconds+p.seconds)
			// A cap does not take back metres that other cars showed since.
			e.metres, e.seconds = max(0, metres-wasMetres), max(0, seconds-wasSeconds)
		}) {
			m.out.add(e)
		}
	}
}

// evidence is what a car showed of a stretch between two fixes. Nodes send it to each
// other.
type evidence struct {
	stretch vehicle.Stretch
	contribution
	// from is the stretch that the car came from, if it came onto this one, and what it
	// drove there.
	from                    vehicle.Stretch
	fromMetres, fromSeconds float32
}

// apply takes in what a car of this or another node showed, and reports whether the map
// has room for it. If not nil, bound is called first, to settle how much of it counts on
// the stretch.
func (m *Map) apply(e *evidence, bound func(*stretch)) bool {
	sh := m.shardOf(e.stretch)
	sh.mu.Lock()
	st, at := sh.getAt(e.stretch)
	if st == nil {
		sh.mu.Unlock()
		m.refused.Add(1)
		return false
	}
	if bound != nil {
		bound(st)
	}
	if st.isLate(e.unix) {
		sh.addLate(at.number(), e.contribution)
	} else {
		st.add(e.contribution)
	}
	sh.mu.Unlock()
	if e.from == 0 {
		return true
	}
	sh = m.shardOf(e.from)
	sh.mu.Lock()
	if from, _ := sh.getAt(e.from); from != nil {
		from.passed(e.voice, e.fromMetres, e.fromSeconds, at)
	}
	sh.mu.Unlock()
	return true
}

// glimpse is what a look at a stretch tells.
type glimpse struct {
	free, pace float32 // m/s, s/m
	length     float32 // m
	voices     uint32
	next       place
	young, now bool // the free flow; pace and voices tell what is now
}

func (s *stretch) glimpse(unix uint32) (g glimpse) {
	g.free, g.young = s.freeFlow()
	g.pace, g.voices, g.now = s.present(unix)
	g.length, g.next = s.length(), s.likeliest()
	return g
}

// wayTally adds up what is known of a way, behind the car or ahead of it.
type wayTally struct {
	all, known, young float32 // m: of the way, with a known free flow, not seen free yet
	free              float32 // s: what the known part takes when traffic is light
	shown, present    float32 // s: the same of the part that cars show, and what that takes now
	voices            uint32
}

func (t *wayTally) add(g glimpse, metres float32) {
	t.all += metres
	if g.free == 0 {
		return
	}
	t.known += metres
	t.free += metres / g.free
	if g.young {
		t.young += metres
	}
	if g.now {
		t.shown += metres / g.free
		t.present += metres * g.pace
		t.voices |= g.voices
	}
}

// around is what is known of the road around a car at a time.
func (m *Map) around(w *vehicle.Way, at vehicle.UnixMilli) vehicle.RoadAround {
	road := vehicle.RoadAround{Time: at}
	if w.Count == 0 {
		return road
	}
	unix := unixOf(at)
	var behind, ahead wayTally
	here := m.look(w.Steps[0].Stretch, unix)
	behind.add(here, w.Steps[0].Metres)
	for _, step := range w.Steps[1:w.Count] {
		behind.add(m.look(step.Stretch, unix), step.Metres)
	}

	left := float32(aheadMetres)
	comes := max(0, here.length-w.Steps[0].Metres)
	var seen [maxAhead]place
	for n := 0; ; n++ {
		comes = min(comes, left)
		left -= comes
		ahead.add(here, comes)
		if left <= 0 || n == maxAhead || here.next == 0 || slices.Contains(seen[:n], here.next) {
			break
		}
		seen[n] = here.next
		here = m.lookAt(here.next, unix)
		comes = here.length
	}

	known := behind.known + ahead.known
	if behind.known == 0 || known < knownShare*(behind.all+ahead.all) {
		return road
	}
	road.FreeKmh = 3.6 * behind.known / behind.free
	road.FreeSecondsBehind = behind.free
	road.Young = behind.young+ahead.young > known/2
	if behind.shown > 0 {
		road.DelayBehind, road.ShownBehind = behind.present/behind.shown, behind.shown/behind.free
	}
	if ahead.shown > 0 {
		road.FreeSecondsAhead, road.DelayAhead = ahead.shown, ahead.present/ahead.shown
	}
	if behind.shown > 0 || ahead.shown > 0 {
		road.Cars = carsOf(behind.voices | ahead.voices)
	}
	return road
}

// maxAhead is the most stretches that are looked at ahead.
const maxAhead = 16

// carsOf estimates how many cars set so many of 32 bits (linear counting: K. Whang et
// al., "A linear-time probabilistic counting algorithm", 1990).
func carsOf(voices uint32) uint8 {
	empty := max(0.5, float64(32-bits.OnesCount32(voices)))
	return uint8(math.Round(32 * math.Log(32/empty)))
}

// look reads a stretch; nothing is known of one that is not there.
func (m *Map) look(name vehicle.Stretch, unix uint32) glimpse {
	sh := m.shardOf(name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	i, ok := sh.find(name)
	if !ok {
		return glimpse{}
	}
	return sh.at(i).glimpse(unix)
}

// lookAt reads the stretch at a place.
func (m *Map) lookAt(p place, unix uint32) glimpse {
	sh := &m.shards[p>>placeBits]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.at(p.number()).glimpse(unix)
}

// Len is how many stretches are known.
func (m *Map) Len() (n int) {
	for i := range m.shards {
		sh := &m.shards[i]
		sh.mu.Lock()
		n += int(sh.count)
		sh.mu.Unlock()
	}
	return n
}

// Dropped is how many positions were no fix, for a reason.
func (m *Map) Dropped(why Dropped) uint64 { return m.dropped[why].Load() }

// Judged is how many samples with a speed were judged by a source of the free flow.
func (m *Map) Judged(by vehicle.FreeFlowSource) uint64 { return m.judged[by].Load() }

// Condition is how traffic moves on a stretch.
type Condition struct {
	Stretch vehicle.Stretch
	// State is 0 if too few cars show it.
	State vehicle.DrivingState
	// SpeedKmh is that of the cars now, 0 if too few show it; FreeKmh that of light
	// traffic, 0 if it is not known.
	SpeedKmh, FreeKmh float64
	// Cars is how many showed it in the last 6 minutes.
	Cars int
	// Young is set if the stretch was not seen free yet.
	Young bool
	// Since is when State changed.
	Since vehicle.UnixMilli
}

// Conditions calls yield for each stretch at a time, in no order, until it returns
// false. Nobody is kept from the map for longer than one shard takes.
func (m *Map) Conditions(at vehicle.UnixMilli, yield func(Condition) bool) {
	unix := unixOf(at)
	for i := range m.shards {
		sh := &m.shards[i]
		var some []Condition
		sh.mu.Lock()
		for k := range sh.count {
			some = append(some, sh.at(k).condition(unix))
		}
		sh.mu.Unlock()
		for _, c := range some {
			if !yield(c) {
				return
			}
		}
	}
}

// Condition is how traffic moves on one stretch at a time; ok is false if it is not
// known.
func (m *Map) Condition(name vehicle.Stretch, at vehicle.UnixMilli) (c Condition, ok bool) {
	sh := m.shardOf(name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	i, ok := sh.find(name)
	if !ok {
		return c, false
	}
	return sh.at(i).condition(unixOf(at)), true
}

func (s *stretch) condition(unix uint32) Condition {
	g := s.glimpse(unix)
	c := Condition{Stretch: s.name, FreeKmh: 3.6 * float64(g.free), Young: g.young}
	if g.now {
		c.SpeedKmh, c.Cars = 3.6/float64(g.pace), int(carsOf(g.voices))
		if c.State = s.stateAt(unix); c.State == s.state {
			c.Since = vehicle.UnixMilli(s.since) * 1000
		}
	}
	return c
}
