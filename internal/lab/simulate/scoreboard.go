package simulate

import (
	"time"

	"example.org/carstate/client"
	"example.org/carstate/internal/lab/score"
	"example.org/carstate/internal/lab/traffic"
	"example.org/carstate/internal/vehicle"
)

// scoreBoard counts how verdicts agree with the truth.
type scoreBoard struct {
	drivingScore                                // without Roads
	throttleReport                              // without figures that depend on the faults of the cars
	byRoad         map[float64]*score.Agreement // by the road's speed limit, in km/h
	alarmed        []bool                       // by car: the car is healthy, and the last answer said "anomaly"
	failed         int                          // queries that failed
}

// throttleCounts are counts of answers about throttle systems.
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
	// changedSoon is the time after a change of the road's state during which the verdict may still
	// be the previous state. The rules change a verdict late (hysteresis), and the readings that
	// show the change take time.
	changedSoon = time.Minute
	// recovers is the time after the end of a fault during which verdicts on the car are not
	// compared, because the rules end an anomaly only after a minute of healthy readings.
	recovers = 3 * time.Minute
	// tellable is the time that the rules have to find a fault after it has become observable. A
	// fault is not counted if there is no query about its car after this time.
	tellable = time.Minute
)

func newScoreBoard(cars int) *scoreBoard {
	return &scoreBoard{alarmed: make([]bool, cars), byRoad: make(map[float64]*score.Agreement)}
}

// AskAfter is the time that the cars must have driven before their verdicts are compared with the
// truth. At the beginning of a drive, the verdict is "normal", whatever the traffic is.
const AskAfter = 3 * time.Minute

// known is the truth about a car at the time of a query.
type known struct {
	traffic.Truth
	now    time.Duration
	latest time.Time      // time of its latest sample, to the second
	ended  bool           // everything is sent
	fault  *standingFault // nil: the car is healthy
	mended time.Duration
}

// Verdicts are compared with the truth only while the stored samples of the fleet are at most
// lateMost behind the clock, because a verdict cannot include a sample that is not stored yet.
const lateMost = 2 * time.Second

// behind reports whether an answer is too old for a comparison with the truth:
//
//   - On a road, the answer may be up to lateMost older than the latest sample.
//   - For a parked car, the answer must include the latest sample, because this sample may be the
//     first that says that the car is parked. But the answer that the car is not driving has no
//     time, and is never too old.
//   - A car in a side street is not compared with the truth, so behind returns false.
func (k *known) behind(a client.DrivingAnswer) bool {
	switch {
	case k.Parked:
		return a.Reason != client.ReasonNotDriving && a.AsOf.Before(k.latest)
	case k.Driving != 0:
		return a.AsOf.Before(k.latest.Add(-lateMost))
	}
	return false
}

// states maps the driving state in an answer to that of the truth; no state is 0.
var states = map[client.DrivingState]vehicle.DrivingState{
	client.NormalDriving: vehicle.NormalDriving, client.SlowDriving: vehicle.SlowDriving,
	client.TrafficJam: vehicle.TrafficJam,
}

// driving compares the verdict on a car with the true state of the road around it. A car in a side
// street is left out, because its true state is unknown. For a parked car, the right answer is that
// it is not driving. An answer that is not based on the car's latest samples (see behind) is
// compared only at the end, when the service has had time to process these samples.
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

// throttle compares the verdict on the i-th car's throttle system with the truth, and counts it.
// Before a fault is observable, only "anomaly" is counted. A healthy car is left out until the time
// recovers has passed since its last fault.
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
		}
	case k.mended == 0 || k.now-k.mended >= recovers:
		b.Healthy.add(a.System)
		if alarm && !b.alarmed[i] {
			b.FalseAlarms++
		}
		b.alarmed[i] = alarm
	}
}
