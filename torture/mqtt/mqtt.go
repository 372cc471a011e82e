// Package mqtt encodes packets that a client library would refuse.
package mqtt

import (
	"bytes"
	"encoding/binary"
)

func Text(s string) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(s))), s...)
}

func Packet(first byte, parts ...[]byte) []byte {
	body := bytes.Join(parts, nil)
	return append(binary.AppendUvarint([]byte{first}, uint64(len(body))), body...)
}

func NoProperties(version byte) []byte {
	if version < 5 {
		return nil
	}
	return []byte{0}
}

type Login struct {
	Protocol        string
	Version         byte
	Flags           byte // besides those of user name and key
	KeepAlive       uint16
	ID              string
	WillTopic, Will string
	User, Key       string
}

func (l *Login) Packet() []byte {
	head := append(Text(l.Protocol), l.Version, l.Flags|0xc0)
	parts := [][]byte{binary.BigEndian.AppendUint16(head, l.KeepAlive), NoProperties(l.Version), Text(l.ID)}
	if l.Will != "" {
		parts = append(parts, NoProperties(l.Version), Text(l.WillTopic), Text(l.Will))
	}
	return Packet(0x10, append(parts, Text(l.User), Text(l.Key))...)
}

// Flags: 1 is retain, 2 is QoS 1, 4 is QoS 2.
func Publish(version, flags byte, id uint16, topic, payload string) []byte {
	head := Text(topic)
	if flags&6 != 0 {
		head = binary.BigEndian.AppendUint16(head, id)
	}
	return Packet(0x30|flags, head, NoProperties(version), []byte(payload))
}

func Subscribe(version byte, id uint16, filters ...string) []byte {
	parts := [][]byte{binary.BigEndian.AppendUint16(nil, id), NoProperties(version)}
	for _, f := range filters {
		parts = append(parts, Text(f), []byte{1})
	}
	return Packet(0x82, parts...)
}
