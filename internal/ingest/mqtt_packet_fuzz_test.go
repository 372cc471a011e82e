package ingest

import (
	"bytes"
	"testing"
	"unicode/utf8"

	"example.org/carstate/internal/vehicle"
)

// FuzzMQTTPackets requires that what is accepted is well formed.
func FuzzMQTTPackets(f *testing.F) {
	f.Add(byte(4), byte(0x32), []byte("\x00\x15vehicles/V1/telemetry\x00\x01{}"))
	f.Add(byte(5), byte(0x32), []byte("\x00\x15vehicles/V1/telemetry\x00\x01\x07\x26\x00\x01k\x00\x01v{}"))
	f.Add(byte(5), byte(0x82), []byte("\x00\x01\x00\x00\x01#\x01"))
	f.Add(byte(5), byte(0x10), []byte("\x00\x04MQTT\x05\xc6\x00\x1e\x00\x00\x02id\x00\x00\x01t\x00\x01m\x00\x03car\x00\x03key"))
	f.Fuzz(func(t *testing.T, version, first byte, body []byte) {
		before := bytes.Clone(body)
		if p, code := parsePublish(4+version%2, first, body); code == 0 {
			if !utf8.Valid(p.topic) || p.qos > 2 || (p.qos == 0) != (p.id == 0) || !bytes.HasSuffix(body, p.payload) ||
				!bytes.HasPrefix(body[2:], p.topic) {
				t.Errorf("accepted the PUBLISH %+v", p)
			}
			if id, ok := vehicleOf(string(p.topic)); ok && (string(p.topic) != "vehicles/"+string(id)+"/telemetry" ||
				len(id) == 0 || len(id) > vehicle.MaxReportingID) {
				t.Errorf("%q names the vehicle %q", p.topic, id)
			}
		}
		if c, code := parseConnect(body); code == 0 && (c.version != 4 && c.version != 5 ||
			!utf8.Valid(c.id) || len(c.id) > maxClientID ||
			!utf8.Valid(c.user) || !bytes.Contains(body, c.password)) {
			t.Errorf("accepted the CONNECT %+v", c)
		}
		if id, n, code := parseFilters(4+version%2, first, body); code == 0 && (id == 0 || n == 0 || n > len(body)/3) {
			t.Errorf("accepted %d filters with packet ID %d", n, id)
		}
		if !bytes.Equal(body, before) {
			t.Error("the packet was changed")
		}
	})
}
