package ingest_test

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"example.org/carstate/internal/test/testkit"
)

// MQTT 3.1.1 has an answer only to a wrong protocol level, which a bridge needs.
func TestMQTT_Connect(t *testing.T) {
	f := newFixture(t)
	_, addr := startMQTT(t, f.Config)
	login := slices.Concat(field("car"), field(f.key))
	id, will := field("id"), slices.Concat(field(topicV1), field(sampleLine("V1", 1, 1)))
	other := func(name string, level, flags byte, parts ...[]byte) []byte {
		return append(append(field(name), level, flags, 0, 30), slices.Concat(parts...)...)
	}
	v4 := func(flags byte, parts ...[]byte) []byte { return other("MQTT", 4, flags, parts...) }
	v5 := func(flags byte, parts ...[]byte) []byte { return other("MQTT", 5, flags, parts...) }
	properties := func(p ...byte) []byte { return append([]byte{byte(len(p))}, p...) }
	none := properties()
	limits := []byte{0x21, 0, 128, 0x24, 1, 0x27, 0, 0x10, 0, 0}
	codeOnly := func(code byte) []byte { return []byte{0x20, 2, 0, code} }
	assigned := append([]byte{0x20, 42, 0, 0, 39}, append(limits, 0x12, 0, 26)...) // and a client ID
	refused := func(code byte) []byte { return []byte{0x20, 3, 0, code, 0} }
	accepted := func(p ...byte) []byte { return packet(0x20, []byte{0, 0, byte(len(limits) + len(p))}, limits, p) }
	for name, tt := range map[string]struct {
		sent   []byte
		answer []byte // how it begins; nil: none
	}{
		"3.1.1":                         {v4(0xc2, id, login), codeOnly(0)},
		"3.1.1, session kept":           {v4(0xc0, id, login), codeOnly(0)},
		"3.1.1, no client ID":           {v4(0xc2, field(""), login), codeOnly(0)},
		"3.1.1, no client ID but state": {v4(0xc0, field(""), login), codeOnly(2)},
		"3.1.1, will with QoS 2":        {v4(0xf6, id, will, login), codeOnly(0)},
		"3.1.1, no login":               {v4(2, id), codeOnly(5)},
		"3.1.1, no user":                {v4(0x42, id, field(f.key)), nil},
		"5":                             {v5(0xc2, none, id, login), accepted()},
		"5, session kept":               {v5(0xc0, properties(0x11, 0, 0, 0, 9), id, login), accepted(0x11, 0, 0, 0, 0)},
		"5, no keep-alive":              {slices.Concat(v5(0xc2)[:8], []byte{0, 0}, none, id, login), accepted(0x13, 2, 88)},
		"5, no client ID":               {v5(0xc2, none, field(""), login), assigned},
		"5, will":                       {v5(0xee, none, id, properties(0x18, 0, 0, 0, 9), will, login), accepted()},
		"5, will with QoS 2":            {v5(0xd6, none, id, none, will, login), refused(0x9b)},
		"5, no user":                    {v5(0x42, none, id, field(f.key)), refused(0x86)},
		"5, authentication method":      {v5(0xc2, properties(0x15, 0, 1, 'x'), id, login), refused(0x8c)},
		"5, property twice":             {v5(0xc2, properties(0x22, 0, 1, 0x22, 0, 1), id, login), refused(0x82)},
		"5, receive maximum of 0":       {v5(0xc2, properties(0x21, 0, 0), id, login), refused(0x82)},
		"5, property of another packet": {v5(0xc2, properties(0x23, 0, 1), id, login), refused(0x81)},
		"5, properties cut off":         {v5(0xc2, []byte{9, 0x22}), refused(0x81)},
		"3.1":                           {other("MQIsdp", 3, 0xc2, id, login), codeOnly(1)},
		"a bridge of 3.1":               {other("MQIsdp", 0x83, 0xc2, id, login), codeOnly(1)},
		"a bridge of 3.1.1":             {other("MQTT", 0x84, 0xc2, id, login), codeOnly(1)},
		"a level of the future":         {other("MQTT", 6, 0xc2, none, id, login), codeOnly(1)},
		"another protocol":              {other("hj", 4, 0xc2, id, login), nil},
		"reserved flag":                 {v4(0xc3, id, login), nil},
		"QoS of a will, and no will":    {v4(0xca, id, login), nil},
		"QoS 3 of the will":             {v4(0xde, id, will, login), nil},
		"more bytes":                    {v4(0xc2, id, login, []byte{0}), nil},
		"client ID is no UTF-8":         {v4(0xc2, field("\xff"), login), nil},
		"client ID with U+0000":         {v5(0xc2, none, field("a\x00"), login), refused(0x81)},
		"client ID is too long":         {v4(0xc2, field(strings.Repeat("a", maxClientID+1)), login), codeOnly(2)},
	} {
		t.Run(name, func(t *testing.T) {
			c := dialRaw(t, addr, 4)
			c.write(packet(0x10, tt.sent))
			first, body, err := c.tryRead()
			got := append(binary.AppendUvarint([]byte{first}, uint64(len(body))), body...)
			if tt.answer == nil {
				if err == nil {
					t.Errorf("got % x, want no answer", got)
				}
				return
			}
			if err == nil && len(body) > 2 && body[1] != 0 { // MQTT 5: a reason string
				got = []byte{first, 3, body[0], body[1], 0}
			}
			if !bytes.HasPrefix(got, tt.answer) {
				t.Errorf("got % x, %v, want % x", got, err, tt.answer)
			}
			if tt.answer[3] == 0 {
				c.wantPong()
			} else {
				c.wantClosed(0)
			}
		})
	}
	testkit.Await(t, "all connections have ended", func() bool { return f.metric(t, "carstate_mqtt_connections") == 0 })
	f.store.wants(t) // wills are dropped
}

