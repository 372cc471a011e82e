package simulate

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"carstate/client"
	"carstate/internal/lab/faults"
	"carstate/internal/lab/score"
	"carstate/internal/lab/traffic"
	"carstate/internal/vehicle"
)

// scoreBoard counts how verdicts agree with the truth.
type scoreBoard struct {
	score.Agreement                              // of cars on a road
	byRoad          map[float64]*score.Agreement // by the road's speed limit, in km/h
	byFlow          [10][4]int                   // by tenths of the speed in light traffic, then by verdict
	parked          [2]int                       // answers about parked cars; index 1: the service said "not driving"
	behind          int                          // answers too old to be compared
	disagreed       int                          // answers about cars on a road that differ from the truth
	soon            int                          // of disagreed, those soon after the road's state changed
	faulty          throttleCounts
	healthy         throttleCounts
	alarmed         []bool // by car: the car is healthy, and the last answer said "anomaly"
	falseAlarms     int
	failed          int // queries that failed
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
	// changedSoon is how long after a change of the road's state the verdict may still be the
	// previous state. The rules change a verdict late (hysteresis), and the readings that show
	// the change take time.
	changedSoon = time.Minute
	// recovers is the time after the end of a fault during which verdicts on the car are not
	// compared, because the rules end an anomaly only after a minute of healthy readings.
	recovers = 3 * time.Minute
	// tellable is the time that the rules have to find a fault after it has become observable. A
	// fault about which there is no query after that time is not counted.
	tellable = time.Minute
)

func newScoreBoard(cars int) *scoreBoard {
	return &scoreBoard{alarmed: make([]bool, cars), byRoad: make(map[float64]*score.Agreement)}
}

// AskAfter is how long the cars must have driven before their verdicts are compared with the truth.
// At the beginning of a drive, the verdict is "normal", whatever the traffic is.
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

// behind reports whether an answer is too old for a comparison with the truth, because it does not
// include the car's latest sample. The answer about a car on a road may be up to lateMost older than
// that sample. The answer about a parked car must include the latest sample, because this sample
// may be the first that says that the car is parked; the answer that the car is not driving has no
// time, and is not too old. A car in a side street is never compared, so no answer is too old.
func (k *known) behind(a client.DrivingAnswer) bool {
	switch {
	case k.Parked:
		return a.Reason != client.ReasonNotDriving && a.AsOf.Before(k.latest)
	case k.Driving != 0:
		return a.AsOf.Before(k.latest.Add(-lateMost))
	}
	return false
}

// stateOf returns the driving state in an answer, or 0 if the answer has none.
func stateOf(a client.DrivingAnswer) vehicle.DrivingState {
	switch a.State {
	case client.NormalDriving:
		return vehicle.NormalDriving
	case client.SlowDriving:
		return vehicle.SlowDriving
	case client.TrafficJam:
		return vehicle.TrafficJam
	}
	return 0
}

// driving compares the verdict on a car with the true state of the road around it. A car in a side
// street is left out, because its true state is unknown. For a parked car, the right answer is that
// it is not driving. An answer that is not based on the car's latest samples (see behind) is
// compared only at the end, when the service has had time to process these samples.
func (b *scoreBoard) driving(k known, a client.DrivingAnswer) {
	said := stateOf(a)
	switch {
	case k.behind(a) && !k.ended:
		b.behind++
	case k.Parked && a.Reason == client.ReasonNotDriving:
		b.parked[1]++
	case k.Parked:
		b.parked[0]++
	case k.Driving != 0:
		road := b.byRoad[k.LimitKmh]
		if road == nil {
			road = new(score.Agreement)
			b.byRoad[k.LimitKmh] = road
		}
		b.Add(k.Driving, said)
		road.Add(k.Driving, said)
		b.byFlow[min(int(10*k.OfFreeFlow), 9)][said]++
		if said != k.Driving {
			b.disagreed++
			if k.now-k.Since < changedSoon {
				b.soon++
			}
		}
	}
}

