package soak

import (
	"context"
	"net"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"

	"carstate/internal/nodeprocess"
)

// drive connects a car by MQTT and lets it report once a second until it goes.
func (t *traffic) drive(ctx context.Context, vid string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", t.n.Address(nodeprocess.MQTT))
	if err != nil {
		return err
	}
	defer conn.Close()
	client := paho.NewClient(paho.ClientConfig{Conn: packets.NewThreadSafeConn(conn), PacketTimeout: 30 * time.Second})
	if _, err := client.Connect(ctx, &paho.Connect{
		ClientID: vid, KeepAlive: 60, CleanStart: true, Username: "gateway", UsernameFlag: true, Password: []byte(t.key), PasswordFlag: true,
	}); err != nil {
		return err
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for came := time.Now(); time.Since(came) < carStays; {
		at := time.Now().Unix()
		t.a.Offered(1)
		if _, err := client.Publish(ctx, &paho.Publish{QoS: 1, Topic: "vehicles/" + vid + "/telemetry", Payload: []byte(t.sample(vid, at))}); err != nil {
			return err
		}
		t.a.Acknowledged(1)
		t.held.NoteAcknowledged(vid, at)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
	return client.Disconnect(&paho.Disconnect{})
}

// parts of the cars are held to the journal in turn, so that it costs as much
// whatever was done before.
const parts = 10

// hold holds the node to the newest acknowledged samples of one part of the cars,
// each time of another, while all goes on.
func (t *traffic) hold(ctx context.Context, i int) error {
	all := t.held.Vehicles()
	part := all[i%parts*len(all)/parts : (i%parts+1)*len(all)/parts]
	t.looked += len(part)
	return t.held.HoldVehicles(ctx, t.n, part)
}

// holdAll holds the node to those of all cars. Nothing is under way any more.
func (t *traffic) holdAll(ctx context.Context) error {
	all := t.held.Vehicles()
	t.looked += len(all)
	t.a.Figure("times that a car's newest acknowledged sample was looked for", float64(t.looked), "")
	return t.held.HoldVehicles(ctx, t.n, all)
}
