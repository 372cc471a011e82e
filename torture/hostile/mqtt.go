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
)

// MQTT packets byte by byte: a library would not write most of what is sent here.

// First bytes of what a server may send us.
const (
	connack    = 0x20
	puback     = 0x40
	pubrel     = 0x62 // to a PUBREC of whatever message
	pubcomp    = 0x70 // and to a PUBREL
	suback     = 0x90
	unsuback   = 0xb0
	pingresp   = 0xd0
	disconnect = 0xe0
)

// text is a string with its length before it.
func text(s string) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(s))), s...)
}

// frame puts a fixed header before the parts.
func frame(first byte, parts ...[]byte) []byte {
	body := bytes.Join(parts, nil)
	return append(binary.AppendUvarint([]byte{first}, uint64(len(body))), body...)
}

// noProperties is an empty property list, and nothing before MQTT 5.
func noProperties(version byte) []byte {
	if version < 5 {
		return nil
	}
	return []byte{0}
}

// login is a CONNECT.
type login struct {
	protocol  string
	version   byte
	flags     byte // besides those of user and password
	keepAlive uint16
	id        string
	will      bool
	user, key string
}

func (l *login) bytes() []byte {
	head := append(text(l.protocol), l.version, l.flags|0xc0)
	head = binary.BigEndian.AppendUint16(head, l.keepAlive)
	parts := [][]byte{head, noProperties(l.version), text(l.id)}
	if l.will {
		parts = append(parts, noProperties(l.version), text(topic(victim(0))), text(reading(victim(0))))
	}
	return frame(0x10, append(parts, text(l.user), text(l.key))...)
}

// publish is a PUBLISH. Of the flags, QoS 1 is 2, QoS 2 is 4, retain is 1.
func publish(version, flags byte, id uint16, topic, payload string) []byte {
	head := text(topic)
	if flags&6 != 0 {
		head = binary.BigEndian.AppendUint16(head, id)
	}
	return frame(0x30|flags, head, noProperties(version), []byte(payload))
}

func subscribe(version byte, id uint16, filters ...string) []byte {
	parts := [][]byte{binary.BigEndian.AppendUint16(nil, id), noProperties(version)}
	for _, f := range filters {
		parts = append(parts, text(f), []byte{1})
	}
	return frame(0x82, parts...)
}

// reading is a good sample.
func reading(vid string) string {
	return fmt.Sprintf(`{"vid":%q,"time":%d,"signals":{"Vehicle.Speed":50,"Vehicle.OBD.ThrottlePosition":20}}`, vid, time.Now().UnixMilli())
}

// topic is where a vehicle's telemetry goes.
func topic(vid string) string { return "vehicles/" + vid + "/telemetry" }

// ownCars and victims are vehicles that the hostile source speaks for, and that
// nobody does: of these nothing may ever be known.
func ownCar(i int) string { return fmt.Sprintf("Own%d", i%10) }
func victim(i int) string { return fmt.Sprintf("Victim%d", i%10) }

// sent is one connection as a hostile car has it: what it sends, and what it may be
// told.
type sent struct {
	version byte
	stream  []byte
	known   bool            // the credentials are right
	good    map[uint16]bool // the messages that may be acknowledged
	any     bool            // bytes were changed: any message may be good

	// These are what judge has seen.
	letIn          bool
	stored, denied int // messages that were acknowledged, subscriptions that were refused
}

// hostileCar writes what no car would send. It belongs to a source that is known
// and speaks for ownCars.
type hostileCar struct {
	*writer
	source, key string
}

// owned is a text that would be a line of the log if it were written as it is.
const owned = "\"}\n{\"level\":\"ERROR\",\"msg\":\"owned\"}"

