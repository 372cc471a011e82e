package signal

import "time"

const (
	NewDrive  = 10 * time.Minute // the longest time between two readings of one drive
	MovingKmh = 3                // a faster car is driving
)

// Latest has the newest reading of each signal.
type Latest [Num]Reading

// Reading has the Time 0 if there was none.
type Reading struct {
	Value float32
	Time  UnixMilli
}

// Groups may come from different senders, or with different delays, so each is ordered by time.
type group uint8

const (
	throttleGroup group = iota
	motionGroup
	positionGroup
)

// The other signals belong to the throttle system.
var groupOf = [Num]group{
	Speed: motionGroup, OBDSpeed: motionGroup, EngineSpeed: motionGroup, LowVoltageSystemState: motionGroup,
	FreeFlowSpeed: motionGroup, SpeedHolds: motionGroup,
	CurrentLatitude: positionGroup, CurrentLongitude: positionGroup, CurrentHeading: positionGroup,
	CurrentAccuracy: positionGroup,
}

func (l *Latest) ThrottleTime() UnixMilli { return newestOf(l[EngineLoad : MILOn+1]) }

func (l *Latest) PositionTime() UnixMilli { return newestOf(l[CurrentLatitude : CurrentAccuracy+1]) }

func newestOf(readings []Reading) (t UnixMilli) {
	for i := range readings {
		t = max(t, readings[i].Time)
	}
	return t
}

// Speed returns the newest of Speed and OBDSpeed; of one time, Speed.
func (l *Latest) Speed() (Reading, bool) {
	r := l[Speed]
	if o := l[OBDSpeed]; o.Time > r.Time {
		r = o
	}
	return r, r.Time != 0
}

// Select removes from r each reading of time t that is older than the newest of its group, or whose
// signal was already read at t; but not codes if they are new. It reports whether t is later than
// all readings of the throttle system.
func (l *Latest) Select(r *Readings, t UnixMilli, newCodes bool) (throttleNext bool) {
	newest := [...]UnixMilli{
		throttleGroup: l.ThrottleTime(),
		motionGroup: max(newestOf(l[Speed:EngineLoad]), l[LowVoltageSystemState].Time, l[SpeedHolds].Time,
			l[FreeFlowSpeed].Time),
		positionGroup: l.PositionTime(),
	}
	for i := range l {
		if known := l[i].Time == t && !(Signal(i) == DTCList && newCodes); known || t < newest[groupOf[i]] {
			r.present &^= 1 << i
		}
	}
	return t > newest[throttleGroup]
}

func (l *Latest) Update(r *Readings, t UnixMilli) {
	for i := range l {
		if v, ok := r.Value(Signal(i)); ok {
			l[i] = Reading{v, t}
		}
	}
}
