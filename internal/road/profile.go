package road

import (
	"math"
	"math/bits"
	"time"

	"example.org/carstate/internal/driving"
)

// Reasoning chose these numbers, not a search. On the simulated roads of docs/verdicts.md, none has
// much influence alone.
const (
	// Time constants of the present traffic, fastDecay for a free flow above fastKmh; on a street,
	// the decay must average over the cycles of lights.
	presentDecay, fastDecay, fastKmh = 180 * time.Second, 90 * time.Second, 65
	// A car is counted in one such period and the next, so for 3 to 6 minutes.
	voicesSeconds = 180
	// Fewer cars show nothing.
	fewestCars = 3
	// One source can raise the free flow to at most this times the speed of the fastest other car,
	// so that flowing traffic is still normal.
	othersFactor = 1.3
	// Readings older than the newest by more than this are not used for the present traffic.
	lateSeconds = 60
	// The most seconds that one passage adds: those of capPassages in light traffic, or capSeconds
	// if that is unknown, but at least capShare of all seconds. So one stationary car makes no jam.
	capPassages, capSeconds, capShare = 6, 30, 1.0 / 3

	// The free flow is a quantile of the speeds of quarter hours with fewestCars. A maximum would
	// rise daily. One quarter hour in seven is above it, so a road jammed most of the day is still
	// known as it is when free.
	//
	// Each quarter hour moves the estimate by a step; from about the 20th on, by
	// leastStep·freeQuantile up or leastStep·(1-freeQuantile) down: three hours of roadworks a day
	// are learned in a fortnight.
	quarterSeconds       = 15 * 60
	freeQuantile         = 0.85
	firstStep, leastStep = 0.4, 0.02
	// The largest of so few quarter hours is the best estimate.
	smallSample = 3
	// After fewer quarter hours, free flow is a guess: at least the mean speed of a street with
	// lights.
	youngQuarters = 4
	streetKmh     = 25
	leastFreeKmh  = 10 // of an open road

	// A shorter passage does not show a speed.
	passageMetres = 30
	usualMetres   = 75 // of a passage, if unknown
)

// stretch has no pointers, for the garbage collector, and only 88 bytes.
type stretch struct {
	name driving.Stretch

	metres, seconds float32 // decaying sums at newest
	newest          uint32
	voices, before  uint32 // cars of the period that contains newest, and of the one before
	crowd           uint32 // those of their bits that single cars set; the others are of sources
	// lead is a source (see limited); if alone, none other drove here.
	lead                uint32
	leadSeconds         float32
	since, passedFreely uint32 // when state began, and a passage was last not slow

	next       [2]place // the two stretches most often entered from here
	nextWeight [2]uint8
	voted      uint16 // voices of sources in this quarter hour

	free         float32 // m/s; 0 if there was no quarter hour
	now          tally   // of the quarter hour in progress
	quarter      uint8   // since 1970, modulo 256
	quarters     uint8   // quarter hours in the profile, at most 255
	lengthMetres uint8   // of a passage; 0: unknown
	freely       uint8   // 1 + the voice of the source that passed freely in this quarter hour
	state        driving.State
	changed      bool // since the profile was stored
	alone        bool
}

// The low placeBits of a place are the number of a stretch in its shard, plus one; those above, the
// number of the shard. Zero is no place.
type place uint32

const placeBits = 26

func (p place) number() uint32 { return uint32(p&(1<<placeBits-1)) - 1 }

// add returns the source whose speed was limited (see tally.speed), or 0.
func (s *stretch) add(e *evidence) (doubted uint32) {
	// Older evidence ends no quarter hour, or each pair in the wrong order would end one.
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

// All cars of a source add at most what one passage may. A majority vote (Boyer and Moore, 1981)
// makes lead the source with more than half of the sources' seconds, if there is one.
func (s *stretch) limited(e *evidence, decay float32) (metres, seconds float32) {
	metres, seconds = e.Metres, e.Seconds
	switch {
	case e.Source == 0:
	case e.Source == s.lead:
		metres, seconds = atMost(s.mostSeconds(s.seconds*decay)-s.leadSeconds, metres, seconds)
		s.leadSeconds += seconds
	default:
		if s.leadSeconds -= seconds; s.leadSeconds < 0 {
			s.lead, s.leadSeconds = e.Source, -s.leadSeconds
		}
	}
	return metres, seconds
}

func atMost(most, metres, seconds float32) (float32, float32) {
	if most = max(0, most); seconds <= most {
		return metres, seconds
	}
	return metres * most / seconds, most
}

func (s *stretch) mostSeconds(all float32) float32 {
	most := float32(capSeconds)
	if free, _ := s.freeFlow(); free > 0 {
		most = capPassages * s.length() / free
	}
	return max(most, capShare*all)
}

type tally struct {
	metres, seconds float32
	// top is the source that drove fastest; fastest is its highest speed, and others that of all
	// others, in 1/speedUnits m/s.
	top             uint32
	voices          uint16 // each voice sets one bit
	fastest, others uint8
}

const speedUnits = 3

// Positions up to trustedGap seconds apart show the way. With a longer gap, the line cuts corners
// and weighs less, so cars that report often decide.
const trustedGap = 10

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

// speed returns the mean, at most othersFactor times others, and the source that was above, or 0.
func (t *tally) speed() (metresPerSecond float32, doubted uint32) {
	mean := min(t.metres/t.seconds, fastestMetresPerSecond)
	if most := othersFactor / speedUnits * float32(t.others); t.fastest > t.others && mean > most {
		return most, t.top
	}
	return mean, 0
}

func (t *tally) enough() bool { return t.seconds > 0 && bits.OnesCount16(t.voices) >= fewestCars }

// With too few cars, the next quarter hour continues the sums: jams, which have more readings, must
// not be alone in having enough. endQuarter returns the source that was limited, or 0.
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

// quantile returns the running quantile f after the n-th value x.
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

func (s *stretch) decay() time.Duration {
	if s.free > fastKmh/3.6 {
		return fastDecay
	}
	return presentDecay
}

// freeFlow returns 0 if nothing is known.
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

// present returns the pace in s/m, and the voices. A source must not learn of a single car, so
// beside the bit asker, fewestCars are needed, or two of which one is a source.
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

// relaxed ends a jam without cars: after jamSilence, the seconds beyond those of light traffic
// fade. Where fewer than jamCars were at once, cars come less often, so the silence must be longer.
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

// slowestMetresPerSecond, 0.7 km/h, keeps the pace of stationary cars finite.
const slowestMetresPerSecond = 0.2

// stateAt returns 0 if too few cars show a state, or if the free flow is unknown.
func (s *stretch) stateAt(unix uint32) driving.State {
	free, _ := s.freeFlow()
	pace, _, ok := s.present(unix, 0)
	if !ok || free == 0 {
		return 0
	}
	return driving.StateOfShare(1 / (pace * free))
}

// The Misra-Gries algorithm keeps the two most frequent next stretches. Of a source that is one
// voice, only the first passage in a quarter hour counts, and no late one. That its car passes
// freely is believed once another source says so, too.
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
		switch freely := free > 0 && metres > driving.SlowShare*free*seconds; {
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
			if s.nextWeight[i]++; s.nextWeight[i] == math.MaxUint8 { // so that old passages lose weight
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