// connection is all that one hostile car sends.
func (h *hostileCar) connection() *sent {
	s := &sent{version: byte(4 + h.IntN(2)), good: make(map[uint16]bool), known: true}
	l := login{protocol: "MQTT", version: s.version, flags: 2, keepAlive: uint16(h.IntN(700)), id: pick(h.writer, "same", "same", h.nobody(), ""), user: h.source, key: h.key}
	if h.chance(4) {
		h.spoilLogin(&l, s)
	}
	s.version, s.stream = l.version, l.bytes()
	at := len(s.stream)
	for n := h.IntN(12); n > 0; n-- {
		s.stream = append(s.stream, h.packet(s)...)
	}
	if s.any = h.chance(3); s.any {
		at *= h.IntN(2) // the login stays as it is, or not
		s.stream = append(s.stream[:at:at], h.mutate(slices.Clone(s.stream[at:]))...)
	}
	return s
}

// spoilLogin changes one thing of a CONNECT.
func (h *hostileCar) spoilLogin(l *login, s *sent) {
	switch h.IntN(8) {
	case 0:
		l.protocol, l.version = pick(h.writer, "MQIsdp", "mqtt", "", "MQTT\x00", "HTTP", long(300)), pick(h.writer, byte(3), 4, 5)
	case 1:
		l.version = pick(h.writer, byte(0), 1, 2, 3, 6, 131, 255)
	case 2:
		l.flags = pick(h.writer, byte(0x03), 0x3e, 0x1e, 0x20, 0x06, 0x36)
	case 3:
		l.will, l.flags = true, pick(h.writer, byte(0x0e), 0x0e, 0x2e, 0x1e) // the last is QoS 3
	case 4:
		l.id = pick(h.writer, long(20_000), "a\x00b", "\xff\xfe", owned, "../../x", "$share")
	case 5:
		l.key, s.known = pick(h.writer, h.key[:len(h.key)-1]+"!", "", long(20_000), "css_"+long(36), "\n\n", h.tokens[0].secret), false
	case 6:
		l.user, s.known = pick(h.writer, "honest", "", owned, "\x1b[31m", long(5000), "root"), false
	case 7:
		l.id, l.flags = "", 0 // no ID, and a session to keep
	}
}

// packet is one packet after the login, and notes whether it may be acknowledged.
func (h *hostileCar) packet(s *sent) []byte {
	id, own := uint16(1+h.IntN(65535)), ownCar(h.IntN(10))
	idBytes := binary.BigEndian.AppendUint16(nil, id)
	flags := pick(h.writer, byte(2), 2, 3, 10)
	switch h.IntN(15) {
	case 0, 1:
		s.good[id] = true
		return publish(s.version, flags, id, topic(own), reading(own))
	case 2:
		return publish(s.version, flags, id, topic(victim(6)), reading(pick(h.writer, victim(6), own)))
	case 3:
		return publish(s.version, flags, id, topic(own), reading(victim(1)))
	case 4:
		return publish(s.version, flags, id, pick(h.writer, "#", "vehicles/+/telemetry", "$SYS/broker/uptime", topic(own)+"/x", "", long(60_000), "vehicles/a\x00b/telemetry", "vehicles/\xff/telemetry",
			"vehicles/../telemetry", "vehicles//telemetry", "VEHICLES/"+own+"/TELEMETRY", "$share/g/"+topic(own), "telemetry.0", topic(long(257))), reading(own))
	case 5:
		return publish(s.version, pick(h.writer, byte(4), 5, 6, 7, 12), id, topic(own), reading(victim(2)))
	case 6:
		return subscribe(s.version, id, pick(h.writer, "#", "+/+/+", topic("+"), "$SYS/#", "$share/g/#", topic(own), "a/#/b", "", "\xff", "a\x00b"), "#")
	case 7:
		return subscribe(s.version, id, slices.Repeat([]string{topic(victim(7))}, pick(h.writer, 0, 400))...)
	case 8:
		return pick(h.writer, frame(0xc0), frame(0xc1, []byte("x")), frame(0xa2, idBytes, noProperties(s.version), text("#")), frame(0x40, []byte{0, 1}), frame(0x50, []byte{0, 1}),
			frame(0x62, []byte{0, 1}), frame(0x70, []byte{0, 1}), frame(0x00), frame(0xf0), frame(0xf0, []byte{0x18, 0}), frame(0x20, []byte{0, 0}), frame(0x80, text("#")),
			(&login{protocol: "MQTT", version: s.version, flags: 2, user: h.source, key: h.key}).bytes())
	case 9:
		return pick(h.writer, []byte{0x32, 0xff, 0xff, 0xff, 0x7f}, []byte{0x32, 0xff, 0xff, 0xff, 0xff, 0x01}, []byte{0x32, 0x80, 0x80, 0x80, 0x80, 0x80}, []byte{0x82, 0xff, 0xff, 0xff, 0x7f}, []byte{0x32, 0x01}, []byte{0x10, 0xff, 0xff, 0x7f})
	case 10:
		return publish(s.version, flags, id, topic(own), pick(h.writer, "", "{", "null", strings.Repeat("[", 20_000), `{"vid":1}`, "\xff\xfe", `{"time":1,"signals":{}}`, long(70_000), "\n\n\n", `{"vid":"`+own+`","time":9999999999999,"signals":{"Vehicle.Speed":1e999}}`))
	case 11:
		return frame(0x32, text(topic(own)), idBytes, pick(h.writer, []byte{0xff, 0xff, 0xff, 0x7f}, []byte{3, 0x23, 0, 0}, []byte{3, 0x23, 0xff, 0xff}, []byte{2, 0x7e, 1}, []byte{5, 0x26, 0, 9, 'a', 'b'}, []byte{1}, []byte{0x80, 0x80, 0x80, 0x80, 0x80}), []byte(reading(victim(3))))
	case 12:
		properties := bytes.Repeat(slices.Concat([]byte{0x26}, text("key"), text("v")), 1200)
		return frame(0x32, text(topic(victim(4))), idBytes, binary.AppendUvarint(nil, uint64(len(properties))), properties, []byte(reading(victim(4))))
	case 13:
		if !h.chance(8) {
			return frame(0xc0)
		}
		return publish(s.version, 2, id, topic(own), long(1<<20)) // more than a packet may have
	default:
		return publish(s.version, 2, 0, topic(own), reading(victim(5))) // no packet has the ID 0
	}
}

