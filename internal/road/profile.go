package road

import (
	"math"
	"math/bits"
	"time"

	"carstate/internal/vehicle"
)

// What a stretch remembers, and for how long. The numbers are reasoned, and were
// compared on the roads of docs/verdicts.md; none of them decides much.
const (
	// presentDecay is the time constant of what cars show now.
	presentDecay = 180 * time.Second
	// voicesSeconds is half of the time in which cars are counted.
	voicesSeconds = 180
	// fewestCars is from how many cars on a stretch tells others how traffic moves.
	fewestCars = 3
	// lateSeconds is how much older than the newest a reading may be to tell what is now.
	lateSeconds = 60
	// A car adds at most the time of capPassages in light traffic to what is known of a
	// stretch now, capSeconds where that is not known, or capShare of it where many cars
	// are: so that one that stands makes no jam for others.
	capPassages, capSeconds, capShare = 6, 30, 1.0 / 3

	// A free flow is the mean of the fastest quarter hours, an hour in all, in which at
	// least fewestCars drove.
	quarterSeconds = 15 * 60
	// periodSeconds is how long the fastest are gathered; those of the period before
	// count as well. So roadworks are learned in two to four weeks.
	periodSeconds = 14 * 24 * 3600
	// youngQuarters is how many quarter hours a stretch must have been seen, and
	// streetKmh how fast two cars must have been there, for its free flow to be believed.
	// Until then it is at least streetKmh, which a street allows with its lights, and
	// half of what its two fastest cars showed.
	youngQuarters = 4
	streetKmh     = 25
	// leastFreeKmh is what any road open to cars allows.
	leastFreeKmh = 10

	// passageMetres is the shortest passage from which a car's speed is taken.
	passageMetres = 30
	// usualMetres is the length of a stretch before cars have shown it.
	usualMetres = 75
)

// fastest is how many quarter hours make a free flow.
const fastest = 4

// stretch is what is known of one. It has no pointers, so that the garbage collector
// need not look at it, and 80 bytes, because there are many.
type stretch struct {
	name vehicle.Stretch

	// What cars show now, decayed to newest, which is in seconds since 1970.
	metres, seconds float32
	newest          uint32
	// The cars of voicesSeconds up to newest, and of as long before, one bit a car.
	voices, before uint32
	// since is when state changed.
	since uint32

	// The quarter hour under way.
	quarterMetres  float32
	quarterSeconds float32
	// next are the stretches that cars went on to, and nextWeight how often.
	next       [2]place
	nextWeight [2]uint8

	// best are the fastest quarter hours of this period, last those of the period
	// before, in cm/s; zero if there are fewer. free is the mean of the fastest.
	best, last [fastest]uint16
	free       uint16
	period     uint16 // number of the period since 1970
	// The cars of the quarter hour.
	quarterVoices uint16
	quarter       uint8 // its number since 1970, modulo 256
	quarters      uint8 // seen so far, at most 255
	// The fastest passage that two cars showed, and the fastest of all with its car:
	// one car alone may lie.
	fastestKmh, claimedKmh, claimant uint8
	lengthMetres                     uint8 // the usual passage; 0: not known
	state                            vehicle.DrivingState
	changed                          bool // since the profile was stored
}

// place is where a stretch is kept: its shard, and its number there plus one; zero is
// none.
type place uint32

// number is the stretch's number in its shard.
func (p place) number() uint32 { return uint32(p&(1<<placeBits-1)) - 1 }

// contribution is what a car adds to a stretch.
type contribution struct {
	metres, seconds float32
	voice           uint8
	unix            uint32 // seconds since 1970
}

// add takes in what a car shows.
func (s *stretch) add(c contribution) {
	// A reading that is hardly late belongs to the quarter hour under way, or each of two cars whose
	// readings cross at the end of one would begin another.
	if quarter := uint8(c.unix / quarterSeconds); quarter != s.quarter && c.unix >= s.newest {
		s.close()
		s.quarter = quarter
	}
	s.quarterMetres += c.metres
	s.quarterSeconds += c.seconds
	s.quarterVoices |= 1 << (c.voice % 16)

	if c.unix > s.newest {
		decay := float32(math.Exp(-float64(c.unix-s.newest) / presentDecay.Seconds()))
		s.metres *= decay
		s.seconds *= decay
		switch now, was := c.unix/voicesSeconds, s.newest/voicesSeconds; {
		case now == was+1:
			s.before, s.voices = s.voices, 0
		case now > was:
			s.before, s.voices = 0, 0
		}
		s.newest = c.unix
	}
	s.metres = max(0, s.metres+c.metres)
	s.seconds += c.seconds
	s.voices |= 1 << c.voice
	if state := s.stateAt(c.unix); state != s.state {
		s.state, s.since = state, c.unix
	}
}

