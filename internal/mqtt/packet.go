// Package mqtt parses and makes packets of MQTT 3.1.1 and 5. It must know no connection. A code of 0
// is success.
package mqtt

import (
	"bytes"
	"encoding/binary"
	"strings"
	"unicode/utf8"
)

// First bytes of packets, with the flags that MQTT prescribes.
const (
	ConnectPacket     = 1 << 4
	ConnackPacket     = 2 << 4
	PublishPacket     = 3 << 4 // without its flags
	PubackPacket      = 4 << 4
	PubrecPacket      = 5 << 4
	PubrelPacket      = 6<<4 | 2
	PubcompPacket     = 7 << 4
	SubscribePacket   = 8<<4 | 2
	SubackPacket      = 9 << 4
	UnsubscribePacket = 10<<4 | 2
	UnsubackPacket    = 11 << 4
	PingreqPacket     = 12 << 4
	PingrespPacket    = 13 << 4
	DisconnectPacket  = 14 << 4
)

// Reason codes of MQTT 5.
const (
	NoSubscription    = 0x11
	UnspecifiedError  = 0x80
	MalformedPacket   = 0x81
	ProtocolError     = 0x82
	PacketFailed      = 0x83
	WrongVersion      = 0x84
	WrongClientID     = 0x85
	WrongLogin        = 0x86
	NotAuthorized     = 0x87
	ServerUnavailable = 0x88
	ServerBusy        = 0x89
	WrongAuthMethod   = 0x8c
	KeepAliveTimeout  = 0x8d
	SessionTakenOver  = 0x8e
	WrongTopic        = 0x90
	UnknownPacketID   = 0x92
	WrongAlias        = 0x94
	PacketTooLarge    = 0x95
	QuotaExceeded     = 0x97
	WrongPayload      = 0x99
	QoSNotSupported   = 0x9b
)

const maxClientID = 1024 // bytes, kept as long as the connection

// Fields reads a packet field by field. After a failure, all later fields are zero.
type Fields struct {
	Rest []byte
	Code byte
}

func (f *Fields) fail(code byte) {
	if f.Code == 0 {
		f.Code, f.Rest = code, nil
	}
}

func (f *Fields) Take(n int) []byte {
	if n > len(f.Rest) {
		f.fail(MalformedPacket)
		return nil
	}
	p := f.Rest[:n:n]
	f.Rest = f.Rest[n:]
	return p
}

func (f *Fields) Number(n int) (v uint32) {
	for _, b := range f.Take(n) {
		v = v<<8 | uint32(b)
	}
	return v
}

func (f *Fields) Binary() []byte { return f.Take(int(f.Number(2))) }

func (f *Fields) text() []byte {
	p := f.Binary()
	if !utf8.Valid(p) || bytes.IndexByte(p, 0) >= 0 {
		f.fail(MalformedPacket)
		return nil
	}
	return p
}

func (f *Fields) Varint() uint32 {
	v, n := binary.Uvarint(f.Rest[:min(len(f.Rest), 4)])
	if n <= 0 {
		f.fail(MalformedPacket)
		return 0
	}
	f.Rest = f.Rest[n:]
	return uint32(v)
}

const (
	connectProperties   = "\x11\x15\x16\x17\x19\x21\x22\x26\x27"
	willProperties      = "\x01\x02\x03\x08\x09\x18\x26"
	publishProperties   = "\x01\x02\x03\x08\x09\x23\x26"
	subscribeProperties = "\x0b\x26"
	userProperty        = "\x26" // may appear several times
)

// propertyForms[id] is the form of a property: 1, 2, 4 (a number of as many bytes), v (a number of
// variable length), s (string), b (binary) or p (two strings).
const propertyForms = "_14s____sb_v_____4s2_sb141s_s__s_22211p4"

type Properties struct {
	seen          uint64 // bit n: property n
	SessionExpiry uint32
	MaxPacket     uint32 // that the client accepts; 0: any
	Terse         bool   // no reasons in PUBACKs
}

func (p *Properties) has(id byte) bool { return p.seen>>id&1 != 0 }

func (f *Fields) properties(allowed string) (p Properties) {
	list := Fields{Rest: f.Take(int(f.Varint()))}
	for len(list.Rest) > 0 {
		id := byte(list.Number(1))
		if strings.IndexByte(allowed, id) < 0 {
			list.fail(MalformedPacket)
			break
		}
		if p.has(id) && id != userProperty[0] {
			list.fail(ProtocolError)
		}
		p.seen |= 1 << id
		number := uint32(1)
		switch form := propertyForms[id]; form {
		case 's':
			list.text()
		case 'b':
			list.Binary()
		case 'p':
			list.text()
			list.text()
		case 'v':
			number = list.Varint()
		default:
			number = list.Number(int(form - '0'))
		}
		switch id {
		case 0x01, 0x17, 0x19: // payload format, problem and response information
			if number > 1 {
				list.fail(ProtocolError)
			}
			p.Terse = p.Terse || id == 0x17 && number == 0
		case 0x0b, 0x21, 0x27: // subscription identifier, receive maximum, maximum packet size
			if number == 0 {
				list.fail(ProtocolError)
			}
			if id == 0x27 {
				p.MaxPacket = number
			}
		case 0x11:
			p.SessionExpiry = number
		}
	}
	if list.Code != 0 {
		f.fail(list.Code)
	}
	return p
}

// The slices of Connect are parts of the packet.
type Connect struct {
	Version            byte // 4: MQTT 3.1.1; 5; 0: not known
	KeepAlive          uint16
	ID, User, Password []byte
	Properties
}

