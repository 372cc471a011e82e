package road

import (
	"math"
	"math/bits"
	"time"

	"example.org/carstate/internal/vehicle"
)

// The limits of what a stretch remembers, and for how long. The numbers were chosen by reasoning,
// not by a search. On the simulated roads of docs/verdicts.md, no single one has much influence.
const (
	// The present traffic of a stretch is forgotten with the time constant presentDecay, or fastDecay
	// where the free flow is above fastKmh: the sums of the metres and seconds that cars drove on it
	// decay exponentially. On a street, the decay must average over the cycles of traffic lights.
	presentDecay, fastDecay, fastKmh = 180 * time.Second, 90 * time.Second, 65
	// voicesSeconds is the length of a counting period for cars, in seconds. A car is counted on a
	// stretch in the period in which it drove there and in the next period, so for 3 to 6 minutes.
	voicesSeconds = 180
	// fewestCars is the least number of cars that must drive on a stretch to show how traffic
	// moves there.
	fewestCars = 3
	// One source cannot raise the free flow above othersFactor times the fastest that others show in
	// the same quarter hour. At this factor, traffic that flows is still normal.
	othersFactor = 1.3
	// lateSeconds is the limit for late readings, in seconds. If a reading is more than lateSeconds
	// older than the newest reading of its stretch, it is not used for the present traffic.
	lateSeconds = 60
	// One passage of a car adds at most a certain time to the present traffic of a stretch, so that
	// a stationary car makes no jam for others. The limit is the time of capPassages passages in
	// light traffic, or capSeconds if that time is unknown. But the limit is never less than
	// capShare of the time that all cars have added.
	capPassages, capSeconds, capShare = 6, 30, 1.0 / 3

	// The free flow of a stretch, its speed in light traffic, is a quantile of the mean speeds of the
	// quarter hours in which at least fewestCars drove on it. quarterSeconds is the length of a
	// quarter hour, in seconds. A maximum would rise with every day of learning; a quantile does not.
	// As one quarter hour in seven is above it, a road that is jammed most of the day is still known
	// as it is when free.
	//
	// The quantile is estimated in constant memory: each quarter hour moves the estimate by a step
	// towards its own speed. The first steps are large. Once a stretch has been seen in some 20
	// quarter hours, a step is leastStep·freeQuantile up or leastStep·(1-freeQuantile) down, as a
	// share of the estimate. So three hours of roadworks a day are learned in a fortnight, and one
	// day changes the free flow by a tenth at most.
	quarterSeconds       = 15 * 60
	freeQuantile         = 0.85
	firstStep, leastStep = 0.4, 0.02
	// The largest of up to smallSample values is the best estimate of the quantile.
	smallSample = 3
	// A stretch is young until at least fewestCars drove there in each of youngQuarters quarter
	// hours. The free flow of a young stretch is a guess: at least streetKmh, the mean speed that a
	// street with traffic lights allows.
	youngQuarters = 4
	streetKmh     = 25
	// leastFreeKmh is assumed to be the lowest free flow of a road that is open to cars. If the
	// learned speed is lower, leastFreeKmh is used in its place.
	leastFreeKmh = 10

	// passageMetres is the shortest distance that a car must drive on a stretch to show how
	// fast it drove there.
	passageMetres = 30
	// usualMetres is the assumed distance that a car drives on a stretch, before cars have
	// shown it.
	usualMetres = 75
)

// stretch is what is known of one stretch of road. It has no pointers, so that the garbage
// collector need not scan it. It has only 88 bytes, because there are many stretches.
type stretch struct {
	name vehicle.Stretch

	// metres and seconds are sums of what cars drove here in the last few minutes. The sums decay
	// exponentially, and are valid at the time newest. newest is the time of the newest reading, in
	// seconds since 1970.
	metres, seconds float32
	newest          uint32
	// Time is divided into periods of voicesSeconds. voices has the cars seen in the period that
	// contains newest, and before has those seen in the preceding period. Each car sets one bit of
	// 32, by a hash of its id.
	voices, before uint32
	// crowd has those bits of voices and before that were set by cars which are a voice each.
	crowd uint32
	// If alone is set, only the source lead has driven here. Otherwise lead is the source that has
	// most of the seconds that sources added, and leadSeconds is at least the lead over all others.
	lead        uint32
	leadSeconds float32
	// since is the time of the last change of state, and passedFreely that of the newest passage that
	// was not slow, in seconds since 1970.
	since, passedFreely uint32

	// next are the two stretches that cars most often entered after this one. nextWeight is the
	// weight of each of the two: it increases when a car enters that next stretch, and decreases
	// when cars enter others (see passed).
	next       [2]place
	nextWeight [2]uint8
	voted      uint16 // voices of sources that passed in this quarter hour (see passed)

	// free is the free flow, in m/s: a running quantile of quarter hours (see freeQuantile). It is
	// zero if there were none.
	free         float32
	now          tally // of the quarter hour in progress
	quarter      uint8 // number of the quarter hour in progress since 1970, modulo 256
	quarters     uint8 // number of quarter hours added to the profile, at most 255
	lengthMetres uint8 // the usual length of a passage; 0: unknown
	freely       uint8 // 1 + the voice of the source that passed freely in this quarter hour
	state        vehicle.DrivingState
	changed      bool // since the profile was stored
	alone        bool
}