// capped is what of a passage on the stretch counts, when a car has driven so far on it
// in so many seconds.
func (s *stretch) capped(metres, seconds float32) (float32, float32) {
	most := float32(capSeconds)
	if free, _ := s.freeFlow(); free > 0 {
		most = capPassages * s.length() / free
	}
	most = max(most, capShare*s.seconds)
	if seconds <= most {
		return metres, seconds
	}
	return metres * most / seconds, most
}

// isLate reports whether what a car showed at a time is too old to tell what is now.
func (s *stretch) isLate(unix uint32) bool { return unix+lateSeconds < s.newest }

// close ends the quarter hour under way.
func (s *stretch) close() {
	s.count(s.quarterMetres, s.quarterSeconds, s.quarterVoices)
	s.quarterMetres, s.quarterSeconds, s.quarterVoices = 0, 0, 0
}

// lateQuarter is a quarter hour of readings that come late, such as those of another day.
// They tell of free flow as well as any, since only the fastest quarter hours count.
type lateQuarter struct {
	quarter         uint32 // number since 1970
	metres, seconds float32
	voices          uint16
}

// count takes in a quarter hour, if enough cars showed it.
func (s *stretch) count(metres, seconds float32, voices uint16) {
	if !enough(seconds, voices) {
		return
	}
	if period := uint16(s.newest / periodSeconds); period != s.period {
		if s.best[0] != 0 {
			s.last, s.best = s.best, [fastest]uint16{}
		}
		s.period = period
	}
	speed := uint16(min(max(1, 100*metres/seconds), math.MaxUint16))
	for i, b := range s.best {
		if speed > b {
			copy(s.best[i+1:], s.best[i:])
			s.best[i] = speed
			break
		}
	}
	s.free = meanOfFastest(s.best, s.last)
	s.quarters = max(s.quarters, s.quarters+1) // it does not wrap around
	s.changed = true
}

// enough reports whether the cars of a quarter hour tell how fast the road is.
func enough(seconds float32, voices uint16) bool {
	return seconds > 0 && bits.OnesCount16(voices) >= fewestCars
}

// meanOfFastest is the mean of the fastest of two lists, each in falling order.
func meanOfFastest(a, b [fastest]uint16) uint16 {
	var sum, n uint32
	for i, j := 0, 0; n < fastest; n++ {
		next := max(a[i], b[j])
		if next == 0 {
			break
		}
		if next == a[i] {
			i++
		} else {
			j++
		}
		sum += uint32(next)
	}
	if n == 0 {
		return 0
	}
	return uint16(sum / n)
}

// freeFlow is the speed, in m/s, at which the stretch is driven when traffic is light,
// and whether it was not seen free yet; zero if nothing is known.
func (s *stretch) freeFlow() (metresPerSecond float32, young bool) {
	known := float32(s.free) / 100
	if known == 0 && enough(s.quarterSeconds, s.quarterVoices) {
		known = s.quarterMetres / s.quarterSeconds
	}
	known = min(known, fastestMetresPerSecond)
	if known == 0 {
		return 0, true
	}
	if s.quarters < youngQuarters || s.fastestKmh < streetKmh {
		return max(known, streetKmh/3.6, float32(s.fastestKmh)/3.6/2), true
	}
	return max(known, leastFreeKmh/3.6), false
}

// present is the pace, in seconds a metre, at which cars drive the stretch at a time,
// and the cars that show it, as bits; ok is false if they are too few.
func (s *stretch) present(unix uint32) (pace float32, voices uint32, ok bool) {
	switch now, was := unix/voicesSeconds, s.newest/voicesSeconds; {
	case now <= was:
		voices = s.voices | s.before
	case now == was+1:
		voices = s.voices
	}
	if bits.OnesCount32(voices) < fewestCars || s.seconds <= 0 {
		return 0, voices, false
	}
	return 1 / min(max(s.metres/s.seconds, slowestMetresPerSecond), fastestMetresPerSecond), voices, true
}

// slowestMetresPerSecond keeps a standstill finite: 0.7 km/h.
const slowestMetresPerSecond = 0.2

// stateAt is how traffic moves on the stretch at a time; 0 if too few cars show it or
// its free flow is not known.
func (s *stretch) stateAt(unix uint32) vehicle.DrivingState {
	free, _ := s.freeFlow()
	pace, _, ok := s.present(unix)
	if !ok || free == 0 {
		return 0
	}
	return vehicle.StateOfShare(1 / (pace * free))
}

// passed takes in a whole passage of a car.
func (s *stretch) passed(voice uint8, metres, seconds float32, next place) {
	if metres >= passageMetres && seconds > 0 {
		kmh := uint8(min(3.6*metres/seconds, 255))
		if both := min(kmh, s.claimedKmh); voice != s.claimant && both > s.fastestKmh {
			s.fastestKmh, s.changed = both, true
		}
		if kmh > s.claimedKmh {
			s.claimedKmh, s.claimant = kmh, voice
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
			if s.nextWeight[i]++; s.nextWeight[i] == math.MaxUint8 { // all of them age
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

// likeliest is where most cars went on to.
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
