package road

import (
	"math"
	"math/bits"
	"slices"
	"sync/atomic"
	"time"

	"example.org/carstate/internal/vehicle"
)

// The traffic on a car's likeliest way is examined up to aheadMetres beyond the place that the car
// reaches in light traffic in aheadSeconds and a quarter of its reporting interval. In evaluations,
// the true state of a car is that of the traffic from 300 m behind it to 300 m ahead.
const aheadMetres, aheadSeconds = 300, 4

// knownShare is the least share of a car's way, behind and ahead of it, on which the free flow (the
// speed in light traffic) must be known. If the share is less, nothing is concluded about the road.
const knownShare = 0.5

// Map holds what is known of each stretch of road: how fast cars drive there in light traffic, how
// fast they drive there now, and where they go next. It is safe for concurrent use. The zero Map is
// empty, with no limit to the number of stretches.
type Map struct {
	shards  [shards]shard
	dropped [NumDropped]atomic.Uint64
	judged  [vehicle.NumFreeFlowSources]atomic.Uint64
	refused atomic.Uint64
	doubts  doubts
	out     outbox
}

func (m *Map) shardOf(name vehicle.Stretch) *shard { return &m.shards[hashOf(name)%shards] }

// Bound sets the greatest number of stretches in the map: most, rounded down to a multiple of 64,
// but at least 64. Until Bound is called, there is no limit. A full map replaces stretches that one
// source alone has driven. If there are none, it ignores evidence of unknown stretches, and counts
// it in [Map.Refused].
func (m *Map) Bound(most int) {
	for i := range m.shards {
		sh := &m.shards[i]
		sh.mu.Lock()
		sh.most = uint32(min(max(1, most/shards), mostInShard))
		sh.mu.Unlock()
	}
}

// Refused returns how often the map ignored what a car showed of an unknown stretch, or a stored
// profile of such a stretch, because the map was full.
func (m *Map) Refused() uint64 { return m.refused.Load() }

// Fold folds a sample into the state of its vehicle, as [vehicle.State.Fold] does, and reports
// whether the state changed. Fold uses what the map knows of the car's road, and adds the car's
// evidence to the map.
func (m *Map) Fold(s *vehicle.State, x *vehicle.Sample) (changed bool) { return m.fold(s, x, true) }

// Refold is like Fold, but adds nothing to the map, because the sample's evidence was added before.
func (m *Map) Refold(s *vehicle.State, x *vehicle.Sample) (changed bool) { return m.fold(s, x, false) }

func (m *Map) fold(s *vehicle.State, x *vehicle.Sample, shows bool) (changed bool) {
	located := x.Time > s.Way.Time && x.Time >= s.PositionTime() && m.locate(s, x, shows)
	before := s.Time
	changed = s.Fold(x) || located
	if s.Time != before && s.Pace != 0 {
		m.judged[s.Traffic.Source].Add(1)
	}
	return changed
}

// Observe returns the state after a sample, and leaves s unchanged. [Map.Fold] changes the state in
// place.
func (m *Map) Observe(s vehicle.State, x vehicle.Sample) vehicle.State {
	m.Fold(&s, &x)
	return s
}

// locate extends the way in a car's state, the stretches that it drove last, to the position in a
// sample. It puts what is known of the road around the car into the state. Unless the car is not
// driving, it also adds to the map what the car drove since its last position, if shows is set. It returns whether it
// changed the state.
func (m *Map) locate(s *vehicle.State, x *vehicle.Sample, shows bool) bool {
	f, has, why := fixOf(s, x)
	if !has {
		return false
	}
	if why != NumDropped {
		m.dropped[why].Add(1)
		if why == Frozen && s.Way.SpeedKmh >= 0 {
			s.Way.SpeedKmh = -1 // so that the position is no fix when the speed returns to its value
			return true
		}
		return false
	}
	gap := uint8(min(f.time.Sub(s.Way.Time)/time.Second, math.MaxUint8))
	metres := math.Hypot(offset(float64(s.Way.Latitude), float64(s.Way.Longitude), f.latitude, f.longitude))
	var room [16]part
	driven := follow(&s.Way, f, room[:0])
	source, voice := voiceOf(x)
	if begin(s, f, metres); s.Way.OnRoad && shows {
		m.show(driven, x, source, voice, gap)
	}
	asker := uint32(1) << voice
	if source == 0 {
		asker = 0
	}
	s.Road = m.around(&s.Way, f.time, gap, s.Traffic.Cruise, asker)
	return true
}