func ParseConnect(body []byte) (c Connect, code byte) {
	f := Fields{Rest: body}
	name, level, flags := string(f.text()), byte(f.Number(1)), byte(f.Number(1))
	switch {
	case f.Code != 0:
		return c, f.Code
	case name == "MQTT" && (level == 4 || level == 5):
		c.Version = level
	case name == "MQTT", name == "MQIsdp": // MQTT 3.1, or a bridge, which first sets the level's top bit
		return c, WrongVersion
	default:
		return c, MalformedPacket
	}
	will, hasUser, hasPassword, willQoS := flags&4 != 0, flags&0x80 != 0, flags&0x40 != 0, flags>>3&3
	if flags&1 != 0 || willQoS == 3 || !will && flags&0x38 != 0 || level == 4 && hasPassword && !hasUser {
		f.fail(MalformedPacket)
	}
	c.KeepAlive = uint16(f.Number(2))
	if level == 5 {
		c.Properties = f.properties(connectProperties)
	}
	if c.ID = f.text(); len(c.ID) > maxClientID || f.Code == 0 && level == 4 && len(c.ID) == 0 && flags&2 == 0 {
		f.fail(WrongClientID)
	}
	if will {
		if level == 5 {
			f.properties(willProperties)
		}
		f.text()
		f.Binary()
		if level == 5 && willQoS > 1 {
			f.fail(QoSNotSupported)
		}
	}
	if hasUser {
		c.User = f.text()
	}
	if hasPassword {
		c.Password = f.Binary()
	}
	switch {
	case len(f.Rest) > 0:
		f.fail(MalformedPacket)
	case c.has(0x15): // authentication method
		f.fail(WrongAuthMethod)
	}
	return c, f.Code
}

func AppendConnack(p []byte, version, code byte, properties []byte) []byte {
	if version == 5 {
		p = append(p, ConnackPacket, byte(3+len(properties)), 0, code, byte(len(properties)))
		return append(p, properties...)
	}
	switch code {
	case 0:
	case WrongVersion:
		code = 1
	case WrongClientID:
		code = 2
	case ServerUnavailable, QuotaExceeded:
		code = 3
	default:
		code = 5
	}
	return append(p, ConnackPacket, 2, 0, code)
}

type Publish struct {
	QoS            byte
	ID             uint16
	Topic, Payload []byte
	Aliased        bool // has a topic alias
}

func ParsePublish(version, first byte, body []byte) (p Publish, code byte) {
	f := Fields{Rest: body}
	if p.QoS = first >> 1 & 3; p.QoS == 3 || p.QoS == 0 && first&8 != 0 {
		f.fail(MalformedPacket)
	}
	p.Topic = f.text()
	if p.QoS > 0 {
		if p.ID = uint16(f.Number(2)); p.ID == 0 {
			f.fail(ProtocolError)
		}
	}
	if version == 5 {
		properties := f.properties(publishProperties)
		if p.Aliased = properties.has(0x23); !p.Aliased && len(p.Topic) == 0 {
			f.fail(ProtocolError)
		}
	}
	p.Payload = f.Rest
	return p, f.Code
}

// RefuseFilters makes the answer to a SUBSCRIBE or UNSUBSCRIBE: nobody can subscribe.
func RefuseFilters(version, first byte, body []byte) (answer []byte, code byte) {
	f := Fields{Rest: body}
	id := uint16(f.Number(2))
	if id == 0 {
		f.fail(ProtocolError)
	}
	allowed, reserved := userProperty, byte(0xfc)
	if first == SubscribePacket {
		allowed = subscribeProperties
	}
	if version == 5 {
		f.properties(allowed)
		reserved = 0xc0
	}
	n := 0
	for ; len(f.Rest) > 0; n++ {
		if len(f.text()) == 0 {
			f.fail(MalformedPacket)
		}
		if first != SubscribePacket {
			continue
		}
		if o := byte(f.Number(1)); o&reserved != 0 || o&3 == 3 || o>>4&3 == 3 {
			f.fail(MalformedPacket)
		}
	}
	if n == 0 {
		f.fail(ProtocolError)
	}
	if f.Code != 0 {
		return nil, f.Code
	}
	kind, reason := byte(SubackPacket), byte(UnspecifiedError)
	switch {
	case first == UnsubscribePacket && version == 5:
		kind, reason = UnsubackPacket, NoSubscription
	case first == UnsubscribePacket: // MQTT 3.1.1 has no codes
		kind, n = UnsubackPacket, 0
	case version == 5:
		reason = NotAuthorized
	}
	head := binary.BigEndian.AppendUint16(nil, id)
	if version == 5 {
		head = append(head, 0) // no properties
	}
	return AppendReason(nil, version, kind, append(head, bytes.Repeat([]byte{reason}, n)...), 0, ""), 0
}

// AppendReason appends a packet. It omits code and text in MQTT 3.1.1, which has neither, and a zero
// code if text is empty.
func AppendReason(p []byte, version, first byte, head []byte, code byte, text string) []byte {
	var reason []byte
	switch {
	case version < 5:
	case text != "":
		property := append(binary.BigEndian.AppendUint16([]byte{0x1f}, uint16(len(text))), text...)
		reason = append(binary.AppendUvarint([]byte{code}, uint64(len(property))), property...)
	case code != 0:
		reason = []byte{code}
	}
	p = binary.AppendUvarint(append(p, first), uint64(len(head)+len(reason)))
	return append(append(p, head...), reason...)
}