// throttle compares the verdict on the i-th car's throttle system with the fault that the car has,
// if any.
func (b *scoreBoard) throttle(i int, k known, a client.ThrottleAnswer) {
	alarm := a.System == client.ThrottleAnomaly
	switch f := k.fault; {
	case f != nil:
		if f.observable != 0 {
			b.faulty.add(a.System)
			if k.now-f.observable >= tellable {
				f.asked++
			}
		}
		if alarm && f.found == 0 {
			f.found = k.now
		}
	case k.mended == 0 || k.now-k.mended >= recovers:
		b.healthy.add(a.System)
		if alarm && !b.alarmed[i] {
			b.falseAlarms++
		}
		b.alarmed[i] = alarm
	}
}

// Report is the output of `simulate --json`.
type Report struct {
	Vehicles      int             `json:"vehicles"`
	Seconds       float64         `json:"seconds"`
	Acknowledged  int64           `json:"samples_acknowledged"`
	Refused       int64           `json:"samples_refused"`
	FirstRefusal  string          `json:"first_refusal,omitempty"`
	FailedQueries int             `json:"failed_queries"`
	Driving       *drivingScore   `json:"driving,omitempty"`
	Throttle      *throttleReport `json:"throttle,omitempty"`
}

// drivingScore is the comparison of driving verdicts with the true states of the roads. Each answer
// that was compared is one row of the embedded Agreement.
type drivingScore struct {
	score.Agreement
	Disagreed       int         `json:"disagreed"`
	SoonAfter       int         `json:"disagreed_within_60_s_of_a_change"`
	ParkedRight     int         `json:"parked_and_not_driving"`
	ParkedOtherwise int         `json:"parked_and_otherwise"`
	Behind          int         `json:"answers_behind"`
	Roads           []roadScore `json:"roads"`
	// ByFlow counts the compared answers. The first index is the speed of the cars around the
	// queried car, in tenths of their speed in light traffic. The second index is the verdict:
	// 0 none, 1 normal, 2 slow, 3 jam.
	ByFlow [10][4]int `json:"by_tenth_of_free_flow"`
}

// roadScore is the agreement of driving verdicts with the truth on all roads with one speed limit.
type roadScore struct {
	LimitKmh float64 `json:"limit_kmh"`
	score.Agreement
}

// throttleReport is the comparison of throttle verdicts with the faults that the cars had.
type throttleReport struct {
	Faulty  throttleCounts `json:"answers_with_a_fault"`
	Healthy throttleCounts `json:"answers_without"`
	// FalseAlarms is the number of alarms about healthy cars. Precision is the share of all alarms
	// that were about a fault. Recall is the share of the faults in faultKind.Telling that were
	// found. Each alarm and each fault is counted once, however many answers report it.
	FalseAlarms int         `json:"false_alarms"`
	Precision   float64     `json:"precision"`
	Recall      float64     `json:"recall"`
	Kinds       []faultKind `json:"faults"`
}

// faultKind counts the faults of one kind, and says how many of them were found and how soon.
type faultKind struct {
	Kind  string `json:"kind"`
	Begun int    `json:"begun"`
	// Telling is the number of faults for which verdicts can tell whether the rules find them: the
	// car was queried after the fault had been observable for a minute.
	Telling int `json:"telling"`
	Found   int `json:"found"`
	// Median is the median time, in seconds, from when a fault became observable until it was
	// found. It includes only faults that became observable after the queries had begun. If
	// nil, there are none.
	Median *float64 `json:"median_seconds"`
}

// Report returns the results of the run so far. It may also be called after a run that failed.
func (s *Simulation) Report() *Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &Report{
		Vehicles: len(s.ids), Seconds: s.now.Seconds(),
		Acknowledged: s.acknowledged.Load(), Refused: s.refused.Load(), FirstRefusal: s.refusal,
		FailedQueries: s.score.failed,
	}
	b := s.score
	if b.Rows > 0 {
		r.Driving = &drivingScore{b.Agreement, b.disagreed, b.soon, b.parked[1], b.parked[0], b.behind, nil, b.byFlow}
		for _, kmh := range slices.Sorted(maps.Keys(b.byRoad)) {
			r.Driving.Roads = append(r.Driving.Roads, roadScore{kmh, *b.byRoad[kmh]})
		}
	}
	if b.faulty != (throttleCounts{}) || b.healthy != (throttleCounts{}) {
		r.Throttle = s.throttleReport()
	}
	return r
}

