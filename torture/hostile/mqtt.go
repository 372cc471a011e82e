package hostile

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"carstate/torture/mqtt"
)

// First bytes of the packets that a server may send.
const (
	connack    = 0x20
	puback     = 0x40
	pubrel     = 0x62 // answer to a PUBREC, of any message
	pubcomp    = 0x70 // answer to a PUBREL
	suback     = 0x90
	unsuback   = 0xb0
	pingresp   = 0xd0
	disconnect = 0xe0
)

// reading returns a sample that the service accepts.
func reading(vid string) string {
	return fmt.Sprintf(`{"vid":%q,"time":%d,"signals":{"Vehicle.Speed":50,"Vehicle.OBD.ThrottlePosition":20}}`, vid,
		time.Now().UnixMilli())
}

func topic(vid string) string { return "vehicles/" + vid + "/telemetry" }

// ownCar returns a vehicle for which the hostile source may send. victim returns one for which no
// source may send, so the service must never know anything about the victim.
func ownCar(i int) string    { return fmt.Sprintf("Own%d", i%10) }
func victim(i uint16) string { return fmt.Sprintf("Victim%d", i%10) }

// sent is one connection of a hostile car: what it sends, and what the server may answer.
type sent struct {
	version byte
	stream  []byte
	known   bool            // the credentials are right
	good    map[uint16]bool // by packet ID: the messages that may be acknowledged
	any     bool            // bytes were changed, so any message may be good

	// Set by check.
	letIn          bool
	stored, denied int // acknowledged messages, and refused subscriptions
}

// hostileCar sends packets that no real car would send. It uses the key of a known source. The
// source may send only for the vehicles of ownCar.
type hostileCar struct {
	*writer
	source, key string
}

// owned is a text that would become a line of its own in the log if the service logged it
// unescaped.
const owned = "\"}\n{\"level\":\"ERROR\",\"msg\":\"owned\"}"

// connection returns everything that a hostile car sends over one connection.
func (h *hostileCar) connection() *sent {
	s := &sent{version: byte(4 + h.IntN(2)), good: make(map[uint16]bool), known: true}
	l := mqtt.Login{Protocol: "MQTT", Version: s.version, Flags: 2, KeepAlive: uint16(h.IntN(700)),
		ID: pick(h.writer, "same", "same", h.nobody(), ""), User: h.source, Key: h.key}
	if h.chance(4) {
		h.spoilLogin(&l, s)
	}
	s.version, s.stream = l.Version, l.Packet()
	at := len(s.stream)
	for range h.IntN(12) {
		s.stream = append(s.stream, h.packet(s)...)
	}
	if s.any = h.chance(3); s.any {
		at *= h.IntN(2) // in half of the cases, the login is mutated, too
		s.stream = append(s.stream[:at:at], h.mutate(slices.Clone(s.stream[at:]))...)
	}
	return s
}

// spoilLogin changes one part of a CONNECT.
func (h *hostileCar) spoilLogin(l *mqtt.Login, s *sent) {
	switch h.IntN(7) {
	case 0:
		l.Protocol, l.Version = pick(h.writer, "MQIsdp", "mqtt", "", "MQTT\x00", "HTTP", long(300)),
			pick(h.writer, byte(3), 4, 5)
	case 1:
		l.Version = pick(h.writer, byte(0), 1, 2, 3, 6, 131, 255)
	case 2:
		l.Flags = pick(h.writer, byte(0x00), 0x03, 0x3e, 0x1e, 0x20, 0x06, 0x36)
	case 3:
		// 0x1e: QoS 3
		l.WillTopic, l.Will, l.Flags = topic(victim(0)), reading(victim(0)), pick(h.writer, byte(0x0e), 0x0e, 0x2e, 0x1e)
	case 4:
		l.ID = pick(h.writer, long(20_000), "a\x00b", "\xff\xfe", owned, "../../x", "$share")
	case 5:
		l.Key, s.known = pick(h.writer, h.key[:len(h.key)-1]+"!", "", long(20_000), "css_"+long(36), "\n\n",
			h.tokens[0].secret), false
	case 6:
		l.User, s.known = pick(h.writer, "honest", "", owned, "\x1b[31m", long(5000), "root"), false
	}
}

