package hostile

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
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
		parts = append(parts, noProperties(l.version), text("vehicles/Victim0/telemetry"), text(reading("Victim0", 1)))
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

// packet is what a server sent.
type packet struct {
	first byte
	body  []byte
}

// readPacket reads one packet of a server. Ours have nothing long to say.
func readPacket(in *bufio.Reader) (p packet, err error) {
	if p.first, err = in.ReadByte(); err != nil {
		return p, err
	}
	n, err := binary.ReadUvarint(in)
	if err != nil || n > 4096 {
		return p, errors.Join(errors.New("a packet of the server has a length that is none"), err)
	}
	p.body = make([]byte, n)
	if _, err = io.ReadFull(in, p.body); err != nil {
		err = fmt.Errorf("a packet of the server breaks off: %w", err)
	}
	return p, err
}

// sent is one connection as a hostile car has it: what it sends, and what it may be
// told.
type sent struct {
	version byte
	stream  []byte
	known   bool            // the credentials are right
	good    map[uint16]bool // the messages that may be acknowledged
	any     bool            // bytes were changed: any message may be good

	// What judge has seen.
	letIn          bool
	stored, denied int // messages that were acknowledged, subscriptions that were refused
}

// judge says what is wrong with all that the server sent, "" if nothing is.
func (s *sent) judge(got []byte) string {
	in := bufio.NewReader(bytes.NewReader(got))
	for n := 0; ; n++ {
		p, err := readPacket(in)
		if err == io.EOF {
			return ""
		}
		if err != nil {
			return err.Error()
		}
		if n == 0 && p.first != connack {
			return fmt.Sprintf("the first packet is %#x, no CONNACK", p.first)
		}
		if wrong := s.judgePacket(p, n == 0); wrong != "" {
			return wrong
		}
	}
}

func (s *sent) judgePacket(p packet, first bool) string {
	code := func(at int) byte {
		if len(p.body) > at {
			return p.body[at]
		}
		return 0
	}
	switch {
	case p.first == connack && first && len(p.body) >= 2:
		if s.letIn = code(1) == 0; s.letIn && !s.known {
			return "who has no right key is let in"
		}
	case p.first == puback && len(p.body) >= 2:
		if id := binary.BigEndian.Uint16(p.body); code(2) < 0x80 && !s.good[id] && !s.any {
			return fmt.Sprintf("message %d is acknowledged, and must not be", id)
		} else if code(2) < 0x80 {
			s.stored++
		}
	case p.first == suback && len(p.body) >= 3:
		codes := p.body[2:]
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
	case p.first == unsuback, p.first == pingresp, p.first == disconnect, p.first == pubrel, p.first == pubcomp:
	default:
		return fmt.Sprintf("a packet came that no server has for a car: %#x % x", p.first, p.body)
	}
	return ""
}

// reading is a good sample.
func reading(vid string, unixMilli int64) string {
	return fmt.Sprintf(`{"vid":%q,"time":%d,"signals":{"Vehicle.Speed":50,"Vehicle.OBD.ThrottlePosition":20}}`, vid, unixMilli)
}

// topic is where a vehicle's telemetry goes.
func topic(vid string) string { return "vehicles/" + vid + "/telemetry" }

// long is a text that no field is meant for.
func long(n int) string { return strings.Repeat("x", n) }
