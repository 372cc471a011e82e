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

	"carstate/internal/nodeprocess"
)

// post sends telemetry by HTTP until ctx ends.
func (l *Load) post(ctx context.Context, n *nodeprocess.Node, f *fleet) {
	for ctx.Err() == nil {
		samples := f.batch()
		if ok, err := l.postOne(ctx, n, samples); err != nil {
			l.wrong("%v", err)
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
	l.offer(samples)
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
		l.stored(samples)
		l.posted.Add(1)
		return true, nil
	case http.StatusServiceUnavailable:
		return false, nil
	}
	return false, fmt.Errorf("a POST is answered with %d: %s", status, bytes.TrimSpace(text))
}

// publish sends telemetry by MQTT until ctx ends, over one connection for several fleets.
// When the connection is closed, it opens another one.
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
	l.offer(samples)
	err := client.Send(ctx, samples[0].vid, []byte(lines(samples)))
	if r, refused := errors.AsType[Refusal](err); refused && client.Ended.Err() == nil {
		l.wrong("an MQTT message is answered with 0x%02x", byte(r))
	}
	if err != nil {
		return false // the result is unknown
	}
	l.stored(samples)
	l.published.Add(1)
	return true
}

// Client is an MQTT 5 connection for cars.
type Client struct {
	client *paho.Client
	// Ended is canceled when the connection ends. Its cause is a [Refusal] if the node gave
	// a reason.
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

// Send publishes samples of a vehicle and waits until they are acknowledged. If the connection has
// ended, Send returns the reason for its end.
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
