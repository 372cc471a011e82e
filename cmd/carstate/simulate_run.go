package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"carstate/client"
	"carstate/internal/lab/traffic"
	"carstate/internal/ticks"
	"carstate/internal/vehicle"
)

// simulation is a fleet on its way through the front door.
type simulation struct {
	fleet    *traffic.Fleet
	ids      []vehicle.ID
	faults   *faultBook
	backdate time.Duration
	duration time.Duration // 0: until it is told to end
	// perSecond is how many samples the fleet reads in a second, at most.
	perSecond float64
	doors     []sender
	lanes     []chan vehicle.Sample
	progress  io.Writer
	// developer asks for the verdicts; nil: nobody does.
	developer *client.Client

	begin        vehicle.UnixMilli // event time of the fleet's beginning
	handed       atomic.Int64      // samples that were given to the lanes
	acknowledged atomic.Int64
	refused      atomic.Int64

	mu      sync.Mutex // guards what follows, and faults
	now     time.Duration
	truth   []traffic.Truth
	score   *scoreBoard
	refusal string        // the first
	ended   bool          // all is sent and acknowledged
	asking  time.Duration // since when answers are compared; 0: not yet
	// lastDriving is the newest sample of a car that was not parked.
	lastDriving vehicle.Sample
}

const (
	// simulationLanes is how many connections a fleet shares. A car keeps to one,
	// so that its samples keep their order.
	simulationLanes = 4
	// laneSamples wait at most on a lane; then the fleet waits.
	laneSamples = 20_000
	// flushWithin is how long acknowledgements are waited for after Ctrl-C.
	flushWithin = 5 * time.Second
)

func newSimulation(f *trafficFlags) *simulation {
	return &simulation{
		fleet: f.fleet(), ids: f.ids(), backdate: f.Backdate, progress: io.Discard,
		perSecond: f.Rate * float64(f.Vehicles),
		faults:    newFaultBook(f.Vehicles, f.Faults, f.Seed),
		truth:     make([]traffic.Truth, f.Vehicles),
		score:     newScoreBoard(f.Vehicles),
	}
}

// run drives the fleet until the duration is over, ctx ends, which is no error, or
// the service takes no more.
func (s *simulation) run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	// What is on its way when ctx ends is given a moment.
	sending, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(flushWithin, cut) })()

	s.begin = vehicle.At(time.Now().Add(-s.backdate))
	var senders, watchers sync.WaitGroup
	for _, door := range s.doors {
		lane := make(chan vehicle.Sample, laneSamples)
		s.lanes = append(s.lanes, lane)
		senders.Go(func() {
			if err := s.send(sending, door, lane); err != nil {
				stop(err)
				cut()
			}
		})
	}
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	watchers.Go(func() { s.tell(watching) })
	if s.developer != nil {
		watchers.Go(func() { s.askOnAndOn(watching) })
	}
	err := s.drive(ctx)
	for _, lane := range s.lanes {
		close(lane)
	}
	senders.Wait()
	stopWatching()
	watchers.Wait()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	if err == nil && ctx.Err() == nil && s.developer != nil {
		s.end()
		s.askAll(ctx)
	}
	return err
}

// end notes that all is sent.
func (s *simulation) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
}

// drive steps the fleet as time goes by, or as fast as the lanes take what it says
// while it is behind.
func (s *simulation) drive(ctx context.Context) error {
	for {
		due := s.begin.Add(s.fleet.Now() + traffic.Step).Time()
		if wait := time.Until(due); wait > 0 {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(wait):
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		if err := s.step(ctx); err != nil {
			return err
		}
		if s.duration > 0 && s.fleet.Now() >= s.backdate+s.duration {
			return nil
		}
	}
}

// step advances the fleet, puts the faults into what it read, and hands that over.
func (s *simulation) step(ctx context.Context) (err error) {
	var samples []vehicle.Sample
	var cars []int
	s.mu.Lock()
	stepErr := s.fleet.Step(func(i int, at time.Duration, r vehicle.Readings) {
		if ferr := s.faults.apply(i, at, &r); ferr != nil {
			err = ferr
		}
		x := vehicle.Sample{Vehicle: s.ids[i], Time: s.begin.Add(at), Readings: r}
		if samples, cars = append(samples, x), append(cars, i); r.Has(vehicle.ThrottlePosition) {
			s.lastDriving = x
		}
	})
	s.now = s.fleet.Now()
	for i := range s.truth {
		s.truth[i] = s.fleet.Truth(i)
	}
	s.mu.Unlock()
	if err = errors.Join(err, stepErr); err != nil {
		return err
	}
	for i := range samples {
		select {
		case s.lanes[cars[i]%len(s.lanes)] <- samples[i]:
			s.handed.Add(1)
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// send sends what comes along a lane, as much at once as is there.
func (s *simulation) send(ctx context.Context, door sender, lane <-chan vehicle.Sample) error {
	batch := make([]vehicle.Sample, 0, batchSamples)
	for first := range lane {
		batch = append(batch[:0], first)
	more:
		for len(batch) < batchSamples {
			select {
			case x, ok := <-lane:
				if !ok {
					break more
				}
				batch = append(batch, x)
			default:
				break more
			}
		}
		err := door.send(ctx, batch)
		r, refused := errors.AsType[refusal](err)
		switch {
		case refused:
			s.note(r)
		case err != nil:
			return err
		}
		s.acknowledged.Add(int64(len(batch) - r.samples))
	}
	return nil
}

// note counts what the service will not have: a vehicle was forgotten, perhaps.
// The others drive on.
func (s *simulation) note(r refusal) {
	s.refused.Add(int64(r.samples))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refusal == "" {
		s.refusal = r.reason
	}
}

// tell says now and then how the fleet is doing.
func (s *simulation) tell(ctx context.Context) {
	before, at := int64(0), time.Now()
	for range ticks.Every(ctx, progressEvery) {
		n, now := s.acknowledged.Load(), time.Now()
		fmt.Fprintf(s.progress, "%s, %.0f samples/s acknowledged\n", s.status(), float64(n-before)/now.Sub(at).Seconds())
		before, at = n, now
	}
}

// late is how far what is stored is behind the clock. The caller holds mu.
func (s *simulation) late() time.Duration {
	waiting := float64(s.handed.Load() - s.acknowledged.Load() - s.refused.Load())
	return time.Since(s.begin.Add(s.now).Time()) + time.Duration(waiting/s.perSecond*float64(time.Second))
}

// status is where the fleet is, in one line.
func (s *simulation) status() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var of [4]int
	parked := 0
	for _, t := range s.truth {
		of[t.Driving]++
		if t.Parked {
			parked++
		}
	}
	line := fmt.Sprintf("%s: %d normal, %d slow, %d in a jam, %d parked, %d between roads; %d with a fault",
		s.now.Truncate(time.Second), of[vehicle.NormalDriving], of[vehicle.SlowDriving], of[vehicle.TrafficJam], parked, of[0]-parked, s.faults.standing())
	if late := s.late(); late > lateMost {
		line += fmt.Sprintf("; %s behind the clock", late.Truncate(time.Second))
	}
	if s.score.Rows > 0 {
		line += fmt.Sprintf("; %.2f agree", s.score.Accuracy)
	}
	return line
}
