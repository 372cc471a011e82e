package throttle

import "example.org/carstate/internal/signal"

func (c Car) follow(t signal.UnixMilli) (after float32, looked bool) {
	f := &c.Follow
	demand := Load
	for _, pedal := range [...]Sensor{PedalE, PedalD} {
		if c.reading(pedal).Time != 0 {
			demand = pedal
		}
	}
	asked, plate := c.reading(demand), c.reading(PlateA)
	if asked.Time == 0 || plate.Time == 0 || asked.Time != t && plate.Time != t {
		return 0, false
	}
	up := c.Sensors[demand].span()
	gap := t.Seconds(f.Last)
	if f.Demand != demand {
		*f = FollowMemory{Demand: demand, Floor: up.hi}
		gap = 2 * bracketWithin
	}
	f.Last = t
	if gap > bracketWithin || t.Seconds(asked.Time) > bracketWithin || t.Seconds(plate.Time) > bracketWithin {
		f.restart(up.hi, plate.Value)
		return 0, false
	}
	if f.Floor = min(f.Floor, up.hi); f.Floor == 0 && demand == Load {
		f.Floor = up.hi // a load of zero: the engine was off
	}
	margin, rise, lasts := float32(settledWithin), float32(pedalRise), float32(pedalLasts)
	if demand == Load {
		margin, rise, lasts = loadRests, loadRise, loadLasts
	}
	if up.hi-f.Floor <= margin {
		lo := c.Sensors[PlateA].span().lo
		if !f.trusted() {
			f.Rest = max(f.Rest, lo)
		}
		if min(f.Rest, lo) >= restsClosedBelow {
			f.RestFor = max(min(f.RestFor, 0)-closedShare*min(gap, coversMost), -3600)
		} else {
			f.RestFor = min(f.RestFor+min(gap, coversMost), restsFor)
		}
		if f.Rest >= restsClosedBelow && f.RestFor == restsFor && f.Followed >= trustedOpen {
			f.Rest = lo // the open rest was an episode
		}
	}
	if up.hi <= f.Low {
		f.restart(up.hi, plate.Value)
	}
	f.PlateLo, f.PlateHi = min(f.PlateLo, plate.Value), max(f.PlateHi, plate.Value)
	after = min(gap, coversMost)
	if up.lo-f.Low >= rise {
		if f.For += after; f.For >= lasts {
			f.addRise(f.PlateHi-f.PlateLo > plateMoves)
			f.restart(up.hi, plate.Value)
		}
	}
	return after, true
}

func (f *FollowMemory) restart(low, plate float32) {
	f.Low, f.PlateLo, f.PlateHi, f.For = low, plate, plate, 0
}

// addRise counts a rise without a movement as a sign of a fault only if the plate is known to
// follow.
func (f *FollowMemory) addRise(moved bool) {
	const many = 1000
	switch {
	case moved:
		f.Missed = 0
		f.Followed = min(f.Followed+1, many)
	case f.follows():
		f.Missed = min(f.Missed+1, 100)
	default:
		f.Ignored = min(f.Ignored+1, many)
	}
}

// trusted reports whether an open rest is a fault and not a property of the car.
func (f *FollowMemory) trusted() bool {
	return f.Followed >= trustedAt && f.Rest < trustedRest || f.Followed >= trustedOpen
}

func (f *FollowMemory) follows() bool {
	return f.Followed >= followsAfter && f.Ignored*ignoredShare <= f.Followed &&
		f.RestFor >= restsFor && f.Rest < restsClosedBelow
}
