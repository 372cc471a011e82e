package restart

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"example.org/carstate/bench/must"
	"example.org/carstate/bench/report"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/store/local"
	"example.org/carstate/internal/vehicle"
)

// VID returns the id of vehicle i. It has 21 characters, like the vid in the example of the query
// interface (NHeN4UqVsohGS55I7LBdh).
func VID(i int) vehicle.ID { return vehicle.ID(fmt.Sprintf("NHeN4UqVsohGS%08d", i)) }

// signals are the signals that the cars of this fleet report. An ordinary car provides them by OBD.
// They include both throttle sensors and both pedal sensors.
var signals = []vehicle.Signal{
	vehicle.Speed, vehicle.EngineSpeed, vehicle.EngineLoad, vehicle.ThrottlePosition, vehicle.ThrottlePositionB,
	vehicle.ThrottleActuator, vehicle.AcceleratorPositionD, vehicle.AcceleratorPositionE, vehicle.MILOn,
}

// sampleAt returns the sample of car i for the time t. The car speeds up and slows down, and its
// throttle follows its pedal.
func sampleAt(i int, t vehicle.UnixMilli) vehicle.Sample {
	x := vehicle.Sample{Vehicle: VID(i), Time: t}
	pedal := 50 + 40*math.Sin(float64(t)/7000+float64(i))
	for _, g := range signals {
		v := pedal
		switch g {
		case vehicle.Speed:
			v = 30 + pedal/2
		case vehicle.EngineSpeed:
			v = 800 + 30*pedal
		case vehicle.MILOn:
			v = 0
		}
		must.Do(x.Set(g, v))
	}
	return x
}

// templates returns the states of cars that have driven for ten minutes up to now, with everything
// that the rules have learned about them. A store is filled with copies of these states.
func templates(now time.Time) []vehicle.State {
	states := make([]vehicle.State, 64)
	for i := range states {
		for s := range 600 {
			states[i] = vehicle.Observe(states[i], sampleAt(i, vehicle.At(now.Add(time.Duration(s-600)*time.Second))))
		}
	}
	return states
}

// filled is a store that this process fills. It stores states as derive does, in atomic batches.
type filled struct {
	partitions []store.Partition
	states     []vehicle.State
	waiting    []map[vehicle.ID][]byte // the next batch of each partition
}

// openLocal opens or creates a store on this machine.
func openLocal(ctx context.Context, dir string) store.Engine {
	return must.Get(local.Open(ctx, local.Config{DataDir: dir}))
}

// fill takes the ownership of all partitions of an engine and calls put with a store to be filled.
// Then it stores the states that still wait, and closes the engine.
func fill(ctx context.Context, e store.Engine, put func(*filled)) {
	defer func() { must.Do(e.Close()) }()
	s := &filled{states: templates(time.Now())}
	for p := range e.Partitions() {
		s.partitions = append(s.partitions, must.Get(e.Take(ctx, p, "bench", store.Anyone)))
		s.waiting = append(s.waiting, make(map[vehicle.ID][]byte))
	}
	put(s)
	for p := range s.partitions {
		s.flush(ctx, p)
		must.Do(e.Release(ctx, p, "bench"))
	}
}

// put adds the n-th state of vehicle i to a batch, which is stored as soon as it is full.
func (s *filled) put(ctx context.Context, i, n int) {
	p := codec.PartitionOf(VID(i), len(s.partitions))
	state := s.states[(i+n)%len(s.states)]
	for j := range state.Latest { // states that are alike would be compressed
		state.Latest[j].Value *= 1 + float32(i%9973)/1e6
	}
	s.waiting[p][VID(i)] = codec.AppendState(nil, &state)
	if len(s.waiting[p]) == store.BatchStates {
		s.flush(ctx, p)
	}
}

func (s *filled) flush(ctx context.Context, p int) {
	must.Do(s.partitions[p].Commit(ctx, 0, s.waiting[p], false))
	clear(s.waiting[p])
}

// Fill adds the vehicles 0 to n-1 to the store of an engine, and closes the engine.
func Fill(ctx context.Context, e store.Engine, n int) {
	fill(ctx, e, func(s *filled) {
		for i := range n {
			s.put(ctx, i, 0)
		}
	})
}

// overwrite makes a number of updates, each of which stores a new state of one of the n vehicles of
// a store. Half of the updates concern only about √n vehicles. The result is the largest of about a
// hundred measurements of the store's size on disk, in bytes, during the updates.
func overwrite(ctx context.Context, dir string, n, updates int) (most int64) {
	random := rand.New(rand.NewPCG(1, 2))
	fill(ctx, openLocal(ctx, dir), func(s *filled) {
		for u := range updates {
			// Choose a vehicle so that the logarithm of its number is uniformly
			// distributed, like Zipf's law with exponent 1.
			s.put(ctx, int(math.Pow(float64(n), random.Float64()))-1, u)
			if u%(updates/100+1) == 0 {
				most = max(most, must.Get(report.DirSize(dir)))
			}
		}
	})
	return most
}
