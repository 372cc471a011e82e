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

const (
	askEvery     = 10 * time.Second // about one car, longer if that would be more than askPerSecond
	askPerSecond = 200
	askers       = 4
)

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

// At the end, the simulation waits so long for answers that include the last samples, but once one
// does, only a little longer: the reading behind an answer may well be older than the last one.
const (
	judgedWithin = 2 * time.Minute
	judgedAfter  = 10 * time.Second
	judgedEvery  = 20 * time.Millisecond
)

// ask does nothing before AskAfter, or while the stored samples are too far behind.
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

// At the end, askDriving waits until the answer includes the latest samples, or until judgedBy.
func (s *Simulation) askDriving(ctx context.Context, i int, k known) (a client.DrivingAnswer, err error) {
	for {
		a, err = s.Developer.CarDrivingState(ctx, string(s.ids[i]))
		if err != nil || !k.ended || !s.awaits(k, a) {
			return a, err
		}
		if err := periodic.Pause(ctx, judgedEvery); err != nil {
			return a, err
		}
	}
}

func (s *Simulation) awaits(k known, a client.DrivingAnswer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, behind := time.Now(), k.behind(a)
	if soon := now.Add(judgedAfter); !behind && k.Driving != 0 && soon.Before(s.judgedBy) {
		s.judgedBy = soon
	}
	return behind && now.Before(s.judgedBy)
}
