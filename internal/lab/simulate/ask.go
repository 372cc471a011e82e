package simulate

import (
	"context"
	"sync"
	"time"

	"carstate/client"
	"carstate/internal/lab/traffic"
	"carstate/internal/periodic"
	"carstate/internal/vehicle"
)

// How the verdicts are asked for.
const (
	// askEvery is the time between two queries about one car, unless the fleet is so large that
	// this would take more than askPerSecond queries a second.
	askEvery     = 10 * time.Second
	askPerSecond = 200
	// AskAfter is how long cars have driven before their verdicts are compared, because a drive
	// begins as "normal", whatever the traffic.
	AskAfter = 3 * time.Minute
	askers   = 4
)

// askOnAndOn asks about one car after another, again and again, until ctx ends.
func (s *Simulation) askOnAndOn(ctx context.Context) {
	questions := make(chan int)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer close(questions)
	for range askers {
		asking.Go(func() {
			for i := range questions {
				s.ask(ctx, i)
			}
		})
	}
	next := 0
	for range periodic.Every(ctx, max(askEvery/time.Duration(len(s.ids)), time.Second/askPerSecond)) {
		select {
		case <-ctx.Done():
			return
		case questions <- next:
			next = (next + 1) % len(s.ids)
		}
	}
}

// askAll asks about every car at the end, when everything is acknowledged.
func (s *Simulation) askAll(ctx context.Context) {
	var asking sync.WaitGroup
	defer asking.Wait()
	for k := range askers {
		asking.Go(func() {
			for i := k; i < len(s.ids) && ctx.Err() == nil; i += askers {
				s.ask(ctx, i)
			}
		})
	}
}

// judgedWithin is the maximum wait, at the end, for answers that include the last samples. The time
// between two queries during that wait is judgedEvery.
const (
	judgedWithin = 30 * time.Second
	judgedEvery  = 20 * time.Millisecond
)

// known is the truth about a car at the time of a query.
type known struct {
	traffic.Truth
	now    time.Duration
	latest time.Time      // time of its latest sample, to the second
	ended  bool           // everything is sent
	fault  *standingFault // nil: the car is healthy
	mended time.Duration
}

// lateMost is how late the stored samples of the fleet may be while verdicts are still compared.
// The limit is needed because a verdict cannot include a sample that is not stored yet.
const lateMost = 2 * time.Second

// known returns the truth about the i-th car. The result compare is false if the answers must not
// be compared with it: the fleet began less than AskAfter ago, or its stored samples are late.
func (s *Simulation) known(i int) (k known, compare bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &s.faults.cars[i]
	k = known{s.truth[i], s.now, s.latest[i].Time().Truncate(time.Second), s.ended, c.now, c.mended}
	if s.now < AskAfter || !s.ended && s.late() > lateMost {
		return k, false
	}
	if s.asking == 0 {
		s.asking = s.now
	}
	return k, true
}

// ask asks both questions about the i-th car, driving state and throttle system, and compares the
// answers with the truth at that moment.
func (s *Simulation) ask(ctx context.Context, i int) {
	k, compare := s.known(i)
	if !compare {
		return
	}
	driving, derr := s.askDriving(ctx, i, k)
	throttle, terr := s.Developer.ThrottleSystem(ctx, string(s.ids[i]))
	if ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if derr != nil || terr != nil {
		s.score.failed++
		return
	}
	s.score.driving(k, driving)
	s.score.throttle(i, k, throttle)
}

// askDriving asks for the driving state of the i-th car. When all samples are acknowledged, it asks
// again until the answer includes them (see behind), or until s.judgedBy.
func (s *Simulation) askDriving(ctx context.Context, i int, k known) (a client.DrivingAnswer, err error) {
	for {
		a, err = s.Developer.CarDrivingState(ctx, string(s.ids[i]))
		if err != nil || !k.ended || !k.behind(a) || time.Now().After(s.judgedBy) {
			return a, err
		}
		select {
		case <-ctx.Done():
			return a, ctx.Err()
		case <-time.After(judgedEvery):
		}
	}
}

// behind reports whether an answer is too old for a comparison: it is older than the car's latest
// sample, which the service has not folded yet. The answer about a parked car may not be older at
// all, because the latest sample may be the first that says that the car is parked. The answer
// about a driving car may be older by lateMost.
func (k *known) behind(a client.DrivingAnswer) bool {
	latest := k.latest
	if !k.Parked {
		latest = latest.Add(-lateMost)
	}
	return a.AsOf.Before(latest)
}

// stateOf returns the state of an answer; 0 is none.
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
