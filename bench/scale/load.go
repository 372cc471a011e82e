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

// medians returns the median of the lags for each second of a measurement.
func (l *lags) medians(lasting time.Duration) (ms []float64) {
	for at := time.Duration(0); at+time.Second <= lasting; at += time.Second {
		if these := l.between(at, at+time.Second); len(these) > 0 {
			ms = append(ms, report.Quantile(these, 0.5))
		}
	}
	return ms
}

// slope returns the average growth from one value to the next. It is the median of the slopes
// between any two values, so a few outliers do not change it. It is 0 for fewer than two values.
func slope(values []float64) float64 {
	var slopes []float64
	for i := range values {
		for j := range i {
			slopes = append(slopes, (values[i]-values[j])/float64(i-j))
		}
	}
	return report.Quantile(slopes, 0.5)
}