func (s *Simulation) throttleReport() *throttleReport {
	r := &throttleReport{Faulty: s.score.faulty, Healthy: s.score.healthy, FalseAlarms: s.score.falseAlarms}
	telling, found, alarms := 0, 0, 0
	for kind := range faults.Kind(faults.NumKinds) {
		k := faultKind{Kind: kind.String()}
		var took []float64
		for _, f := range s.faults.all {
			if f.fault.Kind != kind {
				continue
			}
			k.Begun++
			if f.found != 0 {
				alarms++
			}
			if f.asked == 0 {
				continue
			}
			k.Telling++
			if f.found != 0 {
				k.Found++
				if f.observable >= s.asking {
					took = append(took, max(0, (f.found-f.observable).Seconds()))
				}
			}
		}
		if slices.Sort(took); len(took) > 0 {
			k.Median = &took[len(took)/2]
		}
		telling, found = telling+k.Telling, found+k.Found
		if k.Begun > 0 {
			r.Kinds = append(r.Kinds, k)
		}
	}
	r.Precision, r.Recall = score.Part(alarms, alarms+r.FalseAlarms), score.Part(found, telling)
	return r
}

// Print prints the report for people.
func (r *Report) Print(w io.Writer) error {
	t := score.NewTables(w)
	t.Line("%d cars drove for %s; %d samples acknowledged, %d refused", r.Vehicles,
		(time.Duration(r.Seconds) * time.Second), r.Acknowledged, r.Refused)
	if r.FirstRefusal != "" {
		t.Line("The first was refused because: %s", r.FirstRefusal)
	}
	if r.FailedQueries > 0 {
		t.Line("%d questions were not answered", r.FailedQueries)
	}
	if r.Driving == nil {
		t.Line("No verdict was compared with the truth: nobody asked, or the cars did not drive for %s", AskAfter)
	} else {
		r.Driving.print(t)
	}
	if r.Throttle != nil {
		r.Throttle.print(t)
	}
	t.Flush()
	return t.Err()
}

func (r *drivingScore) print(t *score.Tables) {
	t.Line("\nThe label is the state of the road around the car; each answer is a row.")
	t.Confusion(&r.Agreement)
	t.Line("Of %d answers that disagree, %d came within a minute of a change of the road's state.", r.Disagreed,
		r.SoonAfter)
	t.Line("Parked cars: %d answers \"not driving\", %d others.", r.ParkedRight, r.ParkedOtherwise)
	t.Line("%d answers do not count: the service had not yet folded the car's latest samples.", r.Behind)

	t.Line("\nspeed limit\trows\taccuracy\tmacro-F1")
	for _, road := range r.Roads {
		t.Line("%.0f km/h\t%d\t%.3f\t%.3f", road.LimitKmh, road.Rows, road.Accuracy, road.MacroF1)
	}
	t.Flush()
	t.Line("\ntraffic flows at\tnone\tnormal\tslow\tjam")
	for tenth, row := range r.ByFlow {
		t.Line("%d to %d %% of the free flow\t%d\t%d\t%d\t%d", 10*tenth, 10*tenth+10, row[0], row[1], row[2], row[3])
	}
	t.Flush()
}

func (r *throttleReport) print(t *score.Tables) {
	t.Line("\nfault\tbegun\ttelling\tfound\tmedian")
	for _, k := range r.Kinds {
		median := ""
		if k.Median != nil {
			median = fmt.Sprintf("%.0f s", *k.Median)
		}
		t.Line("%s\t%d\t%d\t%d\t%s", k.Kind, k.Begun, k.Telling, k.Found, median)
	}
	t.Flush()
	t.Line("\nthrottle\tno verdict\tnormal\tanomaly")
	for _, row := range []struct {
		name string
		c    throttleCounts
	}{{"with an observable fault", r.Faulty}, {"healthy", r.Healthy}} {
		t.Line("%s\t%d\t%d\t%d", row.name, row.c.None, row.c.Normal, row.c.Anomaly)
	}
	t.Flush()
	t.Line("\n%d false alarms, precision %.3f, recall %.3f", r.FalseAlarms, r.Precision, r.Recall)
}
