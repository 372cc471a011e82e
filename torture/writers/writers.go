// Package writers simulates cars that report at a constant rate, each reading until it is
// acknowledged.
package writers

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"example.org/carstate/internal/lab/sender"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/internal/vehicle"
	"example.org/carstate/torture/load"
	"example.org/carstate/torture/row"
)

const (
	every = 100 * time.Millisecond
	// for one node; then the next is tried
	tryWithin = 5 * time.Second
)

// Numbers of writers, and of cars of each.
type Layout struct{ HTTP, MQTT, Cars int }

func Car(writer, n int) vehicle.ID { return vehicle.ID(fmt.Sprintf("W%dCAR%d", writer, n)) }

func (l Layout) All() (all []vehicle.ID) {
	for w := range l.Writers() {
		for n := range l.Cars {
			all = append(all, Car(w, n))
		}
	}
	return all
}

func (l Layout) Writers() int { return l.HTTP + l.MQTT }

func Faulty(writer, n int) bool { return (writer+n)%2 == 1 }

type Fleet struct {
	Layout
	a           *row.Attempt
	nodes       []*nodeprocess.Node
	source, key string
	Stop        func()

	mu      sync.Mutex // guards the fields below
	acked   map[vehicle.ID][]signal.UnixMilli
	since   []time.Time // by writer: its last acknowledgement
	sent    []time.Time // by writer: when the newest acknowledged batch was first sent
	longest time.Duration
	over    time.Time
}

func Start(ctx context.Context, a *row.Attempt, nodes []*nodeprocess.Node, source, key string, l Layout) *Fleet {
	f := &Fleet{
		Layout: l, a: a, nodes: nodes, source: source, key: key, acked: make(map[vehicle.ID][]signal.UnixMilli),
		since: make([]time.Time, l.Writers()), sent: make([]time.Time, l.Writers()),
	}
	f.Begin(time.Now())
	f.Stop = row.Background(ctx, l.Writers(), f.write)
	return f
}

// A batch is sent only when the last one is acknowledged, to keep the order of samples.
func (f *Fleet) write(ctx context.Context, w int) {
	rnd := f.a.Rand(1000 + w)
	send := f.post
	if w >= f.HTTP {
		var m sender.Sender // nil: not connected
		defer func() {
			if m != nil {
				m.Close()
			}
		}()
		send = func(ctx context.Context, node *nodeprocess.Node, batch []vehicle.Sample) (n int, err error) {
			if m == nil {
				if m, err = load.Dial(ctx, node, f.source, f.key); err != nil {
					return 0, err
				}
			}
			for n = range batch {
				if err = m.Send(ctx, batch[n:n+1]); err != nil {
					m.Close()
					m = nil
					return n, err
				}
			}
			return len(batch), nil
		}
	}
	node, last := w, int64(0)
	for ctx.Err() == nil {
		began := time.Now()
		last = max(last+1, began.UnixMilli())
		batch := make([]vehicle.Sample, f.Cars)
		for n := range batch {
			batch[n] = Reading(w, n, last, rnd)
		}
		f.a.Offered(len(batch))
		for ctx.Err() == nil {
			try, cancel := context.WithTimeout(ctx, tryWithin)
			n, err := send(try, f.nodes[node%len(f.nodes)], batch)
			cancel()
			f.a.Acknowledged(n)
			f.mu.Lock()
			for _, x := range batch[:n] {
				f.acked[x.Vehicle] = append(f.acked[x.Vehicle], x.Time)
			}
			batch = batch[n:]
			if err == nil {
				now := time.Now()
				if d := now.Sub(f.since[w]); d > f.longest {
					f.longest, f.over = d, now
				}
				f.since[w], f.sent[w] = now, began
			}
			f.mu.Unlock()
			if err == nil || ctx.Err() != nil {
				break
			}
			node++ // as a load balancer would
			row.Pause(ctx, 20*time.Millisecond)
		}
		row.Pause(ctx, every-time.Since(began))
	}
}

func Reading(w, n int, at int64, rnd *rand.Rand) vehicle.Sample {
	x := vehicle.Sample{Vehicle: Car(w, n), Time: signal.UnixMilli(at)}
	wave := 0.5 + 0.5*math.Sin(float64(at)/3000+float64(n))
	err := errors.Join(x.Set(signal.Speed, math.Round(60+40*wave)),
		x.Set(signal.ThrottlePosition, math.Round(10+30*wave+5*rnd.Float64())))
	if Faulty(w, n) {
		err = errors.Join(err, x.SetCodes([]signal.TroubleCode{{'P', '2', '1', '3', '5'}}))
	}
	if err != nil {
		panic(err)
	}
	return x
}

func (f *Fleet) Newest() map[vehicle.ID]signal.UnixMilli {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := make(map[vehicle.ID]signal.UnixMilli)
	for id, all := range f.acked {
		at[id] = all[len(all)-1]
	}
	return at
}

func (f *Fleet) Acknowledged(id vehicle.ID) []signal.UnixMilli {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.acked[id]
}

func (f *Fleet) Begin(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for w := range f.since {
		f.since[w] = now
	}
	f.longest, f.over = 0, now
}

// Flowing returns an error until each writer has an acknowledged batch first sent after since.
func (f *Fleet) Flowing(since time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for w, sent := range f.sent {
		if !sent.After(since) {
			return fmt.Errorf("nothing of writer %d is acknowledged for %s", w,
				time.Since(f.since[w]).Round(100*time.Millisecond))
		}
	}
	return nil
}

// Worst returns the longest wait for an acknowledgement since Begin, and when it ended.
func (f *Fleet) Worst(now time.Time) (longest time.Duration, over time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	longest, over = f.longest, f.over
	for _, since := range f.since {
		if d := now.Sub(since); d > longest {
			longest, over = d, now
		}
	}
	return longest, over
}

func (f *Fleet) post(ctx context.Context, node *nodeprocess.Node, batch []vehicle.Sample) (n int, err error) {
	ok, err := load.Post(ctx, node, f.key, batch)
	if err != nil {
		f.a.Wrong("%v", err)
	}
	if !ok {
		return 0, errors.New("not acknowledged")
	}
	return len(batch), nil
}
