package secrets

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"carstate/internal/nodeprocess"
)

// bodies are what is sent to ingest, right and wrong.
var bodies = []string{
	`{"vid":"VID","time":NOW,"signals":{"Vehicle.Speed":50,"Vehicle.OBD.ThrottlePosition":20}}`,
	`{"vid":"VID","time":NOW,"signals":{"Vehicle.Speed":-5e9}}`,
	`{"vid":"VID","time":"TOKEN","signals":{"Vehicle.Speed":50}}`,
	`{"vid":"VID","time":99999999999999,"signals":{"Vehicle.Speed":50}}`,
	`{"vid":"TOKEN","time":NOW,"signals":{"Vehicle.Speed":50}}`,
	`{"vid":"VID","time":NOW,"signals":{"TOKEN":50}}`,
	`{"vid":"VID","time":NOW,"signals":{"Vehicle.OBD.DTCList":["TOKEN"]}}`,
	`{"vid":"VID","time":NOW,"signals":{"Vehicle.LowVoltageSystemState":"TOKEN"}}`,
	`{"vid":"VID","TOKEN":"TOKEN","time":NOW}`,
	`{"vid":"VID","time":NOW,"signals":TOKEN}`,
	`TOKEN`,
	"\x1f\x8bTOKEN",
	"",
}

// heads are how a body is sent to ingest.
var heads = []string{
	"POST /v1/telemetry HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer TOKEN\r\nContent-Type: application/x-ndjson\r\n",
	"POST /v1/telemetry HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer TOKEN\r\nContent-Type: application/json\r\ntraceparent: 00-TOKEN-TOKEN-01\r\n",
	"POST /v1/telemetry HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer GOOD\r\nContent-Type: application/x-ndjson\r\nContent-Encoding: gzip\r\nUser-Agent: TOKEN\r\n",
	"POST /v1/telemetry HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer GOOD\r\nContent-Type: TOKEN\r\n",
	"POST /v1/telemetry HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer GOOD\r\nContent-Type: application/x-ndjson\r\nContent-Encoding: TOKEN\r\n",
	"POST /v1/telemetry HTTP/1.1\r\nHost: TOKEN\r\nAuthorization: Basic TOKEN\r\n",
	"POST /v1/telemetry?access_token=TOKEN&key=TOKEN HTTP/1.1\r\nHost: a\r\n",
	"PUT /v1/telemetry HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer TOKEN\r\n",
	"POST /TOKEN?key=TOKEN HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer TOKEN\r\n",
	"POST //v1/telemetry?key=TOKEN HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer TOKEN\r\n",
	"POST /v1/telemetry HTTP/TOKEN\r\nHost: a\r\n",
	"POST /v1/telemetry HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: TOKEN\r\nTOKEN: a b\r\n",
	"TOKEN /v1/telemetry HTTP/1.1\r\nHost: TOKEN TOKEN\r\n",
}

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
