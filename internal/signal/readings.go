package signal

import "time"

// UnixMilli is event time in milliseconds; zero means "never".
type UnixMilli int64

func At(t time.Time) UnixMilli { return UnixMilli(t.UnixMilli()) }

func (m UnixMilli) Time() time.Time { return time.UnixMilli(int64(m)).UTC() }

func (m UnixMilli) Sub(n UnixMilli) time.Duration { return time.Duration(m-n) * time.Millisecond }

func (m UnixMilli) Add(d time.Duration) UnixMilli { return m + UnixMilli(d.Milliseconds()) }

func (m UnixMilli) Seconds(n UnixMilli) float32 { return float32(m-n) / 1000 }

// Readings has no signal that was not read at its time, even if an earlier value is known.
type Readings struct {
	present uint32
	value   [Num]float32
	Codes   []TroubleCode
}

func (r *Readings) Has(s Signal) bool { return r.present&(1<<s) != 0 }

func (r *Readings) Empty() bool { return r.present == 0 }

func (r *Readings) Value(s Signal) (v float32, ok bool) { return r.value[s], r.Has(s) }

// Speed returns Speed, or OBDSpeed if that was not read.
func (r *Readings) Speed() (kmh float32, ok bool) {
	if r.Has(Speed) {
		return r.Value(Speed)
	}
	return r.Value(OBDSpeed)
}

// Set returns an error that wraps [ErrImpossible] for a value that the sensor cannot report.
func (r *Readings) Set(s Signal, v float64) error {
	if err := s.check(v); err != nil {
		return err
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

func (r *Readings) Clear(s Signal) {
	r.present &^= 1 << s
	r.value[s] = 0
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

// SetIgnition ignores [IgnitionUndefined], with which a car says that it does not know.
func (r *Readings) SetIgnition(i Ignition) error {
	if i == IgnitionUndefined {
		return nil
	}
	return r.Set(LowVoltageSystemState, float64(i))
}
