package vehicle

import "time"

// UnixMilli is a time in milliseconds since 1970-01-01 UTC, the resolution in
// which the service keeps event time. Zero means "never".
type UnixMilli int64

// At converts a time, rounding down to the millisecond.
func At(t time.Time) UnixMilli { return UnixMilli(t.UnixMilli()) }

// Time returns m as a time.Time, in UTC.
func (m UnixMilli) Time() time.Time { return time.UnixMilli(int64(m)).UTC() }

// Sub returns the duration m − n.
func (m UnixMilli) Sub(n UnixMilli) time.Duration { return time.Duration(m-n) * time.Millisecond }

// Add returns m + d.
func (m UnixMilli) Add(d time.Duration) UnixMilli { return m + UnixMilli(d.Milliseconds()) }

// Sample holds the readings of one vehicle at one time. It may carry any subset of the signals. A
// signal that was not read at that time is missing, even if an earlier value of it is known.
type Sample struct {
	Vehicle ID
	Time    UnixMilli
	Source  uint32    // number of the source that has sent the sample; 0 if none has
	Crowd   bool      // each car of the source is believed to be one, so each is a voice on roads
	Stored  UnixMilli // when the telemetry log stored it; 0 if it is in no log
	Readings
}

// Readings are the values of the signals that a sample carries.
type Readings struct {
	present uint32
	value   [NumSignals]float32
	// Codes are the trouble codes in the order in which the car listed them, if the signal DTCList
	// was read.
	Codes []TroubleCode
}

// Has reports whether the signal was read.
func (r *Readings) Has(s Signal) bool { return r.present&(1<<s) != 0 }

// Empty reports whether nothing was read.
func (r *Readings) Empty() bool { return r.present == 0 }

// Value returns the signal's value in its unit; ok is false if it was not read.
func (r *Readings) Value(s Signal) (v float32, ok bool) { return r.value[s], r.Has(s) }

// Speed returns the car's speed in km/h: the value of Speed if it was read, otherwise that of
// OBDSpeed; ok is false if neither was read.
func (r *Readings) Speed() (kmh float32, ok bool) {
	if r.Has(Speed) {
		return r.Value(Speed)
	}
	return r.Value(OBDSpeed)
}

// Set records a reading in the signal's unit. For a value that the sensor cannot report it
// records nothing and returns an error that wraps [ErrImpossible].
func (r *Readings) Set(s Signal, v float64) error {
	if err := s.check(v); err != nil {
		return err
	}
	r.present |= 1 << s
	r.value[s] = float32(v)
	return nil
}

// maxBeyond is how far a percentage may miss its range: by rounding, or by the calibration of its
// sensor.
const maxBeyond = 5

// SetReported is Set for a value as senders report it. A percentage that misses its range by at most
// maxBeyond becomes the end of the range. For a value that means that there is none, SetReported
// records nothing and returns [ErrNotAvailable].
func (r *Readings) SetReported(s Signal, v float64) error {
	switch {
	case s.holds(v) && (v <= 100 || s == EngineSpeed && v <= 8000): // neither absent nor out of range
	case s.isAbsent(v):
		return ErrNotAvailable
	case signalTable[s].unit == "percent" && v >= -maxBeyond && v <= 100+maxBeyond:
		v = min(max(v, 0), 100)
	}
	return r.Set(s, v)
}

// Clear removes a reading.
func (r *Readings) Clear(s Signal) {
	r.present &^= 1 << s
	r.value[s] = 0
}

// SetCodes records a list of trouble codes as the reading of DTCList. An empty list is a reading
// too: the car reports that it has no trouble code. If the list is too long, SetCodes records
// nothing and returns an error that wraps [ErrImpossible]. SetCodes keeps the slice, so the caller
// must not change it.
func (r *Readings) SetCodes(codes []TroubleCode) error {
	if err := r.Set(DTCList, float64(len(codes))); err != nil {
		return err
	}
	r.Codes = codes
	return nil
}

// SetIgnition records the state of the ignition as the reading of LowVoltageSystemState. It ignores
// [IgnitionUndefined], which means that the car does not know the state. For a number that is no
// state, it returns an error that wraps [ErrImpossible].
func (r *Readings) SetIgnition(i Ignition) error {
	if i == IgnitionUndefined {
		return nil
	}
	return r.Set(LowVoltageSystemState, float64(i))
}
