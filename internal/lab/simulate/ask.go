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
	askEvery     = 10 * time.Second // for each car; longer if all cars would be more than askPerSecond
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
	free := make(chan struct{}, askers)
	var asking sync.WaitGroup
	defer asking.Wait()
	for i := range cars {
		if free <- struct{}{}; ctx.Err() != nil {
			return
		}
		asking.Go(func() {
			s.ask(ctx, i)
			<-free
		})
	}
}

// At the end, the simulation waits judgedWithin for answers that include the last samples, but only
// judgedAfter once one does: the reading behind an answer may be older than the last sample.
const (
	judgedWithin = 2 * time.Minute
	judgedAfter  = 10 * time.Second
	judgedEvery  = 20 * time.Millisecond
)

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

func (s *Simulation) askDriving(ctx context.Context, i int, k known) (a client.DrivingAnswer, err error) {
	for {
		a, err = s.Developer.CarDrivingState(ctx, string(s.ids[i]))
		if err != nil || !k.ended || !s.awaits(k, a) || periodic.Pause(ctx, judgedEvery) != nil {
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
