package soak

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"time"

	"carstate/internal/nodeprocess"

	"github.com/mochi-mqtt/server/v2/packets"
)

// drive connects a car by MQTT 3.1.1 and lets it report once a second until it
// goes.
func (t *traffic) drive(ctx context.Context, vid string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", t.n.Address(nodeprocess.MQTT))
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	var out bytes.Buffer
	var answer [4]byte
	tell := func(err error, want [4]byte) error {
		if err == nil {
			err = conn.SetDeadline(time.Now().Add(30 * time.Second))
		}
		if err == nil {
			_, err = conn.Write(out.Bytes())
		}
		if err == nil {
			_, err = io.ReadFull(conn, answer[:])
		}
		if err == nil && answer != want {
			err = errors.New("a car got another answer by MQTT than it should")
		}
		out.Reset()
		return err
	}
	connect := packets.Packet{
		FixedHeader: packets.FixedHeader{Type: packets.Connect}, ProtocolVersion: 4,
		Connect: packets.ConnectParams{
			ProtocolName: []byte("MQTT"), Clean: true, Keepalive: 60, ClientIdentifier: vid,
			UsernameFlag: true, Username: []byte("gateway"), PasswordFlag: true, Password: []byte(t.key),
		},
	}
	if err := tell(connect.ConnectEncode(&out), [4]byte{packets.Connack << 4, 2}); err != nil {
		return err
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for came := time.Now(); time.Since(came) < carStays; {
		at := time.Now().Unix()
		publish := packets.Packet{
			FixedHeader: packets.FixedHeader{Type: packets.Publish, Qos: 1}, ProtocolVersion: 4,
			TopicName: "vehicles/" + vid + "/telemetry", PacketID: 1, Payload: []byte(t.sample(vid, at)),
		}
		t.a.Offered(1)
		if err := tell(publish.PublishEncode(&out), [4]byte{packets.Puback << 4, 2, 0, 1}); err != nil {
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
	disconnect := packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Disconnect}, ProtocolVersion: 4}
	if err := disconnect.DisconnectEncode(&out); err != nil {
		return err
	}
	_, err = conn.Write(out.Bytes())
	return err
}
