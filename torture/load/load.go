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
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"

	"example.org/carstate/bench/must"
	"example.org/carstate/internal/access"
	"example.org/carstate/internal/admin/client"
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
	a       *row.Attempt
	journal *journal
	fleets  []*fleet
	rnd     *rand.Rand
	choices *rand.Rand
	barrier int64 // in s after base
	base    int64

	key, token string

	Asked, Unanswered, posted, published atomic.Int64
}

func New(a *row.Attempt) *Load {
	l := &Load{a: a, journal: newJournal(), base: time.Now().Add(-23 * time.Hour).Unix()}
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

func (l *Load) report(f finding) {
	if f.lost {
		l.a.Lost("%s", f.text)
	} else if f.text != "" {
		l.a.Wrong("%s", f.text)
	}
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
		running.Go(func() { l.publish(ctx, n, i, l.fleets[first:first+publishers]) })
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

func (f *fleet) again(i int) sample {
	f.at[i]++
	return sample{fmt.Sprintf("many%dx%d", f.number, i), f.base + f.at[i]}
}

func (f *fleet) once() sample {
	f.fresh++
	return sample{fmt.Sprintf("one%dx%d", f.number, f.fresh), f.base + f.rnd.Int64N(3600)}
}

func (f *fleet) batch() []sample {
	samples := make([]sample, 1+f.rnd.IntN(20))
	for i := range samples {
		if f.rnd.IntN(3) == 0 {
			samples[i] = f.once()
		} else {
			samples[i] = f.again(f.rnd.IntN(len(f.at)))
		}
	}
	return samples
}

func (f *fleet) message() []sample {
	if f.rnd.IntN(2) == 0 {
		return []sample{f.once()}
	}
	samples := make([]sample, 1+f.rnd.IntN(4))
	i := f.rnd.IntN(len(f.at))
	for k := range samples {
		samples[k] = f.again(i)
	}
	return samples
}

type sample struct {
	vid string
	at  int64 // s
}

func (s sample) speedKmh() int64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(s.vid))
	return 60 + (int64(h.Sum32())+s.at)%30
}

// The speed follows from the vehicle and the time, so a check can tell samples apart.
func lines(samples []sample) string {
	var b strings.Builder
	for _, s := range samples {
		fmt.Fprintf(&b, `{"vid":%q,"time":%d,"signals":{"Vehicle.Speed":%d,"Vehicle.OBD.ThrottlePosition":20}}`+"\n",
			s.vid, s.at*1000, s.speedKmh())
	}
	return b.String()
}

func rest(ctx context.Context) bool {
	row.Pause(ctx, 20*time.Millisecond)
	return ctx.Err() == nil
}

func (l *Load) post(ctx context.Context, n *nodeprocess.Node, f *fleet) {
	for ctx.Err() == nil {
		samples := f.batch()
		if ok, err := l.postOne(ctx, n, samples); err != nil {
			l.a.Wrong("%v", err)
		} else if ok {
			continue
		}
		if !rest(ctx) {
			return
		}
	}
}

func (l *Load) postOne(ctx context.Context, n *nodeprocess.Node, samples []sample) (bool, error) {
	l.journal.offer(samples)
	l.a.Offered(len(samples))
	status, text, err := n.Post(ctx, l.key, lines(samples))
	if err != nil {
		return false, nil
	}
	switch status {
	case http.StatusAccepted:
		var answer struct {
			Accepted int
			Rejected []json.RawMessage
		}
		if err := json.Unmarshal(text, &answer); err != nil || answer.Accepted != len(samples) || len(answer.Rejected) != 0 {
			return false, fmt.Errorf("a POST of %d samples is answered %s", len(samples), bytes.TrimSpace(text))
		}
		l.journal.acknowledge(samples)
		l.a.Acknowledged(len(samples))
		l.posted.Add(1)
		return true, nil
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		return false, nil
	}
	return false, fmt.Errorf("a POST is answered with %d: %s", status, bytes.TrimSpace(text))
}

func (l *Load) publish(ctx context.Context, n *nodeprocess.Node, number int, fleets []*fleet) {
	for ctx.Err() == nil {
		client, err := Dial(ctx, n, "fleet", l.key, fmt.Sprintf("gateway%d", number))
		if err != nil {
			if !rest(ctx) {
				return
			}
			continue
		}
		alive, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(client.Ended, cancel)
		must.Together(alive, len(fleets), func(ctx context.Context, i int) {
			for ctx.Err() == nil && l.publishOne(ctx, client, fleets[i].message()) {
			}
			cancel()
		})
		stop()
		cancel()
		client.Close()
	}
}

func (l *Load) publishOne(ctx context.Context, client *Client, samples []sample) bool {
	l.journal.offer(samples)
	l.a.Offered(len(samples))
	err := client.Send(ctx, samples[0].vid, []byte(lines(samples)))
	if r, refused := errors.AsType[Refusal](err); refused && client.Ended.Err() == nil {
		l.a.Wrong("an MQTT message is answered with 0x%02x", byte(r))
	}
	if err != nil {
		return false
	}
	l.journal.acknowledge(samples)
	l.a.Acknowledged(len(samples))
	l.published.Add(1)
	return true
}