// begin notes where a drive begins, and whether the car has left that place. A car that has not may
// be looking for a place to park. The fix before f, which follow has replaced by f, is metres away:
// a car that was far away before a silence is on its way.
func begin(s *vehicle.State, f fix, metres float64) {
	w := &s.Way
	silent := s.Traffic.At == 0 || f.time.Sub(s.Traffic.At) > mostGap
	if s.Driving().NotDriving || silent && !(s.Traffic.At != 0 && metres > leavesMetres) {
		w.OnRoad, w.FromLatitude, w.FromLongitude = false, float32(f.latitude), float32(f.longitude)
	}
	if f.kmh > leavesKmh && !w.Distrusted || w.LegKmh > leavesKmh ||
		math.Hypot(offset(float64(w.FromLatitude), float64(w.FromLongitude), f.latitude, f.longitude)) > leavesMetres {
		w.OnRoad = true
	}
}

// voiceOf returns the voice by which a sample's car is counted on a stretch: that of its source if
// the sender could invent cars, or its own, and then source is 0. The voice is a number from 0 to
// 31, the same on all nodes: the low bits of the source's number, or 5 bits of FNV-1a of the car's
// id. A sample without a source comes from a version that stored none.
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

// unixOf returns an event time in seconds since 1970, limited to the years 1970 to 2106.
func unixOf(t vehicle.UnixMilli) uint32 { return uint32(min(max(0, t/1000), math.MaxUint32)) }

// Readings that were older when they were stored teach nothing. nextHolds is the limit for what a
// source shows of the way ahead: with older readings, it could pass many times at once.
const (
	crowdHolds, sourceHolds = 28 * 24 * time.Hour, 24 * time.Hour
	nextHolds               = quarterSeconds * time.Second
)

// show adds how far and how long a car drove on each stretch to the map, and queues this evidence
// for other nodes. The gap is the time between the two positions, in seconds. Evidence that a full
// map refuses is not queued.
func (m *Map) show(driven parts, x *vehicle.Sample, source uint32, voice, gap uint8) {
	age, holds := time.Duration(0), crowdHolds
	if x.Stored != 0 {
		age = x.Stored.Sub(x.Time)
	}
	if source != 0 {
		holds = sourceHolds
	}
	if len(driven) > 0 && age > holds {
		m.doubts.add(x.Source, Old)
		return
	}
	for i := range driven {
		p := &driven[i]
		e := evidence{Stretch: p.stretch, Source: source, Voice: voice, Gap: gap, Unix: unixOf(x.Time)}
		if source == 0 || age <= nextHolds {
			e.From, e.FromMetres, e.FromSeconds = p.from.Stretch, p.from.Metres, p.from.Seconds
		}
		if m.apply(&e, func(st *stretch) {
			wasMetres, wasSeconds := st.capped(p.before.Metres, p.before.Seconds)
			metres, seconds := st.capped(p.before.Metres+p.metres, p.before.Seconds+p.seconds)
			// capped limits what one passage adds. If its limit has fallen since the last sample,
			// the difference is negative, and nothing is subtracted from the stretch, because other
			// cars may have added metres and seconds in the meantime.
			e.Metres, e.Seconds = max(0, metres-wasMetres), max(0, seconds-wasSeconds)
		}) {
			m.out.add(e)
		}
	}
}

