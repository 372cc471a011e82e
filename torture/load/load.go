// Package load simulates the cars, developers and operators of a node that is about to be broken,
// and keeps a journal of what it acknowledges.
package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"example.org/carstate/bench/must"
	"example.org/carstate/internal/access"
	"example.org/carstate/internal/admin/client"
	"example.org/carstate/internal/lab/sender"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/telemetry"
	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/internal/vehicle"
	"example.org/carstate/torture/row"
)

// Event times begin 23 hours ago.
var Flags = []string{"--max-age", "48h"}

const (
	posters     = 4
	connections = 2 // of MQTT
	publishers  = 4 // on each MQTT connection
	fleetSize   = 150
	watchers    = 2
)

// Load is the traffic of one attempt, across restarts of the node.
type Load struct {
	journal
	a       *row.Attempt
	fleets  []*fleet
	rnd     *rand.Rand
	choices *rand.Rand
	barrier int64 // in s after base
	base    int64

	key, token string

	did row.Tally
}

const (
	posted    = "HTTP requests acknowledged"
	published = "MQTT messages acknowledged"
	issued    = "tokens issued"
	revoked   = "of them revoked"
	added     = "sources added"
	removed   = "of them removed"
	checked   = "queries checked"
)

func New(a *row.Attempt) *Load {
	l := &Load{cars: make(map[string]*car), a: a, base: time.Now().Add(-23 * time.Hour).Unix()}
	l.rnd, l.choices = a.Rand(1), a.Rand(2)
	for i := range posters + connections*publishers {
		l.fleets = append(l.fleets, &fleet{rnd: a.Rand(10 + i), number: i, base: l.base, at: make([]int64, fleetSize)})
	}
	return l
}

func (l *Load) Prepare(ctx context.Context, n *nodeprocess.Node) (key, token string) {
	l.key = must.Get(n.AddSource(ctx, "fleet"))
	l.token = must.Get(n.IssueToken(ctx, "watcher")).AccessToken
	return l.key, l.token
}

func (l *Load) Run(ctx context.Context, n *nodeprocess.Node) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() {
		select {
		case <-n.Ended():
			cancel()
		case <-ctx.Done():
		}
	})
	for i := range posters {
		running.Go(func() { l.post(ctx, n, l.fleets[i]) })
	}
	for i := range connections {
		first := posters + i*publishers
		running.Go(func() { l.publish(ctx, n, l.fleets[first:first+publishers]) })
	}
	for i := range watchers {
		running.Go(func() { l.watch(ctx, n, i) })
	}
	running.Go(func() { l.operate(ctx, n) })
	running.Wait()
}

type fleet struct {
	rnd    *rand.Rand
	number int
	base   int64
	at     []int64 // by vehicle: samples sent
	fresh  int
}

func (f *fleet) again(i int) Sample {
	f.at[i]++
	return Sample{fmt.Sprintf("many%dx%d", f.number, i), f.base + f.at[i]}
}

func (f *fleet) once() Sample {
	f.fresh++
	return Sample{fmt.Sprintf("one%dx%d", f.number, f.fresh), f.base + f.rnd.Int64N(3600)}
}

func (f *fleet) batch() []Sample {
	samples := make([]Sample, 1+f.rnd.IntN(20))
	for i := range samples {
		if f.rnd.IntN(3) == 0 {
			samples[i] = f.once()
		} else {
			samples[i] = f.again(f.rnd.IntN(len(f.at)))
		}
	}
	return samples
}

func (f *fleet) message() []Sample {
	if f.rnd.IntN(2) == 0 {
		return []Sample{f.once()}
	}
	samples := make([]Sample, 1+f.rnd.IntN(4))
	i := f.rnd.IntN(len(f.at))
	for k := range samples {
		samples[k] = f.again(i)
	}
	return samples
}

type Sample struct {
	VID string
	At  int64 // s
}

func (s Sample) speedKmh() int64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(s.VID))
	return 60 + (int64(h.Sum32())+s.At)%30
}

// The speed follows from the vehicle and the time, so a check can tell samples apart.
func readings(samples []Sample) (all []vehicle.Sample) {
	for _, s := range samples {
		x := vehicle.Sample{Vehicle: vehicle.ID(s.VID), Time: signal.UnixMilli(s.At * 1000)}
		if err := errors.Join(x.Set(signal.Speed, float64(s.speedKmh())), x.Set(signal.EngineSpeed, 2000),
			x.Set(signal.ThrottlePosition, 20)); err != nil {
			panic(err)
		}
		all = append(all, x)
	}
	return all
}

func rest(ctx context.Context) { row.Pause(ctx, 20*time.Millisecond) }

func (l *Load) post(ctx context.Context, n *nodeprocess.Node, f *fleet) {
	for ctx.Err() == nil {
		ok, err := l.Post(ctx, n, f.batch())
		if err != nil {
			l.a.Wrong("%v", err)
		}
		if !ok {
			rest(ctx)
		}
	}
}

func (l *Load) Post(ctx context.Context, n *nodeprocess.Node, samples []Sample) (bool, error) {
	l.offered(samples)
	ok, err := Post(ctx, n, l.key, readings(samples))
	if ok {
		l.acknowledged(samples, posted)
	}
	return ok, err
}