// judge says what is wrong with all that the server sent, "" if nothing is.
func (s *sent) judge(got []byte) string {
	for in, first := bufio.NewReader(bytes.NewReader(got)), true; ; first = false {
		kind, body, err := readPacket(in)
		if err == io.EOF {
			return ""
		}
		if err != nil {
			return err.Error()
		}
		if first != (kind == connack) {
			return fmt.Sprintf("the first packet is %#x, no CONNACK, or there is another one", kind)
		}
		if wrong := s.judgePacket(kind, body); wrong != "" {
			return wrong
		}
	}
}

// readPacket reads one packet of a server. Ours have nothing long to say.
func readPacket(in *bufio.Reader) (kind byte, body []byte, err error) {
	if kind, err = in.ReadByte(); err != nil {
		return kind, nil, err
	}
	n, err := binary.ReadUvarint(in)
	if err != nil || n > 4096 {
		return kind, nil, errors.Join(errors.New("a packet of the server has a length that is none"), err)
	}
	body = make([]byte, n)
	if _, err = io.ReadFull(in, body); err != nil {
		err = fmt.Errorf("a packet of the server breaks off: %w", err)
	}
	return kind, body, err
}

func (s *sent) judgePacket(kind byte, body []byte) string {
	switch {
	case kind == connack && len(body) >= 2:
		if s.letIn = body[1] == 0; s.letIn && !s.known {
			return "who has no right key is let in"
		}
	case kind == puback && len(body) >= 2:
		id := binary.BigEndian.Uint16(body)
		switch {
		case len(body) > 2 && body[2] >= 0x80: // refused
		case !s.good[id] && !s.any:
			return fmt.Sprintf("message %d is acknowledged, and must not be", id)
		default:
			s.stored++
		}
	case kind == suback && len(body) >= 3:
		codes := body[2:]
		if s.version >= 5 && !s.any {
			// After the properties, of which there are none or a reason.
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
		return fmt.Sprintf("a packet came that no server has for a car: %#x % x", kind, body)
	}
	return ""
}
