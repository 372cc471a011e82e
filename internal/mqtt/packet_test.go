package mqtt_test

import (
	"bytes"
	"testing"
	"unicode/utf8"

	"example.org/carstate/internal/mqtt"
)

// FuzzMQTTPackets requires that what is accepted is well formed.
func FuzzMQTTPackets(f *testing.F) {
	f.Add(byte(4), byte(0x32), []byte("\x00\x15vehicles/V1/telemetry\x00\x01{}"))
	f.Add(byte(5), byte(0x32), []byte("\x00\x15vehicles/V1/telemetry\x00\x01\x07\x26\x00\x01k\x00\x01v{}"))
	f.Add(byte(5), byte(0x82), []byte("\x00\x01\x00\x00\x01#\x01"))
	f.Add(byte(5), byte(0x10), []byte("\x00\x04MQTT\x05\xc6\x00\x1e\x00\x00\x02id\x00\x00\x01t\x00\x01m\x00\x03car\x00\x03key"))
	f.Fuzz(func(t *testing.T, version, first byte, body []byte) {
		before := bytes.Clone(body)
		if p, code := mqtt.ParsePublish(4+version%2, first, body); code == 0 {
			if !utf8.Valid(p.Topic) || p.QoS > 2 || (p.QoS == 0) != (p.ID == 0) || !bytes.HasSuffix(body, p.Payload) ||
				!bytes.HasPrefix(body[2:], p.Topic) {
				t.Errorf("the PUBLISH: got %+v accepted, want a valid one", p)
			}
		}
		if c, code := mqtt.ParseConnect(body); code == 0 && (c.Version != 4 && c.Version != 5 ||
			!utf8.Valid(c.ID) || len(c.ID) > 1024 ||
			!utf8.Valid(c.User) || !bytes.Contains(body, c.Password)) {
			t.Errorf("the CONNECT: got %+v accepted, want a valid one", c)
		}
		if a, code := mqtt.RefuseFilters(4+version%2, first, body); code == 0 && (len(body) < 5 || body[0]|body[1] == 0 || len(a) > 8+len(body)/3) {
			t.Errorf("the filters % x: got % x accepted, want valid ones", body, a)
		}
		if !bytes.Equal(body, before) {
			t.Errorf("the packet: got % x, want % x", body, before)
		}
	})
}
