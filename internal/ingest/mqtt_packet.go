package ingest

import (
	"bytes"
	"encoding/binary"
	"strings"
	"unicode/utf8"
)

// First bytes of packets, with the flags that MQTT prescribes.
const (
	connectPacket     = 1 << 4
	connackPacket     = 2 << 4
	publishPacket     = 3 << 4 // and its flags
	pubackPacket      = 4 << 4
	pubrecPacket      = 5 << 4
	pubrelPacket      = 6<<4 | 2
	pubcompPacket     = 7 << 4
	subscribePacket   = 8<<4 | 2
	subackPacket      = 9 << 4
	unsubscribePacket = 10<<4 | 2
	unsubackPacket    = 11 << 4
	pingreqPacket     = 12 << 4
	pingrespPacket    = 13 << 4
	disconnectPacket  = 14 << 4
)

const (
	noSubscription     = 0x11
	unspecifiedError   = 0x80
	malformedPacket    = 0x81
	protocolError      = 0x82
	packetFailed       = 0x83
	wrongVersion       = 0x84
	wrongClientID      = 0x85
	wrongLogin         = 0x86
	notAuthorized      = 0x87
	serverUnavailable  = 0x88
	serverBusy         = 0x89
	wrongAuthMethod    = 0x8c
	keepAliveTimeout   = 0x8d
	sessionTakenOver   = 0x8e
	wrongTopic         = 0x90
	unknownPacketID    = 0x92
	wrongAlias         = 0x94
	packetTooLarge     = 0x95
	quotaExceeded      = 0x97
	wrongPayload       = 0x99
	qosNotSupported    = 0x9b
	maxClientID        = 1024 // bytes, kept as long as the connection
	connectionAccepted = 0
)

// After a failure, all fields are zero.
type fields struct {
	rest []byte
	code byte
}

func (f *fields) fail(code byte) {
	if f.code == 0 {
		f.code, f.rest = code, nil
	}
}

func (f *fields) take(n int) []byte {
	if n > len(f.rest) {
		f.fail(malformedPacket)
		return nil
	}
	p := f.rest[:n:n]
	f.rest = f.rest[n:]
	return p
}

func (f *fields) number(n int) (v uint32) {
	for _, b := range f.take(n) {
		v = v<<8 | uint32(b)
	}
	return v
}

func (f *fields) binary() []byte { return f.take(int(f.number(2))) }

// text reads UTF-8 without U+0000.
func (f *fields) text() []byte {
	p := f.binary()
	if !utf8.Valid(p) || bytes.IndexByte(p, 0) >= 0 {
		f.fail(malformedPacket)
		return nil
	}
	return p
}

func (f *fields) varint() uint32 {
	v, n := binary.Uvarint(f.rest[:min(len(f.rest), 4)])
	if n <= 0 {
		f.fail(malformedPacket)
		return 0
	}
	f.rest = f.rest[n:]
	return uint32(v)
}

const (
	connectProperties   = "\x11\x15\x16\x17\x19\x21\x22\x26\x27"
	willProperties      = "\x01\x02\x03\x08\x09\x18\x26"
	publishProperties   = "\x01\x02\x03\x08\x09\x23\x26"
	subscribeProperties = "\x0b\x26"
	userProperty        = "\x26" // may appear several times
)

// propertyForms is, by property: a number of 1, 2 or 4 bytes or v (variable), s (string), b
// (binary) or p (two strings).
const propertyForms = "_14s____sb_v_____4s2_sb141s_s__s_22211p4"

type properties struct {
	seen          uint64 // bits
	sessionExpiry uint32
	maxPacket     uint32 // that the client accepts; 0: any
	terse         bool   // no reasons in PUBACKs
}

func (p *properties) has(id byte) bool { return p.seen>>id&1 != 0 }

func (f *fields) properties(allowed string) (p properties) {
	list := fields{rest: f.take(int(f.varint()))}
	for len(list.rest) > 0 {
		id := byte(list.number(1))
		if strings.IndexByte(allowed, id) < 0 {
			list.fail(malformedPacket)
			break
		}
		if p.has(id) && id != userProperty[0] {
			list.fail(protocolError)
		}
		p.seen |= 1 << id
		number := uint32(1)
		switch form := propertyForms[id]; form {
		case 's':
			list.text()
		case 'b':
			list.binary()
		case 'p':
			list.text()
			list.text()
		case 'v':
			number = list.varint()
		default:
			number = list.number(int(form - '0'))
		}
		switch id {
		case 0x01, 0x17, 0x19: // payload format, problem and response information
			if number > 1 {
				list.fail(protocolError)
			}
			p.terse = p.terse || id == 0x17 && number == 0
		case 0x0b, 0x21, 0x27: // subscription identifier, receive maximum, maximum packet size
			if number == 0 {
				list.fail(protocolError)
			}
			if id == 0x27 {
				p.maxPacket = number
			}
		case 0x11:
			p.sessionExpiry = number
		}
	}
	if list.code != 0 {
		f.fail(list.code)
	}
	return p
}