// place says where a stretch is stored. Its high bits are the number of the shard. Its low
// placeBits bits are the stretch's number in the shard plus one, so that zero can mean no stretch.
type place uint32

const placeBits = 26

// number returns the stretch's number in its shard.
func (p place) number() uint32 { return uint32(p&(1<<placeBits-1)) - 1 }

// add adds what a car drove to the present traffic and to the quarter hour in progress. It returns
// the source whose speeds of the quarter hour before were not believed, or 0.
func (s *stretch) add(e *evidence) (doubted uint32) {
	// A reading that is slightly older than the newest reading is counted in the quarter hour in
	// progress, even if it belongs to the quarter hour before. Otherwise, at the end of a quarter
	// hour, each pair of readings that arrived in the wrong order would end the quarter hour once
	// more.
	if quarter := uint8(e.Unix / quarterSeconds); quarter != s.quarter && e.Unix >= s.newest {
		doubted = s.endQuarter(&s.now)
		s.quarter, s.voted, s.freely = quarter, 0, 0
	}
	decay := float32(1)
	if e.Unix > s.newest {
		decay = float32(math.Exp(-float64(e.Unix-s.newest) / s.decay().Seconds()))
	}
	s.leadSeconds *= decay
	metres, seconds := s.limited(e, decay)
	s.now.add(e, metres, seconds)

	if e.Unix > s.newest {
		s.seconds = s.relaxed(e.Unix)
		s.metres *= decay
		s.seconds *= decay
		switch now, was := e.Unix/voicesSeconds, s.newest/voicesSeconds; {
		case now == was+1:
			s.before, s.voices = s.voices, 0
		case now > was:
			s.before, s.voices = 0, 0
		}
		s.newest = e.Unix
		s.crowd &= s.voices | s.before
	}
	s.metres = max(0, s.metres+metres)
	s.seconds += seconds
	s.voices |= 1 << e.Voice
	if e.Source == 0 {
		s.crowd |= 1 << e.Voice
	}
	if state := s.stateAt(e.Unix); state != s.state {
		s.state, s.since = state, e.Unix
	}
	return doubted
}

// limited returns the metres and seconds of a piece of evidence that are used. All cars of a source
// together add at most what one passage may add (see capPassages). Which source has most seconds is
// found by a majority vote (R. S. Boyer and J. S. Moore, 1981) with seconds as weights.
func (s *stretch) limited(e *evidence, decay float32) (metres, seconds float32) {
	metres, seconds = e.Metres, e.Seconds
	switch {
	case e.Source == 0:
	case e.Source == s.lead:
		if left := max(0, s.mostSeconds(s.seconds*decay)-s.leadSeconds); seconds > left {
			metres, seconds = metres*left/seconds, left
		}
		s.leadSeconds += seconds
	default:
		if s.leadSeconds -= seconds; s.leadSeconds < 0 {
			s.lead, s.leadSeconds = e.Source, -s.leadSeconds
		}
	}
	return metres, seconds
}

// capped returns the part of a car's passage, in metres and seconds, that is used for the present
// traffic. If the seconds exceed the limit (see capPassages), both are reduced by the same factor.
func (s *stretch) capped(metres, seconds float32) (float32, float32) {
	most := s.mostSeconds(s.seconds)
	if seconds <= most {
		return metres, seconds
	}
	return metres * most / seconds, most
}

// mostSeconds returns the limit for a passage (see capPassages), if all cars have added all seconds.
func (s *stretch) mostSeconds(all float32) float32 {
	most := float32(capSeconds)
	if free, _ := s.freeFlow(); free > 0 {
		most = capPassages * s.length() / free
	}
	return max(most, capShare*all)
}

