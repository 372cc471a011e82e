package simulate

import (
	"cmp"
	"context"
	"iter"
	"sync"
	"time"

	"example.org/carstate/client"
	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/vehicle"
)

// How often and by how many goroutines the service is queried for verdicts.
const (
	// askEvery is the time between two queries about one car. If a fleet is so large that this
	// would be more than askPerSecond queries a second, the time is longer.
	askEvery     = 10 * time.Second
	askPerSecond = 200
	askers       = 4
)

// askOnAndOn queries the verdicts on one car after the other, in turn, until ctx ends.
func (s *Simulation) askOnAndOn(ctx context.Context) {
	s.askAbout(ctx, func(yield func(int, vehicle.ID) bool) {
		next := 0
		for range periodic.Every(ctx, max(askEvery/time.Duration(len(s.ids)), time.Second/askPerSecond)) {
			if !yield(next, s.ids[next]) {
				return
			}
			next = (next + 1) % len(s.ids)
		}
	})
}

// askAbout queries the verdicts on cars, given by their numbers and ids, until ctx ends.
func (s *Simulation) askAbout(ctx context.Context, cars iter.Seq2[int, vehicle.ID]) {
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
	for i := range cars {
		select {
		case <-ctx.Done():
			return
		case questions <- i:
		}
	}
}

// judgedWithin is the maximum time, after all samples are acknowledged, to wait for answers that
// include the last samples. During this wait, a query is repeated at the interval judgedEvery.
const (
	judgedWithin = 2 * time.Minute
	judgedEvery  = 20 * time.Millisecond
)

// ask queries both verdicts on the i-th car, driving state and throttle system. It compares them
// with the truth, which it reads before the queries. It queries nothing if the fleet has driven for
// less than AskAfter, or if samples are still being sent and the stored ones are too far behind the
// clock (see lateMost). If a query fails, ask compares nothing and only counts the failure.
func (s *Simulation) ask(ctx context.Context, i int) {
	s.mu.Lock()
	if s.fleet.Now() < AskAfter || !s.ended && s.late() > lateMost {
		s.mu.Unlock()
		return
	}
	s.asking = cmp.Or(s.asking, s.fleet.Now())
	c := &s.faults.cars[i]
	k := known{s.fleet.Truth(i), s.fleet.Now(), s.latest[i].Time().Truncate(time.Second), s.ended, c.now, c.mended}
	s.mu.Unlock()
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

// askDriving queries the driving state of the i-th car, and returns the answer. If all samples are
// already acknowledged, it repeats the query until the answer is based on the car's latest samples
// (see behind), or until the time s.judgedBy. The last answer is then returned, although it may be
// too old.
func (s *Simulation) askDriving(ctx context.Context, i int, k known) (a client.DrivingAnswer, err error) {
	for {
		a, err = s.Developer.CarDrivingState(ctx, string(s.ids[i]))
		if err != nil || !k.ended || !k.behind(a) || time.Now().After(s.judgedBy) {
			return a, err
		}
		if err := periodic.Pause(ctx, judgedEvery); err != nil {
			return a, err
		}
	}
}
