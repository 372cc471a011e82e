package road

import (
	"math"
	"math/bits"
	"time"

	"carstate/internal/vehicle"
)

// The limits of what a stretch remembers, and for how long. The numbers were chosen by reasoning,
// not by a search. They were varied in 69 random draws on the simulated roads of docs/verdicts.md,
// where no single number had much influence.
const (
	// presentDecay is the time constant with which the present traffic of a stretch is forgotten:
	// the sums of the metres and seconds that cars drove on it decay exponentially.
	presentDecay = 180 * time.Second
	// voicesSeconds is the length of a counting period for cars, in seconds. A car is counted on a
	// stretch in the period in which it drove there and in the next period, so for 3 to 6 minutes.
	voicesSeconds = 180
	// fewestCars is the least number of cars that must drive on a stretch to show how traffic
	// moves there.
	fewestCars = 3
	// lateSeconds is the limit for late readings, in seconds. If a reading is more than lateSeconds
	// older than the newest reading of its stretch, it is not used for the present traffic.
	lateSeconds = 60
	// One passage of a car adds at most a certain time to the present traffic of a stretch, so that
	// a stationary car makes no jam for others. The limit is the time of capPassages passages in
	// light traffic, or capSeconds if that time is unknown. But the limit is never less than
	// capShare of the time that all cars have added.
	capPassages, capSeconds, capShare = 6, 30, 1.0 / 3

	// The free flow of a stretch, its speed in light traffic, is the mean speed of the fastest of
	// the quarter hours in which at least fewestCars drove on it. The constant fastest is their
	// number, and quarterSeconds is the length of a quarter hour, in seconds.
	quarterSeconds, fastest = 15 * 60, 4
	// periodSeconds is the length of a period, in seconds. The free flow is computed from the
	// quarter hours of the present period and of the previous one. So when roadworks make a road
	// slower, their speed is learned in two to four weeks.
	periodSeconds = 14 * 24 * 3600
	// A stretch is young until at least fewestCars drove there in each of youngQuarters quarter
	// hours, and two different cars reached streetKmh. The free flow of a young stretch is a guess.
	// The guess is at least streetKmh, the mean speed that a street with traffic lights allows, and
	// at least half of the highest speed that two different cars reached.
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
// collector need not scan it. It has only 80 bytes, because there are many stretches.
type stretch struct {
	name vehicle.Stretch

	// metres and seconds are sums of what cars drove here in the last few minutes. The sums decay
	// exponentially, and are valid at the time newest. newest is the time of the newest reading, in
	// seconds since 1970.
	metres, seconds float32
	newest          uint32
	// Time is divided into periods of voicesSeconds. The field voices has the cars seen in the
	// period that contains newest, and before has those seen in the preceding period. Each car
	// sets one bit of 32, by a hash of its id.
	voices, before uint32
	// since is the time of the last change of the driving state (the field state), in seconds since
	// 1970.
	since uint32

	// quarterMetres and quarterSeconds are how far and how long cars drove here in the quarter hour
	// in progress.
	quarterMetres  float32
	quarterSeconds float32
	// next are the two stretches that cars most often entered after this one. nextWeight is the
	// weight of each of the two: it increases when a car enters that next stretch, and decreases
	// when cars enter others (see passed).
	next       [2]place
	nextWeight [2]uint8

	// best has the speeds, in cm/s, of the fastest quarter hours of the present period of two weeks
	// (see periodSeconds), and last has those of the period before. An entry is zero if there are
	// fewer. The field free is the mean of the four fastest of both.
	best, last [fastest]uint16
	free       uint16
	period     uint16 // number of the period since 1970
	// quarterVoices has the cars seen in the quarter hour in progress. Each car sets one bit of 16,
	// by a hash of its id.
	quarterVoices uint16
	quarter       uint8 // number of the quarter hour in progress since 1970, modulo 256
	quarters      uint8 // number of quarter hours added to the profile, at most 255
	// fastestKmh is the highest mean speed, over the whole stretch, that two different cars
	// reached. claimedKmh is the highest that any car reached, and claimant the voice (hash) of
	// that car. A speed that only one car reached is not used, because its source may lie.
	fastestKmh, claimedKmh, claimant uint8
	lengthMetres                     uint8 // the usual length of a passage; 0: unknown
	state                            vehicle.DrivingState
	changed                          bool // since the profile was stored
}

// place says where a stretch is stored. Its high bits are the number of the shard. Its low
// placeBits bits are the stretch's number in the shard plus one, so that zero can mean no stretch.
type place uint32

const placeBits = 26

// number returns the stretch's number in its shard.
func (p place) number() uint32 { return uint32(p&(1<<placeBits-1)) - 1 }

// add adds what a car drove to the present traffic and to the quarter hour in progress.
func (s *stretch) add(e *evidence) {
	// A reading that is slightly older than the newest reading is counted in the quarter hour in
	// progress, even if it belongs to the quarter hour before. Otherwise, at the end of a quarter
	// hour, each pair of readings that arrived in the wrong order would end the quarter hour once
	// more.
	if quarter := uint8(e.Unix / quarterSeconds); quarter != s.quarter && e.Unix >= s.newest {
		s.addQuarter(s.quarterMetres, s.quarterSeconds, s.quarterVoices)
		s.quarterMetres, s.quarterSeconds, s.quarterVoices, s.quarter = 0, 0, 0, quarter
	}
	s.quarterMetres += e.Metres
	s.quarterSeconds += e.Seconds
	s.quarterVoices |= 1 << (e.Voice % 16)

	if e.Unix > s.newest {
		decay := float32(math.Exp(-float64(e.Unix-s.newest) / presentDecay.Seconds()))
		s.metres *= decay
		s.seconds *= decay
		switch now, was := e.Unix/voicesSeconds, s.newest/voicesSeconds; {
		case now == was+1:
			s.before, s.voices = s.voices, 0
		case now > was:
			s.before, s.voices = 0, 0
		}
		s.newest = e.Unix
	}
	s.metres = max(0, s.metres+e.Metres)
	s.seconds += e.Seconds
	s.voices |= 1 << e.Voice
	if state := s.stateAt(e.Unix); state != s.state {
		s.state, s.since = state, e.Unix
	}
}

// capped returns the part of a car's passage, in metres and seconds, that is used for the present
// traffic. If the seconds exceed the limit (see capPassages), both are reduced by the same factor.
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

// lateQuarter collects the readings of one quarter hour on a stretch that arrived late, for example
// a day later. It has the sums of these readings. Late readings are still useful for the speed in
// light traffic, because it is computed from the fastest quarter hours of the last weeks.
type lateQuarter struct {
	quarter         uint32 // number since 1970
	metres, seconds float32
	voices          uint16
}

// addQuarter adds the mean speed of a quarter hour to the stretch's profile, if enough cars drove.
func (s *stretch) addQuarter(metres, seconds float32, voices uint16) {
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
	s.quarters = max(s.quarters, s.quarters+1) // saturates at 255
	s.changed = true
}

// enough reports whether enough cars drove in a quarter hour to show how fast the road is: the time
// is not zero, and at least fewestCars of the 16 bits of voices are set.
func enough(seconds float32, voices uint16) bool {
	return seconds > 0 && bits.OnesCount16(voices) >= fewestCars
}

// meanOfFastest returns the mean of the four largest entries of two lists, each in falling order.
// Zeros are not counted. If all entries are zero, the result is 0.
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

// freeFlow returns the speed, in m/s, on the stretch in light traffic, and whether the stretch is
// young, so that the speed is a guess. If nothing is known, the speed is zero.
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

// present returns the pace, in seconds per metre, at which cars drive on the stretch, and the bits
// that these cars set in voices. The parameter unix is the present time in seconds since 1970. If
// there are fewer than fewestCars cars, ok is false and the pace is 0.
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

// slowestMetresPerSecond (0.7 km/h) is the lowest speed from which a pace is computed, so that the
// pace of stationary cars is finite.
const slowestMetresPerSecond = 0.2

// stateAt returns the driving state on the stretch at a time, in seconds since 1970. It is 0 if too
// few cars show it, or if the speed in light traffic is unknown.
func (s *stretch) stateAt(unix uint32) vehicle.DrivingState {
	free, _ := s.freeFlow()
	pace, _, ok := s.present(unix)
	if !ok || free == 0 {
		return 0
	}
	return vehicle.StateOfShare(1 / (pace * free))
}

// passed adds a car's whole passage of the stretch. The parameter next is the stretch that the car
// entered after this one. The usual length of a passage is an exponentially weighted moving average
// with the weight 1/8. The two most frequent next stretches are stored, each with a weight, as in
// the Misra-Gries algorithm for heavy hitters: a passage to a third stretch halves the lower of the
// two weights. When that weight becomes zero, the third stretch replaces the one with that weight.
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
