package restart

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"reflect"
	"sync/atomic"
	"time"

	"example.org/carstate/bench/must"
	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/road"
	"example.org/carstate/internal/signal"
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

// Cars report to a node one after the other, one sample each, in repeated rounds.
type Cars struct {
	Nodes     []*nodeprocess.Node // they get a body in turn
	Key       string              // of a source that may send samples of all cars
	PerBody   int
	Positions bool // of cars that Fill stored with [positionAndPlate]
	Sent      atomic.Int64
	next      atomic.Int64 // the car that reports next
}

// Drive sends samples of the cars 0 to cars-1 in turn and returns when all are acknowledged. The
// rate does not depend on the node's answers, as long as fewer than atOnce requests wait for one; a
// sample has the time at which it was due. If perSecond is 0, a few connections send as fast as
// they are answered.
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
				text = c.appendSample(text, (car+k)%cars, due)
			}
			for wait := true; wait; {
				status, said := must.Get2(c.Nodes[i%len(c.Nodes)].Post(ctx, c.Key, string(text)))
				if wait = status == http.StatusTooManyRequests; wait {
					must.Do(periodic.Pause(ctx, 100*time.Millisecond))
				} else if status != http.StatusAccepted {
					must.Fail("telemetry was answered with %d: %s", status, said)
				}
			}
			c.Sent.Add(int64(n))
		})
	})
}

// OpenLoop makes n calls at a rate, regardless of how long they take, each with the time at which
// it was due. At most atOnce are in progress. If perSecond is 0, each is due when one before has
// ended.
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

func (c *Cars) appendSample(b []byte, i int, at time.Time) []byte {
	third := fmt.Sprintf(`"Vehicle.OBD.EngineSpeed":%d`, 1500+i%400)
	if c.Positions {
		third = fmt.Sprintf(`"Vehicle.CurrentLocation.Latitude":%.6f,"Vehicle.CurrentLocation.Longitude":11`,
			latitude(i%templates, signal.At(at)))
	}
	return fmt.Appendf(b, `{"vid":%q,"time":%d,"signals":{"Vehicle.Speed":%.1f,"Vehicle.OBD.ThrottlePosition":%.1f,%s}}`+"\n",
		VID(i), at.UnixMilli(), 20+float64(i%600)/10, 15+float64(i%100)/10, third)
}

// latitude is that of a car at 14 m/s.
func latitude(i int, t signal.UnixMilli) float64 {
	return 48 + float64(i)/100 + float64(t/1000%600)*14/111_000
}

const templates = 64 // cars of whose states those of the fleet are copies

func VID(i int) vehicle.ID { return vehicle.ID(fmt.Sprintf("NHeN4UqVsohGS%08d", i)) }

// AllSignals are those that an ordinary car provides by OBD.
var AllSignals = []signal.Signal{
	signal.Speed, signal.EngineSpeed, signal.EngineLoad, signal.ThrottlePosition, signal.ThrottlePositionB,
	signal.ThrottleActuator, signal.AcceleratorPositionD, signal.AcceleratorPositionE, signal.MILOn,
}

var positionAndPlate = []signal.Signal{
	signal.Speed, signal.CurrentLatitude, signal.CurrentLongitude, signal.ThrottlePosition,
}

func sampleAt(i int, t signal.UnixMilli, signals []signal.Signal) vehicle.Sample {
	x := vehicle.Sample{Vehicle: VID(i), Time: t}
	pedal := 50 + 40*math.Sin(float64(t)/7000+float64(i))
	for _, g := range signals {
		v := pedal
		switch g {
		case signal.Speed:
			v = 30 + pedal/2
		case signal.EngineSpeed:
			v = 800 + 30*pedal
		case signal.MILOn:
			v = 0
		case signal.CurrentLatitude:
			v = latitude(i, t)
		case signal.CurrentLongitude:
			v = 11
		}
		must.Do(x.Set(g, v))
	}
	return x
}

// packedStates are of cars that have driven for ten minutes, and like those of a fleet, not alike, or
// they would be compressed.
func packedStates(now time.Time, signals []signal.Signal) [][]byte {
	roads, cars, packed := new(road.Map), make([]vehicle.State, templates), make([][]byte, 1<<14)
	for i := range cars {
		for s := range 600 {
			roads.Fold(&cars[i], new(sampleAt(i, signal.At(now.Add(time.Duration(s-600)*time.Second)), signals)), false)
		}
	}
	for i := range packed {
		s := cars[i%len(cars)]
		vary(reflect.ValueOf(&s).Elem())
		packed[i] = codec.AppendState(nil, &s)
	}
	return packed
}

// vary changes the low bits of all numbers but zeros.
func vary(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			vary(field)
		}
	case reflect.Array:
		for i := range v.Len() {
			vary(v.Index(i))
		}
	case reflect.Float32:
		if !v.IsZero() {
			v.SetFloat(float64(math.Float32frombits(math.Float32bits(float32(v.Float())) ^ rand.Uint32N(1<<11))))
		}
	}
}

func openLocal(ctx context.Context, dir string) store.Engine {
	return must.Get(local.Open(ctx, local.Config{DataDir: dir}))
}

// Fill stores the states of the vehicles 0 to n-1 in one checkpoint of each partition, and closes
// the engine.
func Fill(ctx context.Context, e store.Engine, n int, signals []signal.Signal) {
	defer func() { must.Do(e.Close()) }()
	states := packedStates(time.Now(), signals)
	for p := range e.Partitions() {
		part := must.Get(e.Take(ctx, p, "bench", nobody, store.Anyone))
		must.Get(part.Save(ctx, store.Checkpoint{Number: 1, First: 1}, func(yield func(store.Piece) bool) {
			var b []byte
			for i := range n {
				if codec.PartitionOf(VID(i), e.Partitions()) != p {
					continue
				}
				b = store.AppendEntry(b, store.Entry{Vehicle: VID(i), State: states[i%len(states)]})
				if len(b) >= store.PieceBytes {
					if !yield(store.Piece{Entries: b}) {
						return
					}
					b = b[:0]
				}
			}
			yield(store.Piece{Entries: b})
		}, false))
		must.Do(e.Release(ctx, p, "bench"))
	}
}

func nobody(context.Context, *store.Question) (store.Reply, error) { return store.Reply{}, nil }
