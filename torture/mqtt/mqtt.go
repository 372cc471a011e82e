// Package mqtt writes MQTT packets byte by byte. A client library would not write most
// of what the torture sends.
package mqtt

import (
	"bytes"
	"encoding/binary"
)

// Text is a string with its length before it.
func Text(s string) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(s))), s...)
}

// Packet puts a fixed header before the parts.
func Packet(first byte, parts ...[]byte) []byte {
	body := bytes.Join(parts, nil)
	return append(binary.AppendUvarint([]byte{first}, uint64(len(body))), body...)
}

// NoProperties is an empty property list, and nothing before MQTT 5.
func NoProperties(version byte) []byte {
	if version < 5 {
		return nil
	}
	return []byte{0}
}

// Login is a CONNECT with a user and a key.
type Login struct {
	Protocol        string
	Version         byte
	Flags           byte // besides those of user and key
	KeepAlive       uint16
	ID              string
	WillTopic, Will string // no will if it is ""
	User, Key       string
}

// Packet is the login as it is sent.
func (l *Login) Packet() []byte {
	head := append(Text(l.Protocol), l.Version, l.Flags|0xc0)
	parts := [][]byte{binary.BigEndian.AppendUint16(head, l.KeepAlive), NoProperties(l.Version), Text(l.ID)}
	if l.Will != "" {
		parts = append(parts, NoProperties(l.Version), Text(l.WillTopic), Text(l.Will))
	}
	return Packet(0x10, append(parts, Text(l.User), Text(l.Key))...)
}

// Publish is a message. Of the flags, QoS 1 is 2, QoS 2 is 4, retain is 1.
func Publish(version, flags byte, id uint16, topic, payload string) []byte {
	head := Text(topic)
	if flags&6 != 0 {
		head = binary.BigEndian.AppendUint16(head, id)
	}
	return Packet(0x30|flags, head, NoProperties(version), []byte(payload))
}

// Subscribe asks for QoS 1 of each filter.
func Subscribe(version byte, id uint16, filters ...string) []byte {
	parts := [][]byte{binary.BigEndian.AppendUint16(nil, id), NoProperties(version)}
	for _, f := range filters {
		parts = append(parts, Text(f), []byte{1})
	}
	return Packet(0x82, parts...)
}
