package restart

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"example.org/carstate/bench/must"
	"example.org/carstate/bench/report"
	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/store/local"
	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/internal/vehicle"
)

const (
	atOnce      = 32
	connections = 4
)

type Cars struct {
	Node    *nodeprocess.Node
	Key     string // of all cars
	PerBody int
	Sent    atomic.Int64
	next    atomic.Int64
}

// Drive sends samples of the cars 0 to cars-1 in turn and returns when all are acknowledged. A
// sample has the time at which it was due. The rate is that of OpenLoop.
func (c *Cars) Drive(ctx context.Context, cars int, perSecond float64, samples int) error {
	body, workers := min(c.PerBody, max(1, int(perSecond/10))), atOnce
	if perSecond == 0 {
		body, workers = c.PerBody, connections
	}
	return must.Caught(func() {
		OpenLoop(ctx, perSecond/float64(body), workers, (samples+body-1)/body, func(ctx context.Context, i int, due time.Time) {
			n := min(body, samples-i*body)
			car := int(c.next.Add(int64(n))) - n
			var text []byte
			for k := range n {
				text = appendSample(text, (car+k)%cars, due)
			}
			if status, said := must.Get2(c.Node.Post(ctx, c.Key, string(text))); status != http.StatusAccepted {
				must.Fail("telemetry was answered with %d: %s", status, said)
			}
			c.Sent.Add(int64(n))
		})
	})
}

// OpenLoop makes n calls at a rate, regardless of how long they take, but at most atOnce at a time.
// If perSecond is 0, each is due when one before has ended.
func OpenLoop(ctx context.Context, perSecond float64, atOnce, n int, f func(ctx context.Context, i int, due time.Time)) {
	start := time.Now()
	var next atomic.Int64
	must.Together(ctx, atOnce, func(ctx context.Context, _ int) {
		for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
			due := time.Now()
			if perSecond > 0 {
				due = start.Add(time.Duration(float64(i) / perSecond * float64(time.Second)))
			}
			must.Do(periodic.Pause(ctx, time.Until(due)), ctx.Err())
			f(ctx, i, due)
		}
	})
}

func appendSample(b []byte, i int, at time.Time) []byte {
	return fmt.Appendf(b,
		`{"vid":%q,"time":%d,"signals":{"Vehicle.Speed":%.1f,`+
			`"Vehicle.OBD.ThrottlePosition":%.1f,"Vehicle.OBD.EngineSpeed":%d}}`+"\n",
		VID(i), at.UnixMilli(), 20+float64(i%600)/10, 15+float64(i%100)/10, 1500+i%400)
}

// VID is as long as that in the query interface's example.
func VID(i int) vehicle.ID { return vehicle.ID(fmt.Sprintf("NHeN4UqVsohGS%08d", i)) }

var signals = []vehicle.Signal{
	vehicle.Speed, vehicle.EngineSpeed, vehicle.EngineLoad, vehicle.ThrottlePosition, vehicle.ThrottlePositionB,
	vehicle.ThrottleActuator, vehicle.AcceleratorPositionD, vehicle.AcceleratorPositionE, vehicle.MILOn,
}

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

// Of cars that have driven for ten minutes.
func templates(now time.Time) []vehicle.State {
	states := make([]vehicle.State, 64)
	for i := range states {
		for s := range 600 {
			states[i] = vehicle.Observe(states[i], sampleAt(i, vehicle.At(now.Add(time.Duration(s-600)*time.Second))))
		}
	}
	return states
}

// filled writes states as derive does, in atomic batches.
type filled struct {
	partitions []store.Partition
	states     []vehicle.State
	waiting    []map[vehicle.ID][]byte
}

func openLocal(ctx context.Context, dir string) store.Engine {
	return must.Get(local.Open(ctx, local.Config{DataDir: dir}))
}

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

// Fill adds n vehicles, and closes the engine.
func Fill(ctx context.Context, e store.Engine, n int) {
	fill(ctx, e, func(s *filled) {
		for i := range n {
			s.put(ctx, i, 0)
		}
	})
}

// Half of the states are of only about √n of the n vehicles.
func overwrite(ctx context.Context, dir string, n, updates int) (most int64) {
	random := rand.New(rand.NewPCG(1, 2))
	fill(ctx, openLocal(ctx, dir), func(s *filled) {
		for u := range updates {
			// Uniform in the logarithm, like Zipf's law with exponent 1.
			s.put(ctx, int(math.Pow(float64(n), random.Float64()))-1, u)
			if u%(updates/100+1) == 0 {
				most = max(most, must.Get(report.DirSize(dir)))
			}
		}
	})
	return most
}
