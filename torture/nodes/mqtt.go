package nodes

import (
	"context"
	"fmt"
	"net"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"

	"carstate/internal/ingest"
	"carstate/internal/nodeprocess"
	"carstate/internal/vehicle"
)

// mqttDoor reports by MQTT 5 with QoS 1, to one node at a time.
type mqttDoor struct {
	source, key string
	nodes       []*nodeprocess.Node

	node   int          // to which client is connected
	client *paho.Client // nil: to none
	broken chan error   // why the connection ended
}

// serverBusy is MQTT's word for what HTTP says with 503.
const serverBusy = 0x89

// send publishes samples one after the other until one is not acknowledged. The
// first n are.
func (d *mqttDoor) send(ctx context.Context, node int, batch []vehicle.Sample) (n int, refused bool, err error) {
	if d.client == nil || d.node != node {
		d.close()
		if err := d.connect(ctx, node); err != nil {
			return 0, false, err
		}
	}
	for n = range batch {
		resp, err := d.client.Publish(ctx, &paho.Publish{
			QoS: 1, Topic: "vehicles/" + string(batch[n].Vehicle) + "/telemetry", Payload: ingest.AppendJSON(nil, &batch[n]),
		})
		if err == nil && resp.ReasonCode >= 0x80 {
			err = fmt.Errorf("refused with reason 0x%02x", resp.ReasonCode)
		}
		if err != nil {
			select {
			case err = <-d.broken:
			default:
			}
			d.close()
			busy, ok := err.(goodbye)
			return n, ok && busy == serverBusy, err
		}
	}
	return len(batch), false, nil
}

// goodbye is the reason that a server gives when it ends a connection.
type goodbye byte

func (g goodbye) Error() string {
	return fmt.Sprintf("the server said goodbye with reason 0x%02x", byte(g))
}

func (d *mqttDoor) connect(ctx context.Context, node int) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", d.nodes[node%len(d.nodes)].Address(nodeprocess.MQTT))
	if err != nil {
		return err
	}
	broken := make(chan error, 4)
	c := paho.NewClient(paho.ClientConfig{
		Conn:               packets.NewThreadSafeConn(conn),
		PacketTimeout:      tryWithin,
		OnClientError:      func(err error) { note(broken, err) },
		OnServerDisconnect: func(m *paho.Disconnect) { note(broken, goodbye(m.ReasonCode)) },
	})
	if _, err := c.Connect(ctx, &paho.Connect{
		ClientID: d.source, KeepAlive: 30, CleanStart: true,
		Username: d.source, UsernameFlag: true, Password: []byte(d.key), PasswordFlag: true,
	}); err != nil {
		conn.Close()
		return err
	}
	d.client, d.node, d.broken = c, node, broken
	return nil
}

// note keeps an error if there is room.
func note(to chan<- error, err error) {
	select {
	case to <- err:
	default:
	}
}

func (d *mqttDoor) close() {
	if d.client != nil {
		_ = d.client.Disconnect(&paho.Disconnect{}) // it may be broken
		d.client = nil
	}
}
