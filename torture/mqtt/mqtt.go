// Package mqtt encodes MQTT packets byte by byte, because a client library would refuse to send
// most of the packets that the torture sends.
package mqtt

import (
	"bytes"
	"encoding/binary"
)

// Text returns a string as MQTT encodes it: two bytes for its length, then its bytes.
func Text(s string) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(s))), s...)
}

// Packet returns a packet that consists of the first byte, the length of the rest, and the parts.
func Packet(first byte, parts ...[]byte) []byte {
	body := bytes.Join(parts, nil)
	return append(binary.AppendUvarint([]byte{first}, uint64(len(body))), body...)
}

// NoProperties returns an empty property list, or nothing for versions before MQTT 5.
func NoProperties(version byte) []byte {
	if version < 5 {
		return nil
	}
	return []byte{0}
}

// Login is a CONNECT with a user name and a key.
type Login struct {
	Protocol        string
	Version         byte
	Flags           byte // besides those of the user name and the key
	KeepAlive       uint16
	ID              string
	WillTopic, Will string // no will if Will is ""
	User, Key       string
}

// Packet returns the encoded login.
func (l *Login) Packet() []byte {
	head := append(Text(l.Protocol), l.Version, l.Flags|0xc0)
	parts := [][]byte{binary.BigEndian.AppendUint16(head, l.KeepAlive), NoProperties(l.Version), Text(l.ID)}
	if l.Will != "" {
		parts = append(parts, NoProperties(l.Version), Text(l.WillTopic), Text(l.Will))
	}
	return Packet(0x10, append(parts, Text(l.User), Text(l.Key))...)
}

// Publish returns an encoded message. Bits of flags: 1 is retain, 2 is QoS 1, 4 is QoS 2.
func Publish(version, flags byte, id uint16, topic, payload string) []byte {
	head := Text(topic)
	if flags&6 != 0 {
		head = binary.BigEndian.AppendUint16(head, id)
	}
	return Packet(0x30|flags, head, NoProperties(version), []byte(payload))
}

// Subscribe returns a SUBSCRIBE that requests QoS 1 for each filter.
func Subscribe(version byte, id uint16, filters ...string) []byte {
	parts := [][]byte{binary.BigEndian.AppendUint16(nil, id), NoProperties(version)}
	for _, f := range filters {
		parts = append(parts, Text(f), []byte{1})
	}
	return Packet(0x82, parts...)
}
