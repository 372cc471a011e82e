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

	"carstate/internal/store"
	"carstate/internal/store/codec"
	"carstate/internal/store/local"
	"carstate/internal/vehicle"
)

// VID is the id of vehicle i, as long as the ids in the interface's example.
func VID(i int) vehicle.ID { return vehicle.ID(fmt.Sprintf("NHeN4UqVsohGS%08d", i)) }

// signals that the cars of this fleet report: what an ordinary car's OBD gives
// away, both throttle sensors and both pedal sensors.
var signals = []vehicle.Signal{
	vehicle.Speed, vehicle.EngineSpeed, vehicle.EngineLoad, vehicle.ThrottlePosition, vehicle.ThrottlePositionB,
	vehicle.ThrottleActuator, vehicle.AcceleratorPositionD, vehicle.AcceleratorPositionE, vehicle.MILOn,
}

// sampleAt is what car i reports at a time: it speeds up and slows down, and its
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

// templates are the states of cars that have driven for ten minutes until now,
// with all that the rules have learned of them. A store is filled with them.
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

// filled is a data directory in the making, in this process. States go in as
// derive stores them: in atomic batches, each on disk before the next.
type filled struct {
	engine     store.Engine
	partitions []store.Partition
	states     []vehicle.State
	waiting    []map[vehicle.ID]vehicle.State // a batch for each partition
}

// syncEvery stands for the sync of each batch: the files come out alike, sooner.
const syncEvery = 5 * time.Second

// Open opens the engine of a store.
type Open func(ctx context.Context) (store.Engine, error)

// own is a store of this machine's own.
func own(dir string) Open {
	return func(ctx context.Context) (store.Engine, error) {
		return local.Open(ctx, local.Config{Config: store.Config{DataDir: dir}, SyncInterval: syncEvery})
	}
}

func openStore(ctx context.Context, open Open) (_ *filled, err error) {
	s := new(filled)
	if s.states, err = templates(time.Now()); err != nil {
		return nil, err
	}
	if s.engine, err = open(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.engine.Close())
		}
	}()
	for p := range s.engine.Partitions() {
		part, err := s.engine.Take(ctx, p, "bench", store.Anyone)
		if err != nil {
			return nil, err
		}
		s.partitions = append(s.partitions, part)
		s.waiting = append(s.waiting, make(map[vehicle.ID]vehicle.State))
	}
	return s, nil
}

// put stores the state of a vehicle, the nth that it has, with a batch.
func (s *filled) put(ctx context.Context, i, n int) error {
	p := codec.PartitionOf(VID(i), len(s.partitions))
	s.waiting[p][VID(i)] = s.states[(i+n)%len(s.states)]
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

// Fill adds vehicles from..to-1 to a store, or makes it.
func Fill(ctx context.Context, open Open, from, to int) (err error) {
	s, err := openStore(ctx, open)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close(ctx)) }()
	for i := from; i < to; i++ {
		if err := s.put(ctx, i, 0); err != nil {
			return err
		}
	}
	return nil
}

// overwrite stores new states of a store's n vehicles, few of which report most:
// half of all updates come from a hundredth of the cars. It returns the most
// bytes that the states took on disk meanwhile.
func overwrite(ctx context.Context, dir string, n, updates int) (most int64, err error) {
	s, err := openStore(ctx, own(dir))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.close(ctx)) }()
	random := rand.New(rand.NewPCG(1, 2))
	for u := range updates {
		// Uniform in the logarithm, as Zipf's law with exponent 1.
		i := int(math.Pow(float64(n), random.Float64())) - 1
		if err := s.put(ctx, i, u); err != nil {
			return 0, err
		}
		if u%(updates/100+1) == 0 {
			size, err := statesOnDisk(dir)
			if err != nil {
				return 0, err
			}
			most = max(most, size)
		}
	}
	return most, nil
}

// statesOnDisk is what the files of a store take that has nothing but states.
func statesOnDisk(dir string) (size int64, err error) {
	err = filepath.WalkDir(filepath.Join(dir, "store"), func(_ string, d fs.DirEntry, err error) error {
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

// ignoreGone lets files vanish under way, as they do when blocks are compacted.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
