package load

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"

	"carstate/internal/nodeprocess"
)

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