// apply adds evidence, what a car drove on a stretch, to that stretch. It returns false if the map
// has no room for the stretch. First it calls bound, which may reduce the evidence, with the
// stretch locked. If bound is nil, all of the evidence is added.
func (m *Map) apply(e *evidence, bound func(*stretch)) bool {
	sh := m.shardOf(e.Stretch)
	sh.mu.Lock()
	st, at := sh.getAt(e.Stretch, e.Source)
	if st == nil {
		shared := sh.hasShare(e.Source)
		sh.mu.Unlock()
		if shared {
			m.doubts.add(e.Source, Share)
		} else {
			m.refused.Add(1)
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
		m.doubts.add(doubted, Fast)
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

// wayTally has sums of lengths and travel times: either of the stretches that a car has just
// driven, or of those ahead of it.
type wayTally struct {
	all, known, young float32 // metres: all; with a known free flow; with a guessed one
	free              float32 // s: travel time in light traffic, where it is known
	shown, present    float32 // s: travel time in light traffic and now, where cars drive now
	voices            uint32
	asker             uint32  // bit of the source whose car asks; 0 if each of its cars is a voice
	seconds, apart    float32 // the car's own time; metres on which it was clearly faster than the others
}

// own adds what the car itself drove on a stretch, as the way behind it, at the time unix.
func (t *wayTally) own(s *stretch, step *vehicle.WayStep, unix uint32) {
	t.add(s, step.Metres, unix)
	t.seconds += step.Seconds
	pace, _, ok := s.present(unix, t.asker)
	if ok && step.Metres > apartFactor*step.Seconds/pace && step.Metres > leavesKmh/3.6*step.Seconds {
		t.apart += step.Metres
	}
}

// A car drives in another stream of traffic than others on a stretch, such as on a road beside
// theirs, if it was faster by apartFactor than they are, faster than leavesKmh, and all the way
// behind it at steadyShare of the speed at which it cruises. After apartMetres of this, what the
// others show says nothing about it.
const apartFactor, apartMetres, steadyShare = 2, 150, 0.9

// add adds the given metres of a stretch at the time unix, in seconds since 1970.
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

// around returns what is known of the road behind and ahead of a car that cruises at the given
// speed between jams. Its last position was taken at the time at, gap seconds after the one before.
// If the free flow of too little of the road is known (knownShare), all fields but Time are zero.
func (m *Map) around(w *vehicle.Way, at vehicle.UnixMilli, gap uint8, cruiseKmh float32,
	asker uint32) vehicle.RoadAround {
	road := vehicle.RoadAround{Time: at}
	if w.Count == 0 {
		return road
	}
	unix := unixOf(at)
	behind, ahead := wayTally{asker: asker}, wayTally{asker: asker}
	here := m.find(w.Steps[0].Stretch)
	road.PassedFreely = vehicle.UnixMilli(here.passedFreely) * 1000
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
	// On a road where cars were never faster than on a slow street, the free flow may be that of a
	// jam that never ends, or of a yard. So it is a guess, of up to twice the learned speed.
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
	// A car that drives on as before, although others crawl where it was, is in another stream. After
	// a long gap, it may have driven another way than the line.
	if gap <= trustedGap && 3.6*behind.all > steadyShare*cruiseKmh*behind.seconds {
		road.Apart = min(behind.apart/apartMetres, 1)
	}
	if behind.shown > 0 || ahead.shown > 0 {
		road.Cars = carsOf(behind.voices | ahead.voices)
	}
	return road
}

// maxAhead is the greatest number of stretches that are examined ahead of a car.
const maxAhead = 16

// carsOf estimates how many cars set the bits in voices. Each car sets one of 32 bits, by a hash of
// its id, so several cars may have set the same bit. Linear counting (K.-Y. Whang et al., "A
// linear-time probabilistic counting algorithm for database applications", 1990) corrects for
// shared bits. The estimate is -32·ln(empty/32), where empty is the number of bits that are not
// set, or 0.5 if all are set.
func carsOf(voices uint32) uint8 {
	empty := max(0.5, float64(32-bits.OnesCount32(voices)))
	return uint8(math.Round(32 * math.Log(32/empty)))
}

// find returns a copy of a stretch, or the zero value if the map does not have it.
func (m *Map) find(name vehicle.Stretch) stretch {
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

// Len returns the number of known stretches.
func (m *Map) Len() (n int) {
	for i := range m.shards {
		sh := &m.shards[i]
		sh.mu.Lock()
		n += int(sh.count)
		sh.mu.Unlock()
	}
	return n
}

// Dropped returns the number of positions that were not accepted for the given reason.
func (m *Map) Dropped(why Dropped) uint64 { return m.dropped[why].Load() }

// Judged returns the number of folded samples after which the car had a driving state that used a
// free flow (speed in light traffic) from the given source. Samples of one car with the same time
// are counted once.
func (m *Map) Judged(by vehicle.FreeFlowSource) uint64 { return m.judged[by].Load() }

// Condition describes how traffic moves on a stretch at one time.
type Condition struct {
	Stretch vehicle.Stretch
	// State is the driving state of the traffic. It is 0 if too few cars show how traffic
	// moves, or if the speed in light traffic is unknown.
	State vehicle.DrivingState
	// SpeedKmh is the speed of the cars now, 0 if there are too few cars. FreeKmh is the speed in
	// light traffic, 0 if it is unknown.
	SpeedKmh, FreeKmh float64
	// Cars is an estimate of the number of cars on the stretch in the last 3 to 6 minutes; 0 if
	// there were fewer than three.
	Cars int
	// Young is set if FreeKmh is a guess, because at least three cars have driven on the stretch in
	// fewer than four quarter hours.
	Young bool
	// Since is when State took its present value; 0 if that is unknown.
	Since vehicle.UnixMilli
}

// Conditions calls yield for each stretch, with how traffic moves there at the given time, in no
// particular order, until yield returns false. It locks one shard at a time, and none while it
// calls yield.
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

// CountByState returns the number of stretches in each driving state, by the number of the state,
// with those that have none at 0. It leaves out stretches whose speed in light traffic is unknown.
func (m *Map) CountByState(at vehicle.UnixMilli) (n [4]int) {
	unix := unixOf(at)
	for i := range m.shards {
		sh := &m.shards[i]
		sh.mu.Lock()
		for k := range sh.count {
			s := sh.at(k)
			if free, _ := s.freeFlow(); free != 0 {
				n[s.stateAt(unix)]++
			}
		}
		sh.mu.Unlock()
	}
	return n
}

// Condition returns how traffic moves on one stretch at the given time; ok is false if the stretch
// is unknown.
func (m *Map) Condition(name vehicle.Stretch, at vehicle.UnixMilli) (c Condition, ok bool) {
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
			c.Since = vehicle.UnixMilli(s.since) * 1000
		}
	}
	return c
}
