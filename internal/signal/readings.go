package signal

import (
	"slices"
	"time"
)

// UnixMilli is event time in milliseconds; zero means "never".
type UnixMilli int64

func At(t time.Time) UnixMilli { return UnixMilli(t.UnixMilli()) }

func (m UnixMilli) Time() time.Time { return time.UnixMilli(int64(m)).UTC() }

func (m UnixMilli) Sub(n UnixMilli) time.Duration { return time.Duration(m-n) * time.Millisecond }

func (m UnixMilli) Add(d time.Duration) UnixMilli { return m + UnixMilli(d.Milliseconds()) }

func (m UnixMilli) Seconds(n UnixMilli) float32 { return float32(m-n) / 1000 }

// Readings are the signals read at one time, without earlier values of other signals.
type Readings struct {
	present uint32
	value   [Num]float32
	Codes   []TroubleCode
}

func (r *Readings) Has(s Signal) bool { return r.present&(1<<s) != 0 }

// Present has the bit 1<<s for each signal s that r has.
func (r *Readings) Present() uint32 { return r.present }

func (r *Readings) Empty() bool { return r.present == 0 }

func (r *Readings) Value(s Signal) (v float32, ok bool) { return r.value[s], r.Has(s) }

func (r *Readings) Speed() (kmh float32, ok bool) {
	if r.Has(Speed) {
		return r.Value(Speed)
	}
	return r.Value(OBDSpeed)
}

// Set returns an error that wraps [ErrImpossible] for a value that the sensor cannot report.
func (r *Readings) Set(s Signal, v float64) error {
	if !s.holds(v) {
		return outOfRange[s]
	}
	r.present |= 1 << s
	r.value[s] = float32(v)
	return nil
}

// maxBeyond is how far a percentage may miss its range by rounding or calibration.
const maxBeyond = 5

// SetReported is Set for a value as senders report it: a percentage is corrected by up to
// maxBeyond, and a value that means "none" returns [ErrNotAvailable].
func (r *Readings) SetReported(s Signal, v float64) error {
	switch {
	case s.holds(v) && (v <= 100 || s == EngineSpeed && v <= 8000): // neither absent nor out of range
	case s.isAbsent(v):
		return ErrNotAvailable
	case table[s].unit == "percent" && v >= -maxBeyond && v <= 100+maxBeyond:
		v = min(max(v, 0), 100)
	}
	return r.Set(s, v)
}

func (r *Readings) DropPosition() {
	r.present &^= 1<<CurrentLatitude | 1<<CurrentLongitude
	r.value[CurrentLatitude], r.value[CurrentLongitude] = 0, 0
}

// SetCodes keeps the slice. An empty list is a reading too; one that is too long wraps
// [ErrImpossible].
func (r *Readings) SetCodes(codes []TroubleCode) error {
	if err := r.Set(DTCList, float64(len(codes))); err != nil {
		return err
	}
	r.Codes = codes
	return nil
}

// SetIgnition ignores the name of [IgnitionUndefined], with which a car says that it does not know.
func (r *Readings) SetIgnition(name string) error {
	i := slices.Index(ignitionNames[:], name)
	if i == int(IgnitionUndefined) {
		return nil
	}
	return r.Set(LowVoltageSystemState, float64(i)) // an unknown name has -1, which is not in the range
}

const (
	NewDrive  = 10 * time.Minute // the longest time between two readings of one drive
	MovingKmh = 3                // a faster car is driving
)

type Latest [Num]Reading

// Reading has the Time 0 if there was none.
type Reading struct {
	Value float32
	Time  UnixMilli
}

// Groups of signals may come from different senders, or with different delays, so each is ordered
// by time. All signals in neither of these two groups are of the motion.
const (
	ofThrottle = 1<<(MILOn+1) - 1<<EngineLoad
	ofPosition = 1<<(CurrentAccuracy+1) - 1<<CurrentLatitude
)

func (r *Readings) Groups() (motion, throttle bool) {
	return r.present&^(ofThrottle|ofPosition) != 0, r.present&ofThrottle != 0
}

func (l *Latest) ThrottleTime() UnixMilli { return newestOf(l[EngineLoad : MILOn+1]) }

// PlateTime is the newest time of the plate's sensors and command.
func (l *Latest) PlateTime() UnixMilli { return newestOf(l[ThrottlePosition : ThrottleActuator+1]) }

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

// Select removes from r the readings of time t that the fold of a state ignores, but with newCodes
// not the codes. It reports whether t is later than all readings of the throttle system.
func (l *Latest) Select(r *Readings, t UnixMilli, newCodes bool) (throttleNext bool) {
	throttle := l.ThrottleTime()
	if t < throttle {
		r.present &^= ofThrottle
	}
	if t < l.PositionTime() {
		r.present &^= ofPosition
	}
	if t < max(newestOf(l[:EngineLoad]), newestOf(l[MILOn+1:CurrentLatitude]), newestOf(l[CurrentAccuracy+1:])) {
		r.present &= ofThrottle | ofPosition
	}
	for i := range l {
		if l[i].Time == t && !(Signal(i) == DTCList && newCodes) {
			r.present &^= 1 << i
		}
	}
	return t > throttle
}

func (l *Latest) Update(r *Readings, t UnixMilli) {
	for i := range l {
		if v, ok := r.Value(Signal(i)); ok {
			l[i] = Reading{v, t}
		}
	}
}