// tally has sums of how far and how long cars drove on a stretch in a quarter hour.
type tally struct {
	metres, seconds float32
	// top is the source that drove fastest, and fastest its highest speed, if others were slower.
	// others is the highest speed of all others. Speeds are in units of 1/speedUnits m/s.
	top             uint32
	voices          uint16 // each voice sets one bit
	fastest, others uint8
}

const speedUnits = 3

// trustedGap is the time between two positions, in seconds, up to which the line between them is
// taken for the way of the car. A longer line has less weight in the free flow, because it cuts
// corners. So where some cars report often, they decide.
const trustedGap = 10

// add adds the metres and seconds that are used of e.
func (t *tally) add(e *evidence, metres, seconds float32) {
	weight := float32(min(1, trustedGap/max(1, float32(e.Gap))))
	t.metres += weight * metres
	t.seconds += weight * seconds
	t.voices |= 1 << (e.Voice % 16)
	speed := uint8(min(speedUnits*e.Metres/max(e.Seconds, 0.01), math.MaxUint8))
	switch {
	case e.Source != 0 && e.Source == t.top:
		t.fastest = max(t.fastest, speed)
	case e.Source != 0 && speed > t.fastest:
		t.top, t.fastest, t.others = e.Source, speed, max(t.others, t.fastest)
	default:
		t.others = max(t.others, speed)
	}
}

// speed returns the mean speed that is believed, in m/s, and the source that was faster (see
// othersFactor), or 0.
func (t *tally) speed() (metresPerSecond float32, doubted uint32) {
	mean := min(t.metres/t.seconds, fastestMetresPerSecond)
	if most := othersFactor / speedUnits * float32(t.others); t.fastest > t.others && mean > most {
		return most, t.top
	}
	return mean, 0
}

// enough reports whether enough cars drove to show how fast the road is.
func (t *tally) enough() bool { return t.seconds > 0 && bits.OnesCount16(t.voices) >= fewestCars }

// endQuarter adds the mean speed of a quarter hour to the stretch's profile, and clears t. If too
// few cars drove, it does nothing, so that the next quarter hour continues the sums: jams have more
// readings than free traffic, and must not be the only quarter hours with enough of them. It returns
// the source whose speeds were not believed, or 0.
func (s *stretch) endQuarter(t *tally) (doubted uint32) {
	if !t.enough() {
		return 0
	}
	mean, doubted := t.speed()
	s.quarters = max(s.quarters, s.quarters+1) // saturates at 255
	s.free = quantile(s.free, mean, s.quarters)
	s.changed = true
	*t = tally{}
	return doubted
}

// quantile returns the running quantile f after the n-th value x (see freeQuantile).
func quantile(f, x float32, n uint8) float32 {
	step := max(leastStep, firstStep/float32(n))
	switch {
	case n <= smallSample:
		return max(f, x)
	case x > f:
		return min(x, f*(1+step*freeQuantile))
	}
	return max(x, f*(1-step*(1-freeQuantile)))
}

// decay returns the time constant with which the present traffic is forgotten.
func (s *stretch) decay() time.Duration {
	if s.free > fastKmh/3.6 {
		return fastDecay
	}
	return presentDecay
}

// freeFlow returns the speed, in m/s, on the stretch in light traffic, and whether the stretch is
// young, so that the speed is a guess. If nothing is known, the speed is zero.
func (s *stretch) freeFlow() (metresPerSecond float32, young bool) {
	known := s.free
	if known == 0 && s.now.enough() {
		known, _ = s.now.speed()
	}
	if known == 0 {
		return 0, true
	}
	if s.quarters < youngQuarters {
		return max(known, streetKmh/3.6), true
	}
	return max(known, leastFreeKmh/3.6), false
}

// present returns the pace, in seconds per metre, at which cars drive on the stretch at a time, in
// seconds since 1970, and the bits that these cars set in voices. If there are fewer than
// fewestCars cars, ok is false and the pace is 0.
//
// If the source with the bit asker asks, it must not learn of a single car. So ok is also false
// unless the voices beside its own are two sources, or at least fewestCars cars.
func (s *stretch) present(unix, asker uint32) (pace float32, voices uint32, ok bool) {
	switch now, was := unix/voicesSeconds, s.newest/voicesSeconds; {
	case now <= was:
		voices = s.voices | s.before
	case now == was+1:
		voices = s.voices
	}
	others := voices &^ asker
	if bits.OnesCount32(voices) < fewestCars || s.seconds <= 0 ||
		bits.OnesCount32(others) < fewestCars && bits.OnesCount32(others&s.crowd) > 1 {
		return 0, voices, false
	}
	return 1 / min(max(s.metres/s.relaxed(unix), slowestMetresPerSecond), fastestMetresPerSecond), voices, true
}

