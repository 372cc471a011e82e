package road

import (
	"math"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

// The way ahead ends aheadMetres beyond where the car will be after aheadSeconds and a quarter of
// its reporting interval. Evaluations judge by traffic from 300 m behind to 300 m ahead.
const aheadMetres, aheadSeconds = 300, 4

// Unless the free flow of this share of the way is known, nothing is concluded.
const knownShare = 0.5

// Map is safe for concurrent use. The zero Map is empty and without a limit.
type Map struct {
	// Judged counts driving states by the source of the free flow, once for each car and time.
	Judged  [driving.NumFreeFlowSources]atomic.Uint64
	Dropped [NumDropped]atomic.Uint64
	Refused atomic.Uint64

	shards [shards]shard
	out    outbox

	doubting sync.Mutex                   // guards doubts
	doubts   map[uint32][NumDoubts]uint64 // by source
}

func (m *Map) shardOf(name driving.Stretch) *shard { return &m.shards[hashOf(name)%shards] }

// Bound limits the stretches to most, a multiple of 64. A full map replaces those that one source
// alone has driven, or refuses new ones ([Map.Refused]). No other method may run meanwhile.
func (m *Map) Bound(most int) {
	for i := range m.shards {
		m.shards[i].most = uint32(min(max(1, most/shards), mostInShard))
	}
}

// Fold is [vehicle.State.Fold] with what the map knows. It adds what the car shows, unless the car
// has shown it before (again).
func (m *Map) Fold(s *vehicle.State, x *vehicle.Sample, again bool) (changed bool) {
	located := x.Time > s.Way.Time && x.Time >= s.Latest.PositionTime() && m.locate(s, x, again)
	before := s.Time
	changed = s.Fold(x) || located
	if s.Time != before && s.Pace != 0 {
		m.Judged[s.Traffic.Source].Add(1)
	}
	return changed
}

func (m *Map) locate(s *vehicle.State, x *vehicle.Sample, again bool) bool {
	f, has, why := fixOf(s, x)
	if !has {
		return false
	}
	if why != NumDropped {
		m.Dropped[why].Add(1)
		if why == Frozen && s.Way.SpeedKmh >= 0 {
			s.Way.SpeedKmh = -1 // so that the position is no fix when the speed returns to its value
			return true
		}
		return false
	}
	gap := uint8(min(f.time.Sub(s.Way.Time)/time.Second, math.MaxUint8))
	var room [16]part
	driven := follow(&s.Way, f, room[:0])
	source, voice := voiceOf(x)
	if begin(s, f); s.Way.OnRoad && !again {
		m.show(driven, x, source, voice, gap)
	}
	asker := uint32(1) << voice
	if source == 0 {
		asker = 0
	}
	s.Road = m.around(&s.Way, f.time, gap, s.Traffic.Cruise, asker)
	return true
}

// begin sets OnRoad: a car that has not left where its drive begins may be looking for a parking
// place. If the fix before f was far away, the car is on its way.
func begin(s *vehicle.State, f fix) {
	w := &s.Way
	silent := s.Traffic.At == 0 || f.time.Sub(s.Traffic.At) > mostGap && f.line <= leavesMetres
	if s.Driving().NotDriving || silent {
		w.OnRoad, w.FromLatitude, w.FromLongitude = false, float32(f.latitude), float32(f.longitude)
	}
	if f.kmh > leavesKmh && !w.Distrusted || w.LegKmh > leavesKmh ||
		math.Hypot(offset(float64(w.FromLatitude), float64(w.FromLongitude), f.latitude, f.longitude)) > leavesMetres {
		w.OnRoad = true
	}
}

// voiceOf returns the voice of the source if the sender could invent cars, or of the car, with
// source 0. It is the same on all nodes. Samples stored by an early version have no source.
func voiceOf(x *vehicle.Sample) (source uint32, voice uint8) {
	if x.Source != 0 && !x.Crowd {
		return x.Source, uint8(x.Source % 32)
	}
	id := x.Vehicle
	h := uint32(2166136261)
	for i := range len(id) {
		h = (h ^ uint32(id[i])) * 16777619
	}
	return 0, uint8((h ^ h>>15) % 32)
}

func unixOf(t signal.UnixMilli) uint32 { return uint32(min(max(0, t/1000), math.MaxUint32)) }

// Readings older than this when stored teach nothing. After nextHolds, those of a source teach no
// next stretch: dated back, one car's could count in many quarter hours at once.
const (
	crowdHolds, sourceHolds = 28 * 24 * time.Hour, 24 * time.Hour
	nextHolds               = quarterSeconds * time.Second
)

func (m *Map) show(driven []part, x *vehicle.Sample, source uint32, voice, gap uint8) {
	age, holds := time.Duration(0), crowdHolds
	if x.Stored != 0 {
		age = x.Stored.Sub(x.Time)
	}
	if source != 0 {
		holds = sourceHolds
	}
	if len(driven) > 0 && age > holds {
		m.doubt(x.Source, Old)
		return
	}
	for i := range driven {
		p := &driven[i]
		e := evidence{Stretch: p.stretch, Source: source, Voice: voice, Gap: gap, Unix: unixOf(x.Time)}
		if source == 0 || age <= nextHolds {
			e.From, e.FromMetres, e.FromSeconds = p.from.Stretch, p.from.Metres, p.from.Seconds
		}
		if m.apply(&e, func(st *stretch) {
			most := st.mostSeconds(st.seconds)
			wasMetres, wasSeconds := atMost(most, p.before.Metres, p.before.Seconds)
			metres, seconds := atMost(most, p.before.Metres+p.metres, p.before.Seconds+p.seconds)
			// If the seconds exceed most, the metres are scaled down with them. They may be fewer
			// than before if the car has slowed down; then none are added.
			e.Metres, e.Seconds = max(0, metres-wasMetres), max(0, seconds-wasSeconds)
		}) {
			m.out.add(e)
		}
	}
}

// apply adds evidence, which bound may first reduce under the lock of the stretch. It returns false
// if there is no room.
func (m *Map) apply(e *evidence, bound func(*stretch)) bool {
	sh := m.shardOf(e.Stretch)
	sh.mu.Lock()
	st, at := sh.getAt(e.Stretch, e.Source)
	if st == nil {
		shared := sh.hasShare(e.Source)
		sh.mu.Unlock()
		if shared {
			m.doubt(e.Source, Share)
		} else {
			m.Refused.Add(1)
		}
		return false
	}
	if bound != nil {
		bound(st)
	}
	var doubted uint32
	late := e.Unix+lateSeconds < st.newest
	if late {
		doubted = sh.addLate(at.number(), e)
	} else {
		doubted = st.add(e)
	}
	next := !st.alone && (e.Source == 0 || !late)
	sh.mu.Unlock()
	if doubted != 0 {
		m.doubt(doubted, Fast)
	}
	if e.From == 0 || !next {
		return true
	}
	sh = m.shardOf(e.From)
	sh.mu.Lock()
	if from, _ := sh.getAt(e.From, e.Source); from != nil {
		from.passed(e, at)
	}
	sh.mu.Unlock()
	return true
}

// wayTally is of the way behind a car, or ahead of it.
type wayTally struct {
	all, known, young float32 // m: all; with a known free flow; with a guessed one
	free              float32 // s in light traffic
	shown, present    float32 // s in light traffic and now, where cars are
	voices            uint32
	asker             uint32  // bit of the source whose car asks, or 0
	seconds, apart    float32 // the car's own time; metres on which it was clearly faster
}

func (t *wayTally) own(s *stretch, step *driving.WayStep, unix uint32) {
	t.add(s, step.Metres, unix)
	t.seconds += step.Seconds
	pace, _, ok := s.present(unix, t.asker)
	if ok && step.Metres > apartFactor*step.Seconds/pace && step.Metres > leavesKmh/3.6*step.Seconds {
		t.apart += step.Metres
	}
}

// A car is in another stream of traffic if it was faster than others by apartFactor and than
// leavesKmh, and drove at steadyShare of its cruising speed. After apartMetres so, others show
// nothing about it.
const apartFactor, apartMetres, steadyShare = 2, 150, 0.9

func (t *wayTally) add(s *stretch, metres float32, unix uint32) {
	t.all += metres
	free, young := s.freeFlow()
	if free == 0 {
		return
	}
	t.known += metres
	t.free += metres / free
	if young {
		t.young += metres
	}
	if pace, voices, ok := s.present(unix, t.asker); ok {
		t.shown += metres / free
		t.present += metres * pace
		t.voices |= voices
	}
}

// around returns what is known of the road, or only a Time if that is too little.
func (m *Map) around(w *driving.Way, at signal.UnixMilli, gap uint8, cruiseKmh float32,
	asker uint32) driving.RoadAround {
	road := driving.RoadAround{Time: at}
	if w.Count == 0 {
		return road
	}
	unix := unixOf(at)
	behind, ahead := wayTally{asker: asker}, wayTally{asker: asker}
	here := m.find(w.Steps[0].Stretch)
	road.PassedFreely = signal.UnixMilli(here.passedFreely) * 1000
	behind.own(&here, &w.Steps[0], unix)
	for i := range w.Steps[1:w.Count] {
		step := &w.Steps[1+i]
		s := m.find(step.Stretch)
		behind.own(&s, step, unix)
	}

	free, _ := here.freeFlow()
	left, comes := aheadMetres+free*(aheadSeconds+float32(gap)/4), float32(0)
	if here.name != 0 {
		comes = max(0, here.length()-w.Steps[0].Metres)
	}
	var seen [maxAhead]place
	for n := 0; ; n++ {
		comes = min(comes, left)
		left -= comes
		ahead.add(&here, comes, unix)
		next := here.likeliest()
		if left <= 0 || n == maxAhead || next == 0 || slices.Contains(seen[:n], next) {
			break
		}
		seen[n] = next
		here = m.at(next)
		comes = here.length()
	}

	known := behind.known + ahead.known
	if behind.known == 0 || known < knownShare*(behind.all+ahead.all) {
		return road
	}
	road.FreeKmh = 3.6 * behind.known / behind.free
	road.FreeSecondsBehind = behind.free
	road.Young = behind.young+ahead.young > known/2
	// Where cars were never fast, the free flow may be of an endless jam or a yard.
	if all := 3.6 * known / (behind.free + ahead.free); !road.Young && all < streetKmh {
		road.Young = true
		scale := min(streetKmh/all, 2)
		road.FreeKmh *= scale
		road.FreeSecondsBehind /= scale
		behind.free /= scale
		behind.shown /= scale
		ahead.shown /= scale
	}
	if behind.shown > 0 {
		road.DelayBehind, road.ShownBehind = behind.present/behind.shown, behind.shown/behind.free
	}
	if ahead.shown > 0 {
		road.FreeSecondsAhead, road.DelayAhead = ahead.shown, ahead.present/ahead.shown
	}
	// Others crawl, but this car drives on, so it is in other lanes. After a long gap between its
	// positions, it may not have driven on the straight line between them.
	if gap <= trustedGap && 3.6*behind.all > steadyShare*cruiseKmh*behind.seconds {
		road.Apart = min(behind.apart/apartMetres, 1)
	}
	if behind.shown > 0 || ahead.shown > 0 {
		road.Cars = carsOf(behind.voices | ahead.voices)
	}
	return road
}

const maxAhead = 16

// carsOf is linear counting (Whang et al., 1990).
func carsOf(voices uint32) uint8 {
	empty := max(0.5, float64(32-bits.OnesCount32(voices)))
	return uint8(math.Round(32 * math.Log(32/empty)))
}

func (m *Map) find(name driving.Stretch) stretch {
	sh := m.shardOf(name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if i, ok := sh.find(name); ok {
		return *sh.at(i)
	}
	return stretch{}
}

func (m *Map) at(p place) stretch {
	sh := &m.shards[p>>placeBits]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return *sh.at(p.number())
}

// all yields copies, without a lock.
func (m *Map) all(yield func(*stretch) bool) {
	var some []stretch
	for i := range m.shards {
		sh := &m.shards[i]
		some = some[:0]
		sh.mu.Lock()
		for _, page := range sh.pages {
			some = append(some, page[:]...)
		}
		some = some[:sh.count]
		sh.mu.Unlock()
		for k := range some {
			if !yield(&some[k]) {
				return
			}
		}
	}
}

func (m *Map) Len() (n int) {
	for i := range m.shards {
		sh := &m.shards[i]
		sh.mu.Lock()
		n += int(sh.count)
		sh.mu.Unlock()
	}
	return n
}

type Condition struct {
	Stretch           driving.Stretch
	State             driving.State // 0 if too few cars show it, or if the free flow is unknown
	SpeedKmh, FreeKmh float64       // 0 if unknown
	// About how many cars in the last 3 to 6 minutes; 0 if fewer than three.
	Cars int
	// FreeKmh is a guess: three cars drove here in fewer than four quarter hours.
	Young bool
	Since signal.UnixMilli // of State; 0 if unknown
}

// CountByState counts stretches by state, 0 for none, except those of unknown free flow.
func (m *Map) CountByState(at signal.UnixMilli) (n [4]int) {
	for s := range m.all {
		if c := s.condition(unixOf(at)); c.FreeKmh != 0 {
			n[c.State]++
		}
	}
	return n
}

func (m *Map) Condition(name driving.Stretch, at signal.UnixMilli) (c Condition, ok bool) {
	s := m.find(name)
	if s.name == 0 {
		return c, false
	}
	return s.condition(unixOf(at)), true
}

func (s *stretch) condition(unix uint32) Condition {
	c := Condition{Stretch: s.name}
	free, young := s.freeFlow()
	c.FreeKmh, c.Young = 3.6*float64(free), young
	if pace, voices, ok := s.present(unix, 0); ok {
		c.SpeedKmh, c.Cars = 3.6/float64(pace), int(carsOf(voices))
		if c.State = s.stateAt(unix); c.State == s.state {
			c.Since = signal.UnixMilli(s.since) * 1000
		}
	}
	return c
}
