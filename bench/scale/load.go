package scale

import (
	"time"

	"carstate/bench/report"
	"carstate/internal/vehicle"
)

// lags collects how old states were when they were put into the fleet table. The age is measured
// from the time at which the sample was due. One goroutine adds the ages; other goroutines read
// them only after that goroutine has ended.
type lags struct {
	from  time.Time
	ms    []float64
	after []time.Duration // when each state was put, after from
	left  float64         // states not in the table when the last sample was acknowledged
}

func newLags() *lags { return &lags{from: time.Now()} }

func (l *lags) add(now time.Time, t vehicle.UnixMilli) {
	if int64(t) < l.from.UnixMilli() {
		return // sent before the measurement
	}
	l.ms = append(l.ms, float64(now.UnixMicro())/1e3-float64(t))
	l.after = append(l.after, now.Sub(l.from))
}

// between returns the lags of the states that were put into the table between two times.
func (l *lags) between(from, to time.Duration) (ms []float64) {
	for i, at := range l.after {
		if at >= from && at < to {
			ms = append(ms, l.ms[i])
		}
	}
	return ms
}

// growth returns how much the median of the lags of a second grows from one second of a measurement
// to the next, in ms.
func (l *lags) growth(lasting time.Duration) float64 {
	var seconds, ms []float64
	for at := time.Duration(0); at+time.Second <= lasting; at += time.Second {
		if these := l.between(at, at+time.Second); len(these) > 0 {
			seconds, ms = append(seconds, float64(len(seconds))), append(ms, report.Quantile(these, 0.5))
		}
	}
	return report.Slope(seconds, ms)
}
