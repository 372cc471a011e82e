// Package evaluate runs the rules over recorded drives and fleets, compares with labels, and draws.
// It must never judge, nor depend on a command line.
package evaluate

import (
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/lab/drivelog"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/throttle"
	"example.org/carstate/internal/vehicle"
)

const (
	// Longer pauses are not driven; the rules ignore them, too.
	drivenGap = 75 * time.Second
	maxAge    = 5 * time.Minute // the default of the service
)

func (e *Drives) Add(name string, d *drivelog.Drive) Track {
	start := d.Start
	if start.IsZero() {
		start = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // only differences matter
	}
	one := evaluator{
		result: fileResult{File: name, Anomalies: []anomaly{}}, // not null in JSON
		track:  Track{name: access.Printable(name)},
	}
	for i := range d.Rows {
		one.row(signal.At(start), &d.Rows[i])
	}
	one.result.Seconds = one.driven.Seconds()
	e.add(one.result)
	return one.track
}

type evaluator struct {
	state  vehicle.State
	result fileResult
	track  Track

	seen    bool
	driven  time.Duration // without pauses
	last    time.Duration // the last row, with pauses
	verdict driving.State
	anomaly *anomaly
}

func (e *evaluator) row(start signal.UnixMilli, r *drivelog.Row) {
	step := r.At - e.last
	pause := e.seen && step > drivenGap
	if e.seen && !pause {
		e.result.States.add(e.verdict, step.Seconds())
		e.driven += step
	}
	e.seen, e.last = true, r.At

	now := start.Add(r.At)
	e.state = vehicle.Observe(e.state, vehicle.Sample{Vehicle: "evaluated", Time: now, Readings: r.Readings})
	e.verdict = answer(&e.state, now)
	if r.Label != 0 {
		e.result.label(r.Label, e.verdict)
	}
	e.throttle(r.At)
	e.track.add(e.driven, pause, r, e.verdict, e.anomaly != nil)
}

func answer(s *vehicle.State, now signal.UnixMilli) driving.State {
	v := s.Driving()
	if v.At(now, maxAge) != vehicle.Answered {
		return 0
	}
	return v.State
}

func (e *evaluator) throttle(at time.Duration) {
	v := e.state.Throttle()
	found := v.Time != 0 && v.System == throttle.Anomaly
	if e.anomaly != nil {
		e.anomaly.For = (at - e.anomaly.since).Seconds()
	}
	switch {
	case found && e.anomaly == nil:
		x := e.state.ExplainThrottle()
		e.result.Anomalies = append(e.result.Anomalies,
			anomaly{At: at.Seconds(), Reason: x.Rule + ": " + x.Text, since: at})
		e.anomaly = &e.result.Anomalies[len(e.result.Anomalies)-1]
	case !found:
		e.anomaly = nil
	}
}
