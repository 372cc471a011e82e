package simulate

import (
	"time"

	"example.org/carstate/client"
	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/lab/score"
	"example.org/carstate/internal/lab/traffic"
)

type scoreBoard struct {
	drivingScore                                // without Roads
	throttleReport                              // without what depends on the faults of the cars
	byRoad         map[float64]*score.Agreement // by speed limit
	alarmed        []bool                       // healthy, and the last answer said "anomaly"
	failed         int                          // queries
	alarms         int                          // faults with an alarm
}

type throttleCounts struct {
	None    int `json:"no_verdict"`
	Normal  int `json:"normal"`
	Anomaly int `json:"anomaly"`
}

func (c *throttleCounts) add(s client.ThrottleState) {
	switch s {
	case client.ThrottleNormal:
		c.Normal++
	case client.ThrottleAnomaly:
		c.Anomaly++
	default:
		c.None++
	}
}

const (
	// A verdict changes later than the truth, and readings take time.
	changedSoon = time.Minute
	// An anomaly ends only after a minute of healthy readings.
	recovers = 3 * time.Minute
	tellable = time.Minute // for the rules to find a fault
)

func newScoreBoard(cars int) *scoreBoard {
	return &scoreBoard{alarmed: make([]bool, cars), byRoad: make(map[float64]*score.Agreement)}
}

// AskAfter: at the beginning of a drive, the verdict is "normal".
const AskAfter = 3 * time.Minute

type known struct {
	traffic.Truth
	now    time.Duration
	latest time.Time      // time of its latest sample, to the second
	ended  bool           // everything is sent
	fault  *standingFault // nil: the car is healthy
	mended time.Duration
}

// While samples are later than this, no verdict is compared: it cannot include them.
const lateMost = 2 * time.Second

// behind reports whether an answer is too old to compare: on a road, by more than lateMost. A parked
// car's must include the latest sample, because no earlier one may say that it parks.
func (k *known) behind(a client.DrivingAnswer) bool {
	switch {
	case k.Parked:
		return a.Reason != client.ReasonNotDriving && a.AsOf.Before(k.latest)
	case k.Driving != 0:
		return a.AsOf.Before(k.latest.Add(-lateMost))
	}
	return false
}

var states = map[client.DrivingState]driving.State{
	client.NormalDriving: driving.Normal, client.SlowDriving: driving.Slow, client.TrafficJam: driving.Jam,
}

// An answer that is behind is compared only at the end.
func (b *scoreBoard) driving(k known, a client.DrivingAnswer) {
	said := states[a.State]
	switch {
	case k.behind(a) && !k.ended:
		b.Behind++
	case k.Parked && a.Reason == client.ReasonNotDriving:
		b.ParkedRight++
	case k.Parked:
		b.ParkedOtherwise++
	case k.Driving != 0:
		road := b.byRoad[k.LimitKmh]
		if road == nil {
			road = new(score.Agreement)
			b.byRoad[k.LimitKmh] = road
		}
		b.Add(k.Driving, said)
		road.Add(k.Driving, said)
		b.ByFlow[min(int(10*k.OfFreeFlow), 9)][said]++
		if said != k.Driving {
			b.Disagreed++
			if k.now-k.Since < changedSoon {
				b.SoonAfter++
			}
		}
	}
}

// Before a fault is observable, only "anomaly" is counted. A car whose fault has ended is left out
// until recovers has passed.
func (b *scoreBoard) throttle(i int, k known, a client.ThrottleAnswer) {
	alarm := a.System == client.ThrottleAnomaly
	switch f := k.fault; {
	case f != nil:
		if f.observable != 0 {
			b.Faulty.add(a.System)
			if k.now-f.observable >= tellable {
				f.asked++
			}
		}
		if alarm && f.found == 0 {
			f.found = k.now
			b.alarms++
		}
	case k.mended == 0 || k.now-k.mended >= recovers:
		b.Healthy.add(a.System)
		if alarm && !b.alarmed[i] {
			b.FalseAlarms++
		}
		b.alarmed[i] = alarm
	}
}