// The slices are parts of the packet.
type connect struct {
	version            byte // 4: MQTT 3.1.1; 5; 0: not known
	keepAlive          uint16
	id, user, password []byte
	properties
}

func parseConnect(body []byte) (c connect, code byte) {
	f := fields{rest: body}
	name, level, flags := string(f.text()), byte(f.number(1)), byte(f.number(1))
	switch {
	case f.code != 0:
		return c, f.code
	case name == "MQTT" && (level == 4 || level == 5):
		c.version = level
	case name == "MQTT", name == "MQIsdp": // MQTT 3.1, or a bridge, which sets the highest bit at first
		return c, wrongVersion
	default:
		return c, malformedPacket
	}
	will, hasUser, hasPassword, willQoS := flags&4 != 0, flags&0x80 != 0, flags&0x40 != 0, flags>>3&3
	if flags&1 != 0 || willQoS == 3 || !will && flags&0x38 != 0 || level == 4 && hasPassword && !hasUser {
		f.fail(malformedPacket)
	}
	c.keepAlive = uint16(f.number(2))
	if level == 5 {
		c.properties = f.properties(connectProperties)
	}
	if c.id = f.text(); len(c.id) > maxClientID || f.code == 0 && level == 4 && len(c.id) == 0 && flags&2 == 0 {
		f.fail(wrongClientID)
	}
	if will {
		if level == 5 {
			f.properties(willProperties)
		}
		f.text()
		f.binary()
		if level == 5 && willQoS > 1 {
			f.fail(qosNotSupported)
		}
	}
	if hasUser {
		c.user = f.text()
	}
	if hasPassword {
		c.password = f.binary()
	}
	switch {
	case len(f.rest) > 0:
		f.fail(malformedPacket)
	case c.has(0x15): // authentication method
		f.fail(wrongAuthMethod)
	}
	return c, f.code
}

func appendConnack(p []byte, version, code byte, properties []byte) []byte {
	if version == 5 {
		p = append(p, connackPacket, byte(3+len(properties)), 0, code, byte(len(properties)))
		return append(p, properties...)
	}
	switch code {
	case connectionAccepted:
	case wrongVersion:
		code = 1
	case wrongClientID:
		code = 2
	case serverUnavailable, quotaExceeded:
		code = 3
	default:
		code = 5
	}
	return append(p, connackPacket, 2, 0, code)
}

type publish struct {
	qos            byte
	id             uint16
	topic, payload []byte
	aliased        bool // has a topic alias
}

func parsePublish(version, first byte, body []byte) (p publish, code byte) {
	f := fields{rest: body}
	if p.qos = first >> 1 & 3; p.qos == 3 || p.qos == 0 && first&8 != 0 {
		f.fail(malformedPacket)
	}
	p.topic = f.text()
	if p.qos > 0 {
		if p.id = uint16(f.number(2)); p.id == 0 {
			f.fail(protocolError)
		}
	}
	if version == 5 {
		properties := f.properties(publishProperties)
		if p.aliased = properties.has(0x23); !p.aliased && len(p.topic) == 0 {
			f.fail(protocolError)
		}
	}
	p.payload = f.rest
	return p, f.code
}

func parseFilters(version, first byte, body []byte) (id uint16, n int, code byte) {
	f := fields{rest: body}
	if id = uint16(f.number(2)); id == 0 {
		f.fail(protocolError)
	}
	allowed, reserved := userProperty, byte(0xfc)
	if first == subscribePacket {
		allowed = subscribeProperties
	}
	if version == 5 {
		f.properties(allowed)
		reserved = 0xc0
	}
	for ; len(f.rest) > 0; n++ {
		if len(f.text()) == 0 {
			f.fail(malformedPacket)
		}
		if first != subscribePacket {
			continue
		}
		if o := byte(f.number(1)); o&reserved != 0 || o&3 == 3 || o>>4&3 == 3 {
			f.fail(malformedPacket)
		}
	}
	if n == 0 {
		f.fail(protocolError)
	}
	return id, n, f.code
}

func appendReason(p []byte, first byte, head []byte, code byte, text string) []byte {
	n, properties := len(head), 3+len(text)
	switch {
	case text != "":
		n += 1 + len(binary.AppendUvarint(nil, uint64(properties))) + properties
	case code != 0:
		n++
	}
	p = append(binary.AppendUvarint(append(p, first), uint64(n)), head...)
	if n > len(head) {
		p = append(p, code)
	}
	if text != "" {
		p = append(binary.AppendUvarint(p, uint64(properties)), 0x1f)
		p = append(binary.BigEndian.AppendUint16(p, uint16(len(text))), text...)
	}
	return p
}
