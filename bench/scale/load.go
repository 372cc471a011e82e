package scale

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"carstate/bench/restart"
	"carstate/internal/vehicle"
)

const (
	// perBody is how many cars' samples a gateway sends in one request.
	perBody = 100
	// atOnce is how many requests are under way at most.
	atOnce = 32
)

// drive has cars report in turn, one sample each and then again, at a fixed rate
// whatever the answers do, and returns when all samples are acknowledged. A
// sample's time is when it was due. A rate of 0 is as fast as a few connections
// are answered.
func (r *rig) drive(ctx context.Context, cars int, perSecond float64, samples int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	body := min(perBody, max(1, int(perSecond/10)))
	workers := atOnce
	if perSecond == 0 {
		body, workers = perBody, 4
	}
	start := time.Now()
	var mu sync.Mutex
	begun := 0 // samples that somebody has begun to send
	take := func() (first, n int) {
		mu.Lock()
		defer mu.Unlock()
		first, n = begun, min(body, samples-begun)
		begun += n
		return first, n
	}
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			var text []byte
			for ctx.Err() == nil {
				first, n := take()
				if n == 0 {
					return
				}
				due := time.Now()
				if perSecond > 0 {
					due = start.Add(time.Duration(float64(first) / perSecond * float64(time.Second)))
					select {
					case <-ctx.Done():
						return
					case <-time.After(time.Until(due)):
					}
				}
				text = text[:0]
				car := int(r.next.Add(int64(n))) - n
				for i := range n {
					text = appendSample(text, (car+i)%cars, due)
				}
				if err := r.post(ctx, string(text)); err != nil {
					cancel(err)
					return
				}
				r.sent.Add(int64(n))
			}
		})
	}
	running.Wait()
	return context.Cause(ctx)
}

func (r *rig) post(ctx context.Context, lines string) error {
	status, text, err := r.ingest.Post(ctx, r.key, lines)
	if err == nil && status != http.StatusAccepted {
		err = fmt.Errorf("telemetry was answered with %d: %s", status, text)
	}
	return err
}

// appendSample writes what car i reports at a time.
func appendSample(b []byte, i int, at time.Time) []byte {
	b = append(b, `{"vid":"`...)
	b = append(b, restart.VID(i)...)
	b = append(b, `","time":`...)
	b = strconv.AppendInt(b, at.UnixMilli(), 10)
	b = append(b, `,"signals":{"Vehicle.Speed":`...)
	b = strconv.AppendFloat(b, 20+float64(i%600)/10, 'f', 1, 64)
	b = append(b, `,"Vehicle.OBD.ThrottlePosition":`...)
	b = strconv.AppendFloat(b, 15+float64(i%100)/10, 'f', 1, 64)
	b = append(b, `,"Vehicle.OBD.EngineSpeed":`...)
	b = strconv.AppendInt(b, int64(1500+i%400), 10)
	return append(b, "}}\n"...)
}

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
			ms = append(ms, quantile(these, 0.5))
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
	return quantile(slopes, 0.5)
}

// quantile is what so large a part of the values does not exceed; 0 of none.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(values))
	return s[min(len(s)-1, int(math.Ceil(q*float64(len(s))))-1)]
}
