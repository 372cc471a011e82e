package scale

import (
	"time"

	"carstate/bench/report"
	"carstate/internal/vehicle"
)

// lags is how old states were when they were in the fleet table: from when their
// sample was due. It is filled by one goroutine and read when that has ended.
type lags struct {
	from  time.Time
	ms    []float64
	after []time.Duration // when each was seen, after from
	left  float64         // samples whose states were not there when the last was acknowledged
}

func newLags() *lags { return &lags{from: time.Now()} }

func (l *lags) add(now time.Time, t vehicle.UnixMilli) {
	if int64(t) < l.from.UnixMilli() {
		return // it was sent before
	}
	l.ms = append(l.ms, float64(now.UnixMicro())/1e3-float64(t))
	l.after = append(l.after, now.Sub(l.from))
}

// between is the lags that were seen in a part of the time.
func (l *lags) between(from, to time.Duration) (ms []float64) {
	for i, at := range l.after {
		if at >= from && at < to {
			ms = append(ms, l.ms[i])
		}
	}
	return ms
}

// medians are those of every second of so long a time.
func (l *lags) medians(lasting time.Duration) (ms []float64) {
	for at := time.Duration(0); at+time.Second <= lasting; at += time.Second {
		if these := l.between(at, at+time.Second); len(these) > 0 {
			ms = append(ms, report.Quantile(these, 0.5))
		}
	}
	return ms
}

// slope is how much values grow from one to the next: the median of the slopes
// between any two of them, which a few bad ones do not move. 0 of fewer than two.
func slope(values []float64) float64 {
	var slopes []float64
	for i := range values {
		for j := range i {
			slopes = append(slopes, (values[i]-values[j])/float64(i-j))
		}
	}
	return report.Quantile(slopes, 0.5)
}