// Post has an error only for a wrong answer.
func Post(ctx context.Context, n *nodeprocess.Node, key string, samples []vehicle.Sample) (ok bool, err error) {
	var lines []byte
	for i := range samples {
		lines = telemetry.AppendJSON(lines, &samples[i])
	}
	status, text, err := n.Post(ctx, key, string(lines))
	if err != nil || status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests {
		return false, nil
	}
	var answer struct {
		Accepted int
		Rejected []json.RawMessage
	}
	err = json.Unmarshal(text, &answer)
	if status != http.StatusAccepted || err != nil || answer.Accepted != len(samples) || len(answer.Rejected) != 0 {
		return false, fmt.Errorf("a POST of %d samples is answered with %d: %s", len(samples), status, bytes.TrimSpace(text))
	}
	return true, nil
}

func (l *Load) offered(samples []Sample) {
	l.a.Offered(len(samples))
	for _, s := range samples {
		l.NoteOffered(s.VID, s.At)
	}
}

func (l *Load) acknowledged(samples []Sample, by string) {
	l.a.Acknowledged(len(samples))
	l.did.Add(by, 1)
	for _, s := range samples {
		l.NoteAcknowledged(s.VID, s.At)
	}
}

func (l *Load) publish(ctx context.Context, n *nodeprocess.Node, fleets []*fleet) {
	for ctx.Err() == nil {
		client, err := Dial(ctx, n, "fleet", l.key)
		if err != nil {
			rest(ctx)
			continue
		}
		alive, cancel := context.WithCancel(ctx)
		must.Together(alive, len(fleets), func(ctx context.Context, i int) {
			for ctx.Err() == nil && l.Publish(ctx, client, fleets[i].message()) == nil {
			}
			cancel()
		})
		cancel()
		client.Close()
	}
}

func (l *Load) Publish(ctx context.Context, client sender.Sender, samples []Sample) error {
	l.offered(samples)
	err := client.Send(ctx, readings(samples))
	if _, refused := errors.AsType[sender.Refusal](err); refused {
		l.a.Wrong("an MQTT message: %v", err)
	}
	if err == nil {
		l.acknowledged(samples, published)
	}
	return err
}

func (l *Load) operate(ctx context.Context, n *nodeprocess.Node) {
	c, err := n.AdminClient()
	for ; err != nil && ctx.Err() == nil; c, err = n.AdminClient() { // until the data directory exists
		rest(ctx)
	}
	for ; ctx.Err() == nil; rest(ctx) {
		l.a.Offered(1)
		err := l.operation(ctx, c)
		var said *client.Error
		switch {
		case err == nil:
			l.a.Acknowledged(1)
		case errors.As(err, &said) && said.Status != 0 && said.Status != http.StatusServiceUnavailable:
			l.a.Wrong("the admin API answers %d: %s", said.Status, said)
		}
	}
}

// Only the operator and, later, the checks use the records.
func (l *Load) operation(ctx context.Context, c *client.Client) error {
	k := l.choices.IntN(20)
	live := make(map[bool][]*record) // by whether they are sources
	for _, r := range l.records {
		if !r.gone && !r.unsure {
			live[r.source] = append(live[r.source], r)
		}
	}
	switch {
	case l.did.Of(added) == 0:
		k = 12
	case l.did.Of(issued) > 0 && l.did.Of(revoked) == 0:
		k = k % 2 * 19 // or issue another, since the revocation may fail
	}
	switch from := live[k >= 5]; {
	case k < 8 && len(from) > 0:
		r := from[l.choices.IntN(len(from))]
		r.unsure = true
		var err error
		what := revoked
		if r.source {
			what = removed
			_, err = c.RemoveSource(ctx, r.id)
		} else {
			_, err = c.RevokeToken(ctx, r.id)
		}
		if err == nil {
			r.unsure, r.gone = false, true
			l.did.Add(what, 1)
		}
		return err
	case k < 10:
		if vid := l.forget(l.choices); vid != "" {
			_, err := c.Forget(ctx, vehicle.ID(vid))
			if err == nil {
				l.isForgotten(vid)
			}
			return err
		}
	case k < 13:
		s, err := c.AddSource(ctx, access.Credential{Name: fmt.Sprintf("source%d", l.choices.Uint64()),
			Vehicles: access.AllVehicles()})
		if err == nil {
			l.did.Add(added, 1)
			l.records = append(l.records, &record{source: true, id: s.Name, secret: s.Key})
		}
		return err
	}
	only, vehicles := "", access.AllVehicles()
	if many := l.watched(math.MaxInt); len(many) > 0 && l.choices.IntN(2) == 0 {
		only = many[l.choices.IntN(len(many))]
		vehicles = access.VehicleSet(vehicle.ID(only))
	}
	t, err := c.IssueToken(ctx, access.Credential{Developer: "developer", Operations: access.AllOperations,
		Vehicles: vehicles})
	if err == nil {
		l.did.Add(issued, 1)
		l.records = append(l.records, &record{id: t.ID, secret: t.AccessToken, only: only, made: time.Now()})
	}
	return err
}

func Dial(ctx context.Context, n *nodeprocess.Node, source, key string) (sender.Sender, error) {
	return sender.MQTT(ctx, "mqtt://"+n.Address(nodeprocess.MQTT), sender.Login{Name: source, Key: key}, nil)
}
