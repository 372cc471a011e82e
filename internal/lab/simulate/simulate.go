// Package simulate sends a simulated fleet with throttle faults to a service, asks as a developer
// does, and counts how the verdicts agree with the truth.
package simulate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"example.org/carstate/client"
	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/lab/sender"
	"example.org/carstate/internal/lab/traffic"
	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

type Config struct {
	traffic.Config
	Faults   float64       // per hour and car
	Backdate time.Duration // how long ago the fleet begins
	Duration time.Duration // 0: when its context ends
	Prefix   string        // of the vids

	Developer *client.Client // may be nil
	Progress  io.Writer      // every ten seconds; may be nil
}

func (c *Config) IDs() []vehicle.ID {
	ids := make([]vehicle.ID, c.Vehicles)
	for i := range ids {
		ids[i] = vehicle.ID(fmt.Sprintf("%s%05d", c.Prefix, i))
	}
	return ids
}

func underWay(c traffic.Config) *traffic.Fleet {
	fleet := traffic.New(c)
	fleet.Settle(5 * time.Minute)
	return fleet
}

type Simulation struct {
	Config
	fleet  *traffic.Fleet
	ids    []vehicle.ID
	faults *faultBook
	lanes  []chan vehicle.Sample // samples for each connection

	begin        signal.UnixMilli // event time
	handed       atomic.Int64
	acknowledged atomic.Int64
	refused      atomic.Int64

	mu       sync.Mutex // guards the fields below, fleet and faults
	latest   []signal.UnixMilli
	score    *scoreBoard
	refusal  string        // reason of the first refusal
	ended    bool          // everything is acknowledged
	asking   time.Duration // when queries began, or 0
	judgedBy time.Time     // until when queries are repeated
}

const (
	// A car always uses one connection, so that its samples keep their order.
	Doors       = 4
	laneSamples = 20_000
	flushWithin = 5 * time.Second // after Ctrl-C
	tellEvery   = 10 * time.Second
)

func New(c Config) *Simulation {
	if c.Progress == nil {
		c.Progress = io.Discard
	}
	return &Simulation{
		Config: c,
		fleet:  underWay(c.Config),
		ids:    c.IDs(),
		faults: newFaultBook(c.Vehicles, c.Faults, c.Seed),
		latest: make([]signal.UnixMilli, c.Vehicles),
		score:  newScoreBoard(c.Vehicles),
	}
}

// Run returns nil when the duration has passed and all is acknowledged, or within flushWithin after
// ctx ends. With a Developer it queries verdicts, at the end of every car.
func (s *Simulation) Run(ctx context.Context, doors ...sender.Sender) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	sending, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(flushWithin, cut) })()

	s.begin = signal.At(time.Now().Add(-s.Backdate))
	var senders, watchers sync.WaitGroup
	for _, door := range doors {
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
	if s.Developer != nil {
		watchers.Go(func() { s.askOnAndOn(watching) })
	}
	s.drive(ctx)
	for _, lane := range s.lanes {
		close(lane)
	}
	senders.Wait()
	stopWatching()
	watchers.Wait()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	if ctx.Err() == nil && s.Developer != nil {
		s.mu.Lock()
		s.ended, s.judgedBy = true, time.Now().Add(judgedWithin)
		s.mu.Unlock()
		s.askAbout(ctx, slices.All(s.ids))
	}
	return nil
}

// drive goes at the speed of the clock, or while behind it, as fast as samples are accepted.
func (s *Simulation) drive(ctx context.Context) {
	for {
		due := s.begin.Add(s.fleet.Now() + traffic.Step).Time()
		if periodic.Pause(ctx, time.Until(due)) != nil || ctx.Err() != nil {
			return
		}
		s.step(ctx)
		if s.Duration > 0 && s.fleet.Now() >= s.Backdate+s.Duration {
			return
		}
	}
}