// packet returns one packet after the login, and records whether the server may acknowledge that
// packet.
func (h *hostileCar) packet(s *sent) []byte {
	id, own := uint16(1+h.IntN(65535)), ownCar(h.IntN(10))
	publish := func(topic, payload string) []byte {
		return mqtt.Publish(s.version, pick(h.writer, byte(2), 2, 3, 10), id, topic, payload)
	}
	switch h.IntN(11) {
	case 0, 1:
		s.good[id] = true
		return publish(topic(own), reading(own))
	case 2: // for cars of other sources
		other := victim(id)
		return pick(h.writer, publish(topic(other), reading(pick(h.writer, other, own))), publish(topic(own), reading(other)))
	case 3:
		return publish(pick(h.writer, "#", "vehicles/+/telemetry", "$SYS/broker/uptime", topic(own)+"/x", "", long(60_000),
			"vehicles/a\x00b/telemetry", "vehicles/\xff/telemetry",
			"vehicles/../telemetry", "vehicles//telemetry", "VEHICLES/"+own+"/TELEMETRY", "$share/g/"+topic(own), "telemetry.0",
			topic(long(257))), reading(own))
	case 4: // QoS 2 and 3, and the invalid packet ID 0
		return pick(h.writer, mqtt.Publish(s.version, pick(h.writer, byte(4), 5, 6, 7, 12), id, topic(own),
			reading(victim(id))), mqtt.Publish(s.version, 2, 0, topic(own), reading(victim(id))))
	case 5:
		return mqtt.Subscribe(s.version, id, pick(h.writer, "#", "+/+/+", topic("+"), "$SYS/#", "$share/g/#", topic(own),
			"a/#/b", "", "\xff", "a\x00b"), "#")
	case 6:
		return mqtt.Subscribe(s.version, id, slices.Repeat([]string{topic(victim(id))}, pick(h.writer, 0, 400))...)
	case 7: // packets that no car sends, and invalid lengths
		return []byte(pick(h.writer, "\xc0\x00", "\xc1\x01x", "\xa2\x05\x00\x01\x00\x01#", "\x40\x02\x00\x01",
			"\x50\x02\x00\x01", "\x62\x02\x00\x01", "\x70\x02\x00\x01", "\x00\x00", "\xf0\x00", "\xf0\x02\x18\x00",
			"\x20\x02\x00\x00", "\x80\x03\x00\x01#",
			string((&mqtt.Login{Protocol: "MQTT", Version: s.version, Flags: 2, User: h.source, Key: h.key}).Packet()),
			"\x32\xff\xff\xff\x7f", "\x32\xff\xff\xff\xff\x01", "\x32\x80\x80\x80\x80\x80", "\x82\xff\xff\xff\x7f", "\x32\x01",
			"\x10\xff\xff\x7f"))
	case 8:
		return publish(topic(own), pick(h.writer, "", "{", "null", strings.Repeat("[", 20_000), `{"vid":1}`, "\xff\xfe",
			`{"time":1,"signals":{}}`, long(70_000), "\n\n\n",
			`{"vid":"`+own+`","time":9999999999999,"signals":{"Vehicle.Speed":1e999}}`))
	case 9: // properties: with a wrong length, malformed, and many
		many := strings.Repeat("\x26\x00\x03key\x00\x01v", 1200)
		properties := pick(h.writer, "\xff\xff\xff\x7f", "\x03\x23\x00\x00", "\x03\x23\xff\xff", "\x02\x7e\x01",
			"\x05\x26\x00\x09ab", "\x01", "\x80\x80\x80\x80\x80", string(binary.AppendUvarint(nil, uint64(len(many))))+many)
		return mqtt.Packet(0x32, mqtt.Text(topic(victim(id))), binary.BigEndian.AppendUint16(nil, id),
			[]byte(properties+reading(victim(id))))
	default:
		if !h.chance(8) {
			return mqtt.Packet(0xc0)
		}
		return publish(topic(own), long(1<<20)) // larger than a packet may be
	}
}

// check returns what is wrong with the server's packets, or "".
func (s *sent) check(got []byte) string {
	for in, first := bufio.NewReader(bytes.NewReader(got)), true; ; first = false {
		kind, body, err := readPacket(in)
		if err == io.EOF {
			return ""
		}
		if err != nil {
			return err.Error()
		}
		if first != (kind == connack) {
			return fmt.Sprintf("the first packet is %#x and not CONNACK, or there is a second CONNACK", kind)
		}
		if wrong := s.checkPacket(kind, body); wrong != "" {
			return wrong
		}
	}
}

// readPacket reads one packet of a server. The packets of carstate are short.
func readPacket(in *bufio.Reader) (kind byte, body []byte, err error) {
	if kind, err = in.ReadByte(); err != nil {
		return kind, nil, err
	}
	n, err := binary.ReadUvarint(in)
	if err != nil || n > 4096 {
		return kind, nil, errors.Join(errors.New("invalid length of a packet of the server"), err)
	}
	body = make([]byte, n)
	if _, err = io.ReadFull(in, body); err != nil {
		err = fmt.Errorf("a packet of the server breaks off: %w", err)
	}
	return kind, body, err
}

func (s *sent) checkPacket(kind byte, body []byte) string {
	switch {
	case kind == connack && len(body) >= 2:
		if s.letIn = body[1] == 0; s.letIn && !s.known {
			return "a client without a right key is accepted"
		}
	case kind == puback && len(body) >= 2:
		id := binary.BigEndian.Uint16(body)
		switch {
		case len(body) > 2 && body[2] >= 0x80: // refused
		case !s.good[id] && !s.any:
			return fmt.Sprintf("message %d must not be acknowledged", id)
		default:
			s.stored++
		}
	case kind == suback && len(body) >= 3:
		codes := body[2:]
		if s.version >= 5 && !s.any {
			// The reason codes follow the properties. The properties are empty or
			// contain a reason string.
			n, size := binary.Uvarint(codes)
			if size <= 0 || uint64(len(codes)) <= n+uint64(size) {
				return "a SUBACK has no codes"
			}
			codes = codes[n+uint64(size):]
		}
		for _, c := range codes {
			if c < 0x80 && !s.any {
				return "a car may subscribe"
			} else if c >= 0x80 {
				s.denied++
			}
		}
	case kind == unsuback, kind == pingresp, kind == disconnect, kind == pubrel, kind == pubcomp:
	default:
		return fmt.Sprintf("unexpected packet from the server: %#x % x", kind, body)
	}
	return ""
}
