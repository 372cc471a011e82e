package simulate

import (
	"context"
	"sync"
	"time"

	"carstate/client"
	"carstate/internal/lab/traffic"
	"carstate/internal/ticks"
	"carstate/internal/vehicle"
)

// How the verdicts are asked for.
const (
	// askEvery is the time between two questions about one car, if the fleet is
	// not so large that askPerSecond would be exceeded.
	askEvery     = 10 * time.Second
	askPerSecond = 200
	// askAfter is how long cars have driven before their verdicts are compared: a
	// drive begins in "normal", whatever the traffic.
	askAfter = 3 * time.Minute
	askers   = 4
)

// askOnAndOn asks about one car after the other.
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
	for range ticks.Every(ctx, max(askEvery/time.Duration(len(s.ids)), time.Second/askPerSecond)) {
		select {
		case <-ctx.Done():
			return
		case questions <- next:
			next = (next + 1) % len(s.ids)
		}
	}
}

// askAll asks about every car once, at the end, when all is acknowledged and judged.
func (s *Simulation) askAll(ctx context.Context) {
	s.waitJudged(ctx)
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

// The wait for the last verdicts: how long, and the time between two questions.
const (
	judgedWithin = 30 * time.Second
	judgedEvery  = 20 * time.Millisecond
)

// waitJudged waits until the verdict on some car is as new as its last sample. After
// judgedWithin it gives up, and the questions are asked all the same.
func (s *Simulation) waitJudged(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, judgedWithin)
	defer cancel()
	last := s.lastDriving
	if last.Vehicle == "" {
		return // nobody drove
	}
	for range ticks.NowAndEvery(ctx, judgedEvery) {
		a, err := s.Developer.CarDrivingState(ctx, string(last.Vehicle))
		if err == nil && !a.AsOf.Before(last.Time.Time().Truncate(time.Second)) {
			return
		}
	}
}

// known is the truth about a car at the time of a question.
type known struct {
	traffic.Truth
	now    time.Duration
	latest time.Time      // of its samples, to the second
	ended  bool           // all is sent
	fault  *standingFault // nil: it is healthy
	mended time.Duration
}

// lateMost is how far the fleet may be behind the clock and still be compared: a sample that
// is not stored yet cannot be judged.
const lateMost = 2 * time.Second

// known returns the truth about a car; compare is false while it means nothing.
func (s *Simulation) known(i int) (k known, compare bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &s.faults.cars[i]
	k = known{s.truth[i], s.now, s.latest[i].Time().Truncate(time.Second), s.ended, c.now, c.mended}
	if s.now < askAfter || !s.ended && s.late() > lateMost {
		return k, false
	}
	if s.asking == 0 {
		s.asking = s.now
	}
	return k, true
}

// ask asks both questions about a car and compares the answers with the truth of
// that moment.
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

// askDriving asks for the driving state of a car; once all is sent, until the answer counts or
// judgedWithin is over.
func (s *Simulation) askDriving(ctx context.Context, i int, k known) (a client.DrivingAnswer, err error) {
	within, cancel := context.WithTimeout(ctx, judgedWithin)
	defer cancel()
	for range ticks.NowAndEvery(within, judgedEvery) {
		a, err = s.Developer.CarDrivingState(ctx, string(s.ids[i]))
		if err != nil || !k.ended || !k.behind(a) {
			break
		}
	}
	return a, err
}

// behind tells whether an answer about a parked car is older than the car's latest sample, and
// so perhaps than its parking: the service has stored that sample and not yet folded it.
func (k *known) behind(a client.DrivingAnswer) bool { return k.Parked && a.AsOf.Before(k.latest) }

// stateOf is the state of an answer; 0 is none.
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