// relaxed returns the sum of seconds as it is used at a time, in seconds since 1970. A jam without
// cars is over: once no car was seen for jamSilence, the time that cars took in excess of the time in
// light traffic is forgotten with the time constant jamFades. Where fewer than jamCars cars were at
// once, they are seen less often, and jamSilence is longer.
func (s *stretch) relaxed(unix uint32) float32 {
	const jamSilence, jamFades, jamCars = 45, 30, 2
	cars := s.seconds / float32(s.decay().Seconds())
	silent := float32(int64(unix)-int64(s.newest)) - jamSilence*max(1, jamCars/cars)
	free, _ := s.freeFlow()
	if silent <= 0 || free == 0 || s.metres >= free*s.seconds {
		return s.seconds
	}
	light := s.metres / free
	return light + (s.seconds-light)*float32(math.Exp(-float64(silent)/jamFades))
}

// slowestMetresPerSecond (0.7 km/h) is the lowest speed from which a pace is computed, so that the
// pace of stationary cars is finite.
const slowestMetresPerSecond = 0.2

// stateAt returns the driving state on the stretch at a time, in seconds since 1970. It is 0 if too
// few cars show it, or if the speed in light traffic is unknown.
func (s *stretch) stateAt(unix uint32) vehicle.DrivingState {
	free, _ := s.freeFlow()
	pace, _, ok := s.present(unix, 0)
	if !ok || free == 0 {
		return 0
	}
	return vehicle.StateOfShare(1 / (pace * free))
}

// passed adds a car's whole passage of the stretch, from which it entered next. The usual length of
// a passage is an exponentially weighted moving average with the weight 1/8. The two most frequent
// next stretches are stored, each with a weight, as in the Misra-Gries algorithm for heavy hitters:
// a passage to a third stretch halves the lower of the two weights. When that weight becomes zero,
// the third stretch replaces the one with that weight.
//
// Of a source, a late passage is ignored, and so are all but the first in a quarter hour. That a car
// passes freely is believed of a source once another one says so, too.
func (s *stretch) passed(e *evidence, next place) {
	if e.Source != 0 {
		voice := uint16(1) << (e.Voice % 16)
		if e.Unix+lateSeconds < s.newest || s.voted&voice != 0 {
			return
		}
		s.voted |= voice
	}
	if metres, seconds := e.FromMetres, e.FromSeconds; metres >= passageMetres && seconds > 0 {
		free, _ := s.freeFlow()
		switch freely := free > 0 && metres > vehicle.SlowShare*free*seconds; {
		case freely && (e.Source == 0 || s.freely != 0 && s.freely != e.Voice+1):
			s.passedFreely = max(s.passedFreely, e.Unix)
		case freely:
			s.freely = e.Voice + 1
		}
		if length := float32(s.lengthMetres); length == 0 {
			s.lengthMetres = uint8(min(metres, 255))
		} else {
			s.lengthMetres = uint8(min(length+(metres-length)/8+0.5, 255))
		}
	}
	for i, n := range s.next {
		if n == next || n == 0 {
			s.next[i] = next
			if s.nextWeight[i]++; s.nextWeight[i] == math.MaxUint8 { // both are halved, so that old passages lose weight
				s.nextWeight[0] /= 2
				s.nextWeight[1] /= 2
			}
			return
		}
	}
	rare := 0
	if s.nextWeight[1] < s.nextWeight[0] {
		rare = 1
	}
	if s.nextWeight[rare] /= 2; s.nextWeight[rare] == 0 {
		s.next[rare], s.nextWeight[rare] = next, 1
	}
}

// likeliest returns the place of the stretch that most cars entered after this one, or 0 if no car
// has entered another stretch yet.
func (s *stretch) likeliest() place {
	if s.nextWeight[1] > s.nextWeight[0] {
		return s.next[1]
	}
	return s.next[0]
}

func (s *stretch) length() float32 {
	if s.lengthMetres == 0 {
		return usualMetres
	}
	return float32(s.lengthMetres)
}
