package load

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"

	"example.org/carstate/internal/nodeprocess"
)

type Client struct {
	client *paho.Client
	// Ended is canceled when the connection ends, with a [Refusal] as cause if there was one.
	Ended context.Context
}

// Refusal is the reason code of a refusal.
type Refusal byte

func (r Refusal) Error() string { return fmt.Sprintf("the node refuses, with reason 0x%02x", byte(r)) }

// Dial connects to a node with the key of a source, and id as the client's id.
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

// Send publishes samples of a vehicle and waits for the acknowledgement.
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

func (c *Client) Close() { _ = c.client.Disconnect(&paho.Disconnect{}) } // it may have ended before

// Sender sends over a connection to one node at a time, which is opened when needed.
type Sender struct {
	Source, Key, ID string

	node   *nodeprocess.Node // the node to which client is connected
	client *Client           // nil: not connected
}

// Send is like [Client.Send]. If it fails, it closes the connection.
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