func TestMQTT_Packets(t *testing.T) {
	sample := []byte(sampleLine("V1", 1, 1))
	topic, none := field(topicV1), []byte{0}
	for name, tt := range map[string]struct {
		version byte
		sent    []byte
		answer  []byte // nil: closed, in MQTT 5 with the code
		code    byte
	}{
		"SUBSCRIBE": {4, packet(0x82, []byte{0, 9}, field("#"), []byte{0}, field("a"), []byte{2}),
			[]byte{0x90, 4, 0, 9, 0x80, 0x80}, 0},
		"SUBSCRIBE, 5": {5, packet(0x82, []byte{0, 9, 0}, field("#"), []byte{0x2d}),
			[]byte{0x90, 4, 0, 9, 0, 0x87}, 0},
		"SUBSCRIBE with an identifier": {5, packet(0x82, []byte{0, 9, 2, 0x0b, 1}, field("#"), []byte{1}),
			[]byte{0x90, 4, 0, 9, 0, 0x87}, 0},
		"UNSUBSCRIBE": {4, packet(0xa2, []byte{0, 9}, field("#")), []byte{0xb0, 2, 0, 9}, 0},
		"UNSUBSCRIBE, 5": {5, packet(0xa2, []byte{0, 9, 0}, field("#"), field("a")),
			[]byte{0xb0, 5, 0, 9, 0, 0x11, 0x11}, 0},
		"PUBREL, 5": {5, []byte{0x62, 2, 0, 9}, []byte{0x70, 3, 0, 9, 0x92}, 0},
		"PUBLISH with all properties": {5, packet(0x3b, topic,
			[]byte("\x00\x09\x1a\x01\x01\x02\x00\x00\x00\x09\x03\x00\x01c"+
				"\x08\x00\x01t\x09\x00\x01d\x26\x00\x01k\x00\x01v"), sample),
			[]byte{0x40, 2, 0, 9}, 0},
		"too large a packet":             {5, []byte{0x82, 0x81, 0x80, 0x01}, nil, 0x95},
		"no filter":                      {5, packet(0x82, []byte{0, 9, 0}), nil, 0x82},
		"SUBSCRIBE without options":      {5, packet(0x82, []byte{0, 9, 0}, field("#")), nil, 0x81},
		"SUBSCRIBE with QoS 3":           {4, packet(0x82, []byte{0, 9}, field("#"), []byte{3}), nil, 0},
		"SUBSCRIBE without its flag":     {5, packet(0x80, []byte{0, 9, 0}, field("#"), []byte{0}), nil, 0x82},
		"SUBSCRIBE with packet ID 0":     {5, packet(0x82, []byte{0, 0, 0}, field("#"), []byte{0}), nil, 0x82},
		"second CONNECT":                 {4, packet(0x10, field("MQTT"), []byte{4, 2, 0, 30}, field("id")), nil, 0},
		"second CONNECT, 5":              {5, packet(0x10, field("MQTT"), []byte{5, 2, 0, 30, 0}, field("id")), nil, 0x82},
		"PUBACK":                         {5, []byte{0x40, 2, 0, 9}, nil, 0x82},
		"AUTH":                           {5, []byte{0xf0, 0}, nil, 0x82},
		"packet type 0":                  {5, []byte{0, 0}, nil, 0x81},
		"length of five bytes":           {5, []byte{0x32, 0xff, 0xff, 0xff, 0xff, 1}, nil, 0x81},
		"PUBREL, cut off":                {4, []byte{0x62, 1, 0}, nil, 0},
		"QoS 3":                          {5, packet(0x36, topic, []byte{0, 9}, none, sample), nil, 0x81},
		"QoS 0 again":                    {4, packet(0x38, topic, sample), nil, 0},
		"packet ID 0":                    {5, packet(0x32, topic, []byte{0, 0}, none, sample), nil, 0x82},
		"no topic":                       {5, packet(0x32, field(""), []byte{0, 9}, none, sample), nil, 0x82},
		"topic alias":                    {5, packet(0x32, topic, []byte{0, 9, 3, 0x23, 0, 1}, sample), nil, 0x94},
		"topic alias alone":              {5, packet(0x32, field(""), []byte{0, 9, 3, 0x23, 0, 1}, sample), nil, 0x94},
		"topic is no UTF-8":              {4, packet(0x32, field("\xc3"), []byte{0, 9}, sample), nil, 0},
		"topic is longer than PUBLISH":   {5, []byte{0x32, 4, 0, 9, 'a', 'b'}, nil, 0x81},
		"unknown property":               {5, packet(0x32, topic, []byte{0, 9, 2, 0x2a, 0}, sample), nil, 0x81},
		"subscription identifier":        {5, packet(0x32, topic, []byte{0, 9, 2, 0x0b, 1}, sample), nil, 0x81},
		"payload format 2":               {5, packet(0x32, topic, []byte{0, 9, 2, 1, 2}, sample), nil, 0x82},
		"properties longer than PUBLISH": {5, packet(0x32, topic, []byte{0, 9, 0x7f}, sample), nil, 0x81},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			_, c := startMQTTClient(t, f, tt.version)
			if tt.answer == nil {
				c.publish(2, 1, topicV1, string(sample))
				c.write(tt.sent)
				c.wantPuback(1, 0)
				c.wantClosed(tt.code)
				return
			}
			c.write(tt.sent)
			first, body := c.read()
			if got := append([]byte{first, byte(len(body))}, body...); !bytes.Equal(got, tt.answer) {
				t.Errorf("got % x, want % x", got, tt.answer)
			}
			c.wantPong()
		})
	}
}
