package restart

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"path/filepath"
	"time"

	"carstate/bench/must"
	"carstate/internal/store"
	"carstate/internal/store/codec"
	"carstate/internal/store/local"
	"carstate/internal/vehicle"
)

// VID returns the id of vehicle i. It is as long as the ids in the interface's example.
func VID(i int) vehicle.ID { return vehicle.ID(fmt.Sprintf("NHeN4UqVsohGS%08d", i)) }

// signals are the signals that the cars of this fleet report. An ordinary car provides them by OBD.
// They include both throttle sensors and both pedal sensors.
var signals = []vehicle.Signal{
	vehicle.Speed, vehicle.EngineSpeed, vehicle.EngineLoad, vehicle.ThrottlePosition, vehicle.ThrottlePositionB,
	vehicle.ThrottleActuator, vehicle.AcceleratorPositionD, vehicle.AcceleratorPositionE, vehicle.MILOn,
}

// sampleAt returns the sample of car i for the time t. The car speeds up and slows down, and its
// throttle follows its pedal.
func sampleAt(i int, t vehicle.UnixMilli) (vehicle.Sample, error) {
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
		if err := x.Set(g, v); err != nil {
			return x, err
		}
	}
	return x, nil
}

// templates returns the states of cars that have driven for ten minutes up to the parameter now,
// with everything that the rules have learned about them. A store is filled with copies of these
// states.
func templates(now time.Time) ([]vehicle.State, error) {
	states := make([]vehicle.State, 64)
	for i := range states {
		for s := range 600 {
			x, err := sampleAt(i, vehicle.At(now.Add(time.Duration(s-600)*time.Second)))
			if err != nil {
				return nil, err
			}
			states[i] = vehicle.Observe(states[i], x)
		}
	}
	return states, nil
}

// filled is a store that this process fills. It stores states as derive does, in atomic batches.
type filled struct {
	engine     store.Engine
	partitions []store.Partition
	states     []vehicle.State
	waiting    []map[vehicle.ID]*vehicle.State // the next batch of each partition
}

// openLocal opens or creates a store on this machine.
func openLocal(ctx context.Context, dir string) (store.Engine, error) {
	return local.Open(ctx, local.Config{DataDir: dir})
}

// fill takes the ownership of all partitions of an engine and returns a store to be filled. The
// caller closes it, which closes the engine.
func fill(ctx context.Context, e store.Engine) (_ *filled, err error) {
	s := &filled{engine: e}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.Close())
		}
	}()
	if s.states, err = templates(time.Now()); err != nil {
		return nil, err
	}
	for p := range e.Partitions() {
		part, err := e.Take(ctx, p, "bench", store.Anyone)
		if err != nil {
			return nil, err
		}
		s.partitions = append(s.partitions, part)
		s.waiting = append(s.waiting, make(map[vehicle.ID]*vehicle.State))
	}
	return s, nil
}

// put stores the n-th state of vehicle i as part of a batch.
func (s *filled) put(ctx context.Context, i, n int) error {
	p := codec.PartitionOf(VID(i), len(s.partitions))
	s.waiting[p][VID(i)] = &s.states[(i+n)%len(s.states)]
	if len(s.waiting[p]) < store.BatchStates {
		return nil
	}
	return s.flush(ctx, p)
}

func (s *filled) flush(ctx context.Context, p int) error {
	err := s.partitions[p].Commit(ctx, 0, s.waiting[p])
	clear(s.waiting[p])
	return err
}

func (s *filled) close(ctx context.Context) (err error) {
	for p := range s.partitions {
		err = errors.Join(err, s.flush(ctx, p), s.engine.Release(ctx, p, "bench"))
	}
	return errors.Join(err, s.engine.Close())
}

// Fill adds the vehicles 0 to n-1 to the store of an engine, and closes the engine.
func Fill(ctx context.Context, e store.Engine, n int) (err error) {
	s, err := fill(ctx, e)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close(ctx)) }()
	for i := range n {
		if err := s.put(ctx, i, 0); err != nil {
			return err
		}
	}
	return nil
}

// overwrite stores new states of the n vehicles in a store. Half of the updates concern only about
// √n vehicles. It returns the largest size of the store on disk during the updates.
func overwrite(ctx context.Context, dir string, n, updates int) (most int64) {
	e := must.Get(openLocal(ctx, dir))
	s := must.Get(fill(ctx, e))
	defer func() { must.Do(s.close(ctx)) }()
	random := rand.New(rand.NewPCG(1, 2))
	for u := range updates {
		// Choose a vehicle so that the logarithm of its number is uniformly distributed,
		// like Zipf's law with exponent 1.
		i := int(math.Pow(float64(n), random.Float64())) - 1
		must.Do(s.put(ctx, i, u))
		if u%(updates/100+1) == 0 {
			most = max(most, must.Get(onDisk(dir)))
		}
	}
	return most
}

// onDisk returns the size of the files of a data directory.
func onDisk(dir string) (size int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return ignoreGone(err)
		}
		info, err := d.Info()
		if err == nil {
			size += info.Size()
		}
		return ignoreGone(err)
	})
	return size, err
}

// ignoreGone turns the error about a missing file into nil, because files may be deleted during the
// walk when the store compacts its tables.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