func (s *Simulation) step(ctx context.Context) {
	var samples []vehicle.Sample
	var cars []int
	s.mu.Lock()
	s.fleet.Step(func(i int, at time.Duration, r signal.Readings) {
		s.faults.apply(i, at, &r)
		x := vehicle.Sample{Vehicle: s.ids[i], Time: s.begin.Add(at), Readings: r}
		s.latest[i] = x.Time
		samples, cars = append(samples, x), append(cars, i)
	})
	s.mu.Unlock()
	for i := range samples {
		select {
		case s.lanes[cars[i]%len(s.lanes)] <- samples[i]:
			s.handed.Add(1)
		case <-ctx.Done():
			return
		}
	}
}

// Samples that are refused for good, as of a forgotten vehicle, are only counted.
func (s *Simulation) send(ctx context.Context, door sender.Sender, lane <-chan vehicle.Sample) error {
	batch := make([]vehicle.Sample, 0, sender.Batch)
	for first := range lane {
		batch = append(batch[:0], first)
		for len(batch) < sender.Batch && len(lane) > 0 { // nobody else receives from lane
			batch = append(batch, <-lane)
		}
		err := door.Send(ctx, batch)
		r, refused := errors.AsType[sender.Refusal](err)
		if err != nil && !refused {
			return err
		}
		s.acknowledged.Add(int64(len(batch) - r.Samples))
		s.refused.Add(int64(r.Samples))
		s.mu.Lock()
		s.refusal = cmp.Or(s.refusal, r.Reason)
		s.mu.Unlock()
	}
	return nil
}

func (s *Simulation) tell(ctx context.Context) {
	before, at := int64(0), time.Now()
	for range periodic.Every(ctx, tellEvery) {
		n, now := s.acknowledged.Load(), time.Now()
		fmt.Fprintf(s.Progress, "%s, %.0f samples/s acknowledged\n", s.status(),
			float64(n-before)/now.Sub(at).Seconds())
		before, at = n, now
	}
}

// late is the service's delay; mu is locked.
func (s *Simulation) late() time.Duration {
	waiting := float64(s.handed.Load() - s.acknowledged.Load() - s.refused.Load())
	return time.Since(s.begin.Add(s.fleet.Now()).Time()) +
		time.Duration(waiting/(s.PerSecond*float64(s.Vehicles))*float64(time.Second))
}

func (s *Simulation) status() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var of [4]int
	parked, faulty := 0, 0
	for i := range s.ids {
		t := s.fleet.Truth(i)
		of[t.Driving]++
		if t.Parked {
			parked++
		}
		if s.faults.cars[i].now != nil {
			faulty++
		}
	}
	line := fmt.Sprintf("%s: %d normal, %d slow, %d in a jam, %d parked, %d between roads; %d with a fault",
		s.fleet.Now().Truncate(time.Second), of[driving.Normal], of[driving.Slow], of[driving.Jam],
		parked, of[0]-parked, faulty)
	if late := s.late(); late > lateMost {
		line += fmt.Sprintf("; %s behind the clock", late.Truncate(time.Second))
	}
	if s.score.Rows > 0 {
		line += fmt.Sprintf("; %.2f agree", s.score.Accuracy)
	}
	return line
}

const (
	lightTime      = time.Hour
	lightPerSecond = 0.1
)

// Teach sends an hour of light traffic that ends sender.Between before the fleet begins, so that
// the roads are known; nothing without positions.
func Teach(ctx context.Context, door sender.Sender, c *Config) error {
	if c.WithoutPositions {
		return nil
	}
	light, ids := underWay(traffic.Config{Vehicles: c.Vehicles, PerSecond: lightPerSecond, Seed: c.Seed, Light: true}),
		c.IDs()
	begin := signal.At(time.Now().Add(-c.Backdate - sender.Between - lightTime))
	for light.Now() < lightTime {
		var samples []vehicle.Sample
		for len(samples) < sender.Batch && light.Now() < lightTime {
			light.Step(func(i int, at time.Duration, r signal.Readings) {
				if r.Has(signal.CurrentLatitude) {
					samples = append(samples, vehicle.Sample{Vehicle: ids[i], Time: begin.Add(at), Readings: r})
				}
			})
		}
		if err := sender.All(ctx, door, samples, func(int) {}); err != nil {
			return err
		}
	}
	return nil
}
