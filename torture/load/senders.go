package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"

	"carstate/internal/access"
	"carstate/internal/admin/client"
	"carstate/internal/nodeprocess"
	"carstate/internal/vehicle"
)

// post sends telemetry by HTTP until ctx ends.
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

// postOne sends samples and reports whether they were acknowledged. It returns an error if the node
// gave an answer that is never allowed.
func (l *Load) postOne(ctx context.Context, n *nodeprocess.Node, samples []sample) (bool, error) {
	l.journal.offer(samples)
	l.a.Offered(len(samples))
	status, text, err := n.Post(ctx, l.key, lines(samples))
	if err != nil {
		return false, nil // the result is unknown
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
	case http.StatusServiceUnavailable:
		return false, nil
	}
	return false, fmt.Errorf("a POST is answered with %d: %s", status, bytes.TrimSpace(text))
}

// publish sends telemetry by MQTT until ctx ends, over one connection at a time for several fleets.
func (l *Load) publish(ctx context.Context, n *nodeprocess.Node, number int, fleets []*fleet) {
	for ctx.Err() == nil {
		client, err := Dial(ctx, n, ownSource, l.key, fmt.Sprintf("gateway%d", number))
		if err != nil {
			if !rest(ctx) {
				return
			}
			continue
		}
		alive, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(client.Ended, cancel)
		var publishing sync.WaitGroup
		for _, f := range fleets {
			publishing.Go(func() {
				for alive.Err() == nil && l.publishOne(alive, client, f.message()) {
				}
				cancel()
			})
		}
		publishing.Wait()
		stop()
		cancel()
		client.Close()
	}
}

// publishOne publishes samples and reports whether the connection is still usable.
func (l *Load) publishOne(ctx context.Context, client *Client, samples []sample) bool {
	l.journal.offer(samples)
	l.a.Offered(len(samples))
	err := client.Send(ctx, samples[0].vid, []byte(lines(samples)))
	if r, refused := errors.AsType[Refusal](err); refused && client.Ended.Err() == nil {
		l.a.Wrong("an MQTT message is answered with 0x%02x", byte(r))
	}
	if err != nil {
		return false // the result is unknown
	}
	l.journal.acknowledge(samples)
	l.a.Acknowledged(len(samples))
	l.published.Add(1)
	return true
}

// Client is an MQTT 5 connection for cars.
type Client struct {
	client *paho.Client
	// Ended is canceled when the connection ends, with a [Refusal] as cause if there was one.
	Ended context.Context
}

// Refusal is the reason code with which a node refuses a message or a connection.
type Refusal byte

func (r Refusal) Error() string { return fmt.Sprintf("the node refuses, with reason 0x%02x", byte(r)) }

// Dial connects to a node with the key of a source.
func Dial(ctx context.Context, n *nodeprocess.Node, source, key, id string) (*Client, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", n.Address(nodeprocess.MQTT))
	if err != nil {
		return nil, err
	}
	ended, end := context.WithCancelCause(context.Background())
	c := &Client{Ended: ended, client: paho.NewClient(paho.ClientConfig{
		Conn:               packets.NewThreadSafeConn(conn),
		PacketTimeout:      5 * time.Second,
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

// Send publishes samples and waits for the acknowledgement, or the end of the connection.
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

// Close ends the connection.
func (c *Client) Close() { _ = c.client.Disconnect(&paho.Disconnect{}) } // it may have ended before

// Sender sends by MQTT 5, over a connection to one node at a time that is opened when needed.
type Sender struct {
	Source, Key, ID string

	node   *nodeprocess.Node // the node to which client is connected
	client *Client           // nil: not connected
}

// Send publishes samples of a vehicle. An error closes the connection.
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

// Close closes the connection, if there is one.
func (s *Sender) Close() {
	if s.client != nil {
		s.client.Close()
		s.client = nil
	}
}

// operate issues and revokes tokens, adds and removes sources and forgets vehicles until ctx ends.
func (l *Load) operate(ctx context.Context, n *nodeprocess.Node) {
	c, err := n.AdminClient()
	for ; err != nil; c, err = n.AdminClient() { // it succeeds once the data directory exists
		if !rest(ctx) {
			return
		}
	}
	for ctx.Err() == nil {
		operation := l.operation(ctx, c)
		l.a.Offered(1)
		err := operation()
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

// operation returns the next operation, chosen at random.
func (l *Load) operation(ctx context.Context, c *client.Client) func() error {
	j := l.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	k := l.choices.IntN(20)
	all, live := make(map[bool]int), make(map[bool][]*record) // by whether they are sources
	for _, r := range j.records {
		if all[r.source]++; !r.gone && !r.unsure {
			live[r.source] = append(live[r.source], r)
		}
	}
	switch { // operations that were never done come first
	case all[true] == 0:
		k = 12
	case all[false] > 0 && all[false] == len(live[false]):
		k = k % 2 * 19 // revoke one, or issue another, since the revocation may fail
	}
	switch from := live[k >= 5]; {
	case k < 8 && len(from) > 0:
		r := from[l.choices.IntN(len(from))]
		r.unsure = true
		return func() (err error) {
			if r.source {
				_, err = c.RemoveSource(ctx, r.id)
			} else {
				_, err = c.RevokeToken(ctx, r.id)
			}
			return l.done(err, func() { r.unsure, r.gone = false, true })
		}
	case k < 10 && len(j.one) > 0:
		vid := j.one[l.choices.IntN(len(j.one))]
		if car := j.cars[vid]; !car.unsure && !car.forgotten {
			car.unsure = true
			return func() error {
				_, err := c.Forget(ctx, vehicle.ID(vid))
				return l.done(err, func() {
					car.unsure, car.forgotten = false, true
					j.forgotten = append(j.forgotten, vid)
				})
			}
		}
	case k < 13:
		name := fmt.Sprintf("source%d", l.choices.Uint64())
		return func() error {
			s, err := c.AddSource(ctx, access.Request{Name: name, Vehicles: access.AllVehicles()})
			return l.done(err, func() {
				j.records = append(j.records, &record{group: group{source: true}, id: s.Name, secret: s.Key})
			})
		}
	}
	only, vehicles := "", access.AllVehicles()
	if len(j.many) > 0 && l.choices.IntN(2) == 0 {
		only = j.many[l.choices.IntN(len(j.many))]
		vehicles = access.VehicleSet(vehicle.ID(only))
	}
	return func() error {
		t, err := c.IssueToken(ctx, access.Request{Developer: "developer", Operations: access.AllOperations,
			Vehicles: vehicles})
		return l.done(err, func() {
			j.records = append(j.records, &record{id: t.ID, secret: t.AccessToken, only: only, made: time.Now()})
		})
	}
}

// done calls note, with the journal locked, if the operation was acknowledged.
func (l *Load) done(err error, note func()) error {
	if err != nil {
		return err
	}
	l.journal.mu.Lock()
	defer l.journal.mu.Unlock()
	note()
	return nil
}
