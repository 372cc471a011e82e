package secrets

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"carstate/internal/nodeprocess"
)

// feed sends telemetry with every secret over HTTP.
func (r *round) feed(ctx context.Context) error {
	for _, card := range r.cards {
		for _, head := range heads {
			body := bodies[r.rng.IntN(len(bodies))]
			if head == heads[0] {
				body = bodies[0]
			}
			text, body := r.fill(card, head), r.fill(card, body)
			answer, err := r.send(ctx, nodeprocess.Ingest, fmt.Appendf(nil, "%sContent-Length: %d\r\nConnection: close\r\n\r\n%s", text, len(body), body), nil)
			if err != nil {
				return err
			}
			if head == heads[0] && card.what == "a source's key" && !bytes.HasPrefix(answer, []byte("HTTP/1.1 202")) {
				return fmt.Errorf("good telemetry was not taken: %.100s", answer)
			}
			r.look("the answers of ingest", answer, r.secrets)
		}
		for _, body := range bodies { // by a source that may
			body = r.fill(card, body)
			answer, err := r.send(ctx, nodeprocess.Ingest, fmt.Appendf(nil, "%sContent-Length: %d\r\nConnection: close\r\n\r\n%s", r.fill(card, strings.Replace(heads[0], "TOKEN", "GOOD", 1)), len(body), body), nil)
			if err != nil {
				return err
			}
			r.look("the answers of ingest", answer, r.secrets)
		}
	}
	return nil
}

func (r *round) fill(card card, text string) string {
	return strings.NewReplacer("TOKEN", card.text, "VID", r.vid, "GOOD", r.text("a source's key"), "NOW", fmt.Sprint(time.Now().UnixMilli())).Replace(text)
}

// connect is how an MQTT client introduces itself, and what it then does.
type connect struct{ client, user, password, will, topic, payload, filter string }

var connects = []connect{
	{client: "car1", user: "gateway", password: "GOOD", topic: "vehicles/VID/telemetry", payload: bodies[0]},
	{client: "car2", user: "gateway", password: "TOKEN", topic: "vehicles/VID/telemetry", payload: bodies[0]},
	{client: "TOKEN", user: "TOKEN", password: "TOKEN"},
	{client: "TOKEN", user: "gateway", password: "GOOD", topic: "vehicles/TOKEN/telemetry", payload: "TOKEN"},
	{client: "car5", user: "gateway", password: "GOOD", topic: "TOKEN", payload: bodies[0]},
	{client: "car6", user: "gateway", password: "GOOD", topic: "vehicles/VID/telemetry", payload: bodies[4]},
	{client: "car7", user: "gateway", password: "GOOD", topic: "vehicles/VID/telemetry", payload: "TOKEN"},
	{client: "car8", user: "gateway", password: "GOOD", filter: "vehicles/TOKEN/#"},
	{client: "car9", user: "gateway", password: "GOOD", will: "TOKEN"},
	{client: "", user: "gateway", password: "TOKENTOKEN"},
}

// publish sends telemetry with every secret over MQTT 3.1.1 and 5.
func (r *round) publish(ctx context.Context) error {
	for _, card := range r.cards {
		for _, c := range connects {
			for _, version := range []byte{4, 5} {
				answer, err := r.send(ctx, nodeprocess.MQTT, c.packets(version, func(s string) string { return r.fill(card, s) }), func(got []byte) bool {
					return bytes.Contains(got, []byte{0xd0, 0}) && (c.client != "car1" || bytes.Contains(got, []byte{0x40}))
				})
				if err != nil {
					return err
				}
				if c.client == "car1" && !bytes.Contains(answer, []byte{0x40}) {
					return fmt.Errorf("a good message was not acknowledged")
				}
				r.look("the answers of MQTT", answer, r.secrets)
			}
		}
		answer, err := r.send(ctx, nodeprocess.MQTT, []byte(card.text), nil)
		if err != nil {
			return err
		}
		r.look("the answers of MQTT", answer, r.secrets)
	}
	return nil
}

// packets are the bytes of a client that connects, publishes or subscribes, and
// hangs up.
func (c connect) packets(version byte, fill func(string) string) []byte {
	properties := func(b []byte) []byte {
		if version == 5 {
			return append(b, 0)
		}
		return b
	}
	text := func(b []byte, s string) []byte {
		s = fill(s)
		return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
	}
	packet := func(kind byte, body []byte) []byte {
		return append(binary.AppendUvarint([]byte{kind}, uint64(len(body))), body...)
	}
	flags := byte(0xc2) // user name, password, clean
	if c.will != "" {
		flags |= 0x04
	}
	body := append(text(nil, "MQTT"), version, flags, 0, 60)
	body = text(properties(body), c.client)
	if c.will != "" {
		body = text(text(properties(body), c.will), c.will)
	}
	all := packet(0x10, text(text(body, c.user), c.password))
	if c.topic != "" {
		body = properties(append(text(nil, c.topic), 0, 1))
		all = append(all, packet(0x32, append(body, fill(c.payload)...))...)
	}
	if c.filter != "" {
		all = append(all, packet(0x82, append(text(properties([]byte{0, 2}), c.filter), 1))...)
	}
	return append(all, 0xc0, 0) // a ping, whose answer shows that there is no other
}

// patience is how long an answer may take; a listener that waits for more is left
// after it.
const patience = 30 * time.Second

// send sends bytes to a listener and returns what comes back until it closes, or
// until that is enough. Bytes that are less than a request are followed by the end
// of the connection.
func (r *round) send(ctx context.Context, listener string, text []byte, enough func([]byte) bool) ([]byte, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", r.node.Address(listener))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	r.a.Offered(1)
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	_, _ = c.Write(text) // it may have been refused before its end
	if !bytes.Contains(text, []byte("Connection: close")) && enough == nil {
		_ = c.(*net.TCPConn).CloseWrite()
	}
	var got []byte
	buf := make([]byte, 16<<10)
	for {
		n, err := c.Read(buf)
		got = append(got, buf[:n]...)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, errors.New("a connection was neither answered nor closed")
		case err != nil, enough != nil && enough(got):
			r.answered(got)
			return got, nil // cut off is as good as closed here
		}
	}
}

// ask sends every request with every secret to the query listener.
func (r *round) ask(ctx context.Context) error {
	// What feed sent is known by now, or soon.
	if err := nodeprocess.Until(ctx, patience, func(ctx context.Context) error {
		a, err := r.node.Ask(ctx, nodeprocess.DrivingPath, r.text("a token"), r.vid)
		if err == nil && a.Status != 1 {
			err = errors.New("a good query was not answered")
		}
		return err
	}); err != nil {
		return err
	}
	caller := 0
	for _, card := range r.cards {
		fill := strings.NewReplacer("/D", nodeprocess.DrivingPath, "/T?", nodeprocess.ThrottlePath+"?", "TOKEN", card.text, "VID", r.vid, "LONG", strings.Repeat("x", 9000))
		for _, i := range r.rng.Perm(len(queries)) {
			caller++
			text := fill.Replace(queries[i])
			if strings.HasSuffix(text, "\r\n") {
				if !strings.Contains(text, "X-Forwarded-For") {
					text += fmt.Sprintf("X-Forwarded-For: 10.0.%d.%d\r\n", caller>>8, caller&255)
				}
				text += "Connection: close\r\n\r\n"
			}
			answer, err := r.send(ctx, nodeprocess.Query, []byte(text), nil)
			if err != nil {
				return err
			}
			r.look("the answers of the query listener", answer, r.secrets)
		}
	}
	return nil
}
