package nodes

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"carstate/internal/ingest"
	"carstate/internal/nodeprocess"
	"carstate/internal/vehicle"
	"carstate/torture/row"
)

const (
	httpWriters  = 4
	mqttWriters  = 1
	writers      = httpWriters + mqttWriters
	carsOfWriter = 6
	// every is how often a car reports.
	every = 100 * time.Millisecond
	// tryWithin is how long a writer waits for one node before it tries the next.
	tryWithin = 5 * time.Second
)

// car names a vehicle of a writer.
func car(writer, n int) vehicle.ID { return vehicle.ID(fmt.Sprintf("W%dCAR%d", writer, n)) }

// cars are all there are.
func cars() (all []vehicle.ID) {
	for w := range writers {
		for n := range carsOfWriter {
			all = append(all, car(w, n))
		}
	}
	return all
}

// faulty cars report a trouble code of their throttle with every sample; the others
// never do. All drive at 60 to 100 km/h.
func faulty(writer, n int) bool { return (writer+n)%2 == 1 }

// load is a fleet that reports all the time through any node that takes it, and the
// journal of what was acknowledged, which lies outside of what is disturbed.
type load struct {
	a       *row.Attempt
	nodes   []*nodeprocess.Node
	key     string // of the source
	stalls  stalls
	running sync.WaitGroup

	mu      sync.Mutex // guards what follows
	acked   map[vehicle.ID][]vehicle.UnixMilli
	refused int // tries that were answered with 503, or with MQTT's word for it
	failed  int // tries without an answer
}

// sourceName is who the fleet reports as.
const sourceName = "gateway"

func startLoad(ctx context.Context, a *row.Attempt, nodes []*nodeprocess.Node, key string) *load {
	l := &load{a: a, nodes: nodes, key: key, acked: make(map[vehicle.ID][]vehicle.UnixMilli)}
	l.stalls.begin(time.Now())
	for w := range writers {
		l.running.Go(func() { l.write(ctx, w) })
	}
	return l
}

// write reports until the context ends. A batch is sent, to one node after the
// other, until it is acknowledged: samples of a car that overtake one another would
// make it unknown what its state has to be.
func (l *load) write(ctx context.Context, w int) {
	rnd := rand.New(rand.NewPCG(l.a.Seed, uint64(1000+w)))
	send := l.post
	if w >= httpWriters {
		m := &mqttDoor{source: sourceName, key: l.key, nodes: l.nodes}
		defer m.close()
		send = m.send
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	node, last := w, int64(0)
	for ctx.Err() == nil {
		began := time.Now()
		last = max(last+1, began.UnixMilli())
		batch := make([]vehicle.Sample, carsOfWriter)
		for n := range batch {
			batch[n] = reading(w, n, last, rnd)
		}
		l.a.Offered(len(batch))
		for ctx.Err() == nil {
			try, cancel := context.WithTimeout(ctx, tryWithin)
			n, refused, err := send(try, node, batch)
			cancel()
			l.note(batch[:n])
			if batch = batch[n:]; err == nil {
				l.stalls.acknowledged(w, began, time.Now())
				break
			}
			if ctx.Err() != nil {
				return
			}
			l.mu.Lock()
			if refused {
				l.refused++
			} else {
				l.failed++
			}
			l.mu.Unlock()
			node++ // a load balancer would
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// reading is what a car reports.
func reading(w, n int, at int64, rnd *rand.Rand) vehicle.Sample {
	x := vehicle.Sample{Vehicle: car(w, n), Time: vehicle.UnixMilli(at)}
	wave := 0.5 + 0.5*math.Sin(float64(at)/3000+float64(n))
	set := func(g vehicle.Signal, v float64) {
		if err := x.Set(g, v); err != nil {
			panic(err) // our own numbers
		}
	}
	set(vehicle.Speed, math.Round(60+40*wave))
	set(vehicle.ThrottlePosition, math.Round(10+30*wave+5*rnd.Float64()))
	if faulty(w, n) {
		if err := x.SetCodes([]vehicle.TroubleCode{{'P', '2', '1', '3', '5'}}); err != nil {
			panic(err)
		}
	}
	return x
}

// note takes what was acknowledged into the journal.
func (l *load) note(batch []vehicle.Sample) {
	l.mu.Lock()
	for i := range batch {
		l.acked[batch[i].Vehicle] = append(l.acked[batch[i].Vehicle], batch[i].Time)
	}
	l.mu.Unlock()
	l.a.Acknowledged(len(batch))
}

// newest is the newest acknowledged reading of every car.
func (l *load) newest() map[vehicle.ID]vehicle.UnixMilli {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := make(map[vehicle.ID]vehicle.UnixMilli)
	for id, all := range l.acked {
		at[id] = all[len(all)-1]
	}
	return at
}

// post sends a batch to a node by HTTP. The first n of it are acknowledged.
func (l *load) post(ctx context.Context, node int, batch []vehicle.Sample) (n int, refused bool, err error) {
	var lines []byte
	for i := range batch {
		lines = ingest.AppendJSON(lines, &batch[i])
	}
	status, text, err := l.nodes[node%len(l.nodes)].Post(ctx, l.key, string(lines))
	switch {
	case err != nil:
		return 0, false, err
	case status == http.StatusServiceUnavailable:
		return 0, true, fmt.Errorf("refused: %s", text)
	}
	var answer struct {
		Accepted int `json:"accepted"`
	}
	if err := json.Unmarshal(text, &answer); status != http.StatusAccepted || err != nil || answer.Accepted != len(batch) {
		l.a.Wrong("ingest answers %d %q to %d good samples", status, text, len(batch))
		return 0, false, fmt.Errorf("answered %d", status)
	}
	return len(batch), false, nil
}

// stalls is how long writers wait for acknowledgements, from one moment on. Safe
// for concurrent use.
type stalls struct {
	mu      sync.Mutex
	since   [writers]time.Time // of the last acknowledgement
	sent    [writers]time.Time // when the newest that was acknowledged was first sent
	longest time.Duration
	over    time.Time // when the longest ended
}

// begin forgets what was, and counts from now on.
func (s *stalls) begin(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.since {
		s.since[w] = now
	}
	s.longest, s.over = 0, now
}

// acknowledged says that a writer's batch is, which was first sent at a time.
func (s *stalls) acknowledged(w int, sent, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := now.Sub(s.since[w]); d > s.longest {
		s.longest, s.over = d, now
	}
	s.since[w], s.sent[w] = now, sent
}

// flowing is an error until every writer has an acknowledgement of what it sent
// after a moment.
func (s *stalls) flowing(since time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w, sent := range s.sent {
		if !sent.After(since) {
			return fmt.Errorf("nothing of writer %d is acknowledged for %s", w, time.Since(s.since[w]).Round(100*time.Millisecond))
		}
	}
	return nil
}

// worst is the longest wait so far and when it was over, if it is.
func (s *stalls) worst(now time.Time) (longest time.Duration, over time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	longest, over = s.longest, s.over
	for w := range s.since {
		if d := now.Sub(s.since[w]); d > longest {
			longest, over = d, now
		}
	}
	return longest, over
}
