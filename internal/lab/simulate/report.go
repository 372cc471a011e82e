package simulate

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"example.org/carstate/internal/lab/faults"
	"example.org/carstate/internal/lab/score"
)

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

type drivingScore struct {
	score.Agreement
	// wrong answers about cars on a road, and of these, those within a minute of a change of its state
	Disagreed int `json:"disagreed"`
	SoonAfter int `json:"disagreed_within_60_s_of_a_change"`
	// answers; those Behind are too old to be compared
	ParkedRight     int         `json:"parked_and_not_driving"`
	ParkedOtherwise int         `json:"parked_and_otherwise"`
	Behind          int         `json:"answers_behind"`
	Roads           []roadScore `json:"roads"`
	// answers by tenths of the speed in light traffic, and verdict, 0 for none
	ByFlow [10][4]int `json:"by_tenth_of_free_flow"`
}

type roadScore struct {
	LimitKmh float64 `json:"limit_kmh"`
	score.Agreement
}

type throttleReport struct {
	Faulty  throttleCounts `json:"answers_with_a_fault"`
	Healthy throttleCounts `json:"answers_without"`
	// Each alarm and each fault is counted once. Precision is the faults with an alarm, divided by
	// these and FalseAlarms; Recall is Found divided by Telling. Nil: 0/0.
	FalseAlarms int         `json:"false_alarms"`
	Precision   *float64    `json:"precision"`
	Recall      *float64    `json:"recall"`
	Kinds       []faultKind `json:"faults"`
}

type faultKind struct {
	Kind  string `json:"kind"`
	Begun int    `json:"begun"`
	// faults about which queries came after they were observable for a minute
	Telling int `json:"telling"`
	Found   int `json:"found"`
	// time to find faults that became observable after the queries had begun, or nil
	Median *float64 `json:"median_seconds"`
}

// Report may also be called after a run that failed.
func (s *Simulation) Report() *Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &Report{
		Vehicles: len(s.ids), Seconds: s.fleet.Now().Seconds(),
		Acknowledged: s.acknowledged.Load(), Refused: s.refused.Load(), FirstRefusal: s.refusal,
		FailedQueries: s.score.failed,
	}
	b := s.score
	if b.Rows > 0 {
		r.Driving = new(b.drivingScore)
		for _, kmh := range slices.Sorted(maps.Keys(b.byRoad)) {
			r.Driving.Roads = append(r.Driving.Roads, roadScore{kmh, *b.byRoad[kmh]})
		}
	}
	if b.Faulty != (throttleCounts{}) || b.Healthy != (throttleCounts{}) {
		r.Throttle = s.judgeThrottle()
	}
	return r
}

// mu is locked.
func (s *Simulation) judgeThrottle() *throttleReport {
	r := new(s.score.throttleReport)
	telling, found := 0, 0
	for kind := range faults.Kind(faults.NumKinds) {
		k := faultKind{Kind: kind.String()}
		var took []float64
		for _, f := range s.faults.all {
			if f.fault.Kind != kind {
				continue
			}
			k.Begun++
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
	if alarms := s.score.alarms + r.FalseAlarms; alarms > 0 {
		r.Precision = new(score.Part(s.score.alarms, alarms))
	}
	if telling > 0 {
		r.Recall = new(score.Part(found, telling))
	}
	return r
}

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
	return t.End()
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
	t.Line("\ntraffic flows at\tnone\tnormal\tslow\tjam")
	for tenth, row := range r.ByFlow {
		t.Line("%d to %d %% of the free flow\t%d\t%d\t%d\t%d", 10*tenth, 10*tenth+10, row[0], row[1], row[2], row[3])
	}
}

func (r *throttleReport) print(t *score.Tables) {
	t.Line("\nfault\tbegun\ttelling\tfound\tmedian (of faults since the first query)")
	for _, k := range r.Kinds {
		t.Line("%s\t%d\t%d\t%d\t%s", k.Kind, k.Begun, k.Telling, k.Found, opt("%.0f s", k.Median))
	}
	t.Line("\nthrottle\tno verdict\tnormal\tanomaly")
	t.Line("with an observable fault\t%d\t%d\t%d", r.Faulty.None, r.Faulty.Normal, r.Faulty.Anomaly)
	t.Line("healthy\t%d\t%d\t%d", r.Healthy.None, r.Healthy.Normal, r.Healthy.Anomaly)
	t.Line("\n%d false alarms, precision %s, recall %s", r.FalseAlarms, opt("%.3f", r.Precision), opt("%.3f", r.Recall))
}

func opt(format string, v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf(format, *v)
}