func (l *Load) operate(ctx context.Context, n *nodeprocess.Node) {
	c, err := n.AdminClient()
	for ; err != nil; c, err = n.AdminClient() { // until the data directory exists
		if !rest(ctx) {
			return
		}
	}
	for ctx.Err() == nil {
		l.a.Offered(1)
		err := l.operation(ctx, c)
		var said *client.Error
		switch {
		case err == nil:
			l.a.Acknowledged(1)
		case errors.As(err, &said) && said.Status != 0 && said.Status != http.StatusServiceUnavailable:
			l.a.Wrong("the admin API answers %d: %s", said.Status, said)
		}
		if !rest(ctx) {
			return
		}
	}
}

// Only the operator and, later, the checks use the records.
func (l *Load) operation(ctx context.Context, c *client.Client) error {
	j, k := l.journal, l.choices.IntN(20)
	all, live := make(map[bool]int), make(map[bool][]*record) // by whether they are sources
	for _, r := range j.records {
		if all[r.source]++; !r.gone && !r.unsure {
			live[r.source] = append(live[r.source], r)
		}
	}
	switch {
	case all[true] == 0:
		k = 12
	case all[false] > 0 && all[false] == len(live[false]):
		k = k % 2 * 19 // or issue another, since the revocation may fail
	}
	switch from := live[k >= 5]; {
	case k < 8 && len(from) > 0:
		r := from[l.choices.IntN(len(from))]
		r.unsure = true
		var err error
		if r.source {
			_, err = c.RemoveSource(ctx, r.id)
		} else {
			_, err = c.RevokeToken(ctx, r.id)
		}
		if err == nil {
			r.unsure, r.gone = false, true
		}
		return err
	case k < 10:
		if vid := j.forget(l.choices); vid != "" {
			_, err := c.Forget(ctx, vehicle.ID(vid))
			if err == nil {
				j.isForgotten(vid)
			}
			return err
		}
	case k < 13:
		s, err := c.AddSource(ctx, access.Credential{Name: fmt.Sprintf("source%d", l.choices.Uint64()),
			Vehicles: access.AllVehicles()})
		if err == nil {
			j.records = append(j.records, &record{source: true, id: s.Name, secret: s.Key})
		}
		return err
	}
	only, vehicles := "", access.AllVehicles()
	if many := j.watched(math.MaxInt); len(many) > 0 && l.choices.IntN(2) == 0 {
		only = many[l.choices.IntN(len(many))]
		vehicles = access.VehicleSet(vehicle.ID(only))
	}
	t, err := c.IssueToken(ctx, access.Credential{Developer: "developer", Operations: access.AllOperations,
		Vehicles: vehicles})
	if err == nil {
		j.records = append(j.records, &record{id: t.ID, secret: t.AccessToken, only: only, made: time.Now()})
	}
	return err
}

type Client struct {
	client *paho.Client
	// Its cause is a [Refusal] if there was one.
	Ended context.Context
}

// Refusal is a reason code.
type Refusal byte

func (r Refusal) Error() string { return fmt.Sprintf("the node refuses, with reason 0x%02x", byte(r)) }

func Dial(ctx context.Context, n *nodeprocess.Node, source, key, id string) (*Client, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", n.Address(nodeprocess.MQTT))
	if err != nil {
		return nil, err
	}
	ended, end := context.WithCancelCause(context.Background())
	c := &Client{Ended: ended, client: paho.NewClient(paho.ClientConfig{
		Conn:               packets.NewThreadSafeConn(conn),
		PacketTimeout:      10 * time.Second,
		OnClientError:      func(err error) { end(err) },
		OnServerDisconnect: func(m *paho.Disconnect) { end(Refusal(m.ReasonCode)) },
	})}
	answer, err := c.client.Connect(ctx, &paho.Connect{
		ClientID: id, KeepAlive: 30, CleanStart: true, Username: source, UsernameFlag: true, Password: []byte(key),
		PasswordFlag: true,
	})
	if err != nil {
		if answer != nil {
			err = Refusal(answer.ReasonCode)
		}
		end(err)
		conn.Close()
		return nil, err
	}
	return c, nil
}

func (c *Client) Send(ctx context.Context, vid string, samples []byte) error {
	resp, err := c.client.Publish(ctx, &paho.Publish{QoS: 1, Topic: "vehicles/" + vid + "/telemetry", Payload: samples})
	if cause := context.Cause(c.Ended); err != nil && cause != nil {
		return cause
	}
	if resp != nil && resp.ReasonCode >= 0x80 {
		return Refusal(resp.ReasonCode)
	}
	return err
}

func (c *Client) Close() { _ = c.client.Disconnect(&paho.Disconnect{}) }

// Sender connects when needed, to one node at a time.
type Sender struct {
	Source, Key, ID string

	node   *nodeprocess.Node
	client *Client
}

func (s *Sender) Send(ctx context.Context, node *nodeprocess.Node, vid string, samples []byte) (err error) {
	if s.node != node {
		s.Close()
	}
	if s.client == nil {
		if s.client, err = Dial(ctx, node, s.Source, s.Key, s.ID); err != nil {
			return err
		}
		s.node = node
	}
	if err = s.client.Send(ctx, vid, samples); err != nil {
		s.Close()
	}
	return err
}

func (s *Sender) Close() {
	if s.client != nil {
		s.client.Close()
		s.client = nil
	}
}
