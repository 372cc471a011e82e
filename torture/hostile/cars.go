package hostile

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"
)

// hostileCar writes what no car would send. It belongs to a source that is known
// and speaks for ownCars.
type hostileCar struct {
	*writer
	source, key string
}

// ownCars and victims are vehicles that the hostile source speaks for, and that
// nobody does: of these nothing may ever be known.
func ownCar(i int) string { return fmt.Sprintf("Own%d", i%10) }
func victim(i int) string { return fmt.Sprintf("Victim%d", i%10) }

// connection is all that one hostile car sends.
func (h *hostileCar) connection() *sent {
	s := &sent{version: byte(4 + h.IntN(2)), good: make(map[uint16]bool)}
	l := login{protocol: "MQTT", version: s.version, flags: 2, keepAlive: uint16(h.IntN(700)), id: pick(h.writer, "same", "same", h.text(8), ""), user: h.source, key: h.key}
	s.known = true
	if h.chance(4) {
		h.spoilLogin(&l, s)
	}
	s.stream = l.bytes()
	for n := h.IntN(12); n > 0; n-- {
		s.stream = append(s.stream, h.packet(s)...)
	}
	if h.chance(3) {
		s.any = true
		at := 0
		if h.chance(2) { // the login stays as it is
			at = len(l.bytes())
		}
		s.stream = append(s.stream[:at:at], h.mutate(slices.Clone(s.stream[at:]))...)
	}
	return s
}

// spoilLogin changes one thing of a CONNECT.
func (h *hostileCar) spoilLogin(l *login, s *sent) {
	switch h.IntN(9) {
	case 0:
		l.protocol, l.version = pick(h.writer, "MQIsdp", "mqtt", "", "MQTT\x00", "HTTP", long(300)), pick(h.writer, byte(3), 4, 5)
	case 1:
		l.version = pick(h.writer, byte(0), 1, 2, 3, 6, 131, 255)
	case 2:
		l.flags = pick(h.writer, byte(0x03), 0x3e, 0x1e, 0x20, 0x06, 0x36)
	case 3:
		l.will, l.flags = true, 0x0e|pick(h.writer, byte(0), 0x20)
		if h.chance(4) {
			l.flags |= 0x18 // QoS 3
		}
	case 4:
		l.id = pick(h.writer, long(20_000), "a\x00b", "\xff\xfe", "\"}\n{\"level\":\"ERROR\",\"msg\":\"owned\"}", "../../x", "$share")
	case 5:
		l.key, s.known = pick(h.writer, h.key[:len(h.key)-1]+"!", "", long(20_000), "css_"+h.text(36), "\n\n"), false
	case 6:
		l.user, s.known = pick(h.writer, "honest", "", "\"}\n{\"level\":\"ERROR\",\"msg\":\"owned\"}", "\x1b[31m", long(5000), "root"), false
	case 7:
		l.key, s.known = pick(h.writer, h.tokens...).secret, false
	case 8:
		l.id, l.flags = "", 0 // no ID, and a session to keep
	}
	s.version = l.version
}

// packet is one packet after the login, and notes whether it may be acknowledged.
func (h *hostileCar) packet(s *sent) []byte {
	id := uint16(1 + h.IntN(65535))
	now := time.Now().UnixMilli()
	own := ownCar(h.IntN(10))
	flags := pick(h.writer, byte(2), 2, 3, 10)
	switch h.IntN(16) {
	case 0, 1:
		s.good[id] = true
		return publish(s.version, flags, id, topic(own), reading(own, now))
	case 2:
		vid := victim(h.IntN(10))
		return publish(s.version, flags, id, topic(vid), pick(h.writer, reading(vid, now), reading(own, now)))
	case 3:
		return publish(s.version, flags, id, topic(own), reading(victim(1), now))
	case 4:
		return publish(s.version, flags, id, pick(h.writer, "#", "vehicles/+/telemetry", "$SYS/broker/uptime", topic(own)+"/x", "", long(60_000), "vehicles/a\x00b/telemetry", "vehicles/\xff/telemetry",
			"vehicles/../telemetry", "vehicles//telemetry", "VEHICLES/"+own+"/TELEMETRY", "$share/g/"+topic(own), "telemetry.0", topic(long(257))), reading(own, now))
	case 5:
		return publish(s.version, pick(h.writer, byte(4), 5, 6, 7, 12), id, topic(own), reading(victim(2), now))
	case 6:
		return subscribe(s.version, id, pick(h.writer, "#", "+/+/+", topic("+"), "$SYS/#", "$share/g/#", topic(own), "a/#/b", "", "\xff", "a\x00b"), "#")
	case 7:
		return subscribe(s.version, id)
	case 8:
		filters := make([]string, 400)
		for i := range filters {
			filters[i] = topic(victim(i)) + fmt.Sprint(i)
		}
		return subscribe(s.version, id, filters...)
	case 9:
		return pick(h.writer, frame(0xc0), frame(0xc1, []byte("x")), frame(0xa2, binary.BigEndian.AppendUint16(nil, id), noProperties(s.version), text("#")), frame(0x40, []byte{0, 1}), frame(0x50, []byte{0, 1}),
			frame(0x62, []byte{0, 1}), frame(0x70, []byte{0, 1}), frame(0x00), frame(0xf0), frame(0xf0, []byte{0x18, 0}), frame(0x20, []byte{0, 0}), frame(0x80, text("#")), (&login{protocol: "MQTT", version: s.version, flags: 2, user: h.source, key: h.key}).bytes())
	case 10:
		return pick(h.writer, []byte{0x32, 0xff, 0xff, 0xff, 0x7f}, []byte{0x32, 0xff, 0xff, 0xff, 0xff, 0x01}, []byte{0x32, 0x80, 0x80, 0x80, 0x80, 0x80}, []byte{0x82, 0xff, 0xff, 0xff, 0x7f}, []byte{0x32, 0x01}, []byte{0x10, 0xff, 0xff, 0x7f})
	case 11:
		return publish(s.version, flags, id, topic(own), pick(h.writer, "", "{", "null", strings.Repeat("[", 20_000), `{"vid":1}`, "\xff\xfe", `{"time":1,"signals":{}}`, long(70_000), "\n\n\n", `{"vid":"`+own+`","time":9999999999999,"signals":{"Vehicle.Speed":1e999}}`))
	case 12:
		head := append(text(topic(own)), byte(id>>8), byte(id))
		return frame(0x32, head, pick(h.writer, []byte{0xff, 0xff, 0xff, 0x7f}, []byte{3, 0x23, 0, 0}, []byte{3, 0x23, 0xff, 0xff}, []byte{2, 0x7e, 1}, []byte{5, 0x26, 0, 9, 'a', 'b'}, []byte{1}, []byte{0x80, 0x80, 0x80, 0x80, 0x80}), []byte(reading(victim(3), now)))
	case 13:
		var properties []byte
		for len(properties) < 12_000 {
			properties = append(append(append(properties, 0x26), text("k"+h.text(20))...), text("v")...)
		}
		return frame(0x32, text(topic(victim(4))), []byte{byte(id >> 8), byte(id)}, binary.AppendUvarint(nil, uint64(len(properties))), properties, []byte(reading(victim(4), now)))
	case 14:
		if !h.chance(8) {
			return frame(0xc0)
		}
		return publish(s.version, 2, id, topic(own), long(1<<20)) // more than a packet may have
	default:
		return publish(s.version, 2, 0, topic(own), reading(victim(5), now)) // no packet has the ID 0
	}
}

// upload is one HTTP request to the listener of telemetry, and whether any of it
// may be accepted.
func (h *hostileCar) upload() (stream []byte, mayAccept bool) {
	now := time.Now().UnixMilli()
	own := ownCar(h.IntN(10))
	r := &request{method: "POST", target: "/v1/telemetry", version: "HTTP/1.1", body: reading(own, now) + "\n"}
	key, kind, length := h.key, "application/x-ndjson", true
	mayAccept = true
	switch h.IntN(16) {
	case 0:
		r.method, mayAccept = pick(h.writer, "GET", "PUT", "DELETE", "OPTIONS", "PATCH", "post"), false
	case 1:
		r.target, mayAccept = pick(h.writer, "/", "/v1/telemetry/", "/v1/../v1/telemetry", "//v1/telemetry", "/v1/%74elemetry", "/metrics", "/debug/pprof/"), false
	case 2:
		key, mayAccept = pick(h.writer, "", "x", pick(h.writer, h.tokens...).secret, "css_"+h.text(36), long(9000), "\xff"), false
	case 3:
		r.body, mayAccept = reading(victim(h.IntN(10)), now), false
	case 4:
		r.body, mayAccept = pick(h.writer, "", "{", "null", "[]", strings.Repeat("[", 50_000), "\xff\xfe", "{}\n{}\n", `{"vid":"`+own+`","vid":"Victim1","time":1,"signals":{}}`, "\x1b[31m\n", long(70_000)), false
	case 5:
		if h.chance(10) {
			r.body, mayAccept = strings.Repeat(reading(own, now)+"\n", 10_001), false
		}
	case 6:
		if h.chance(10) {
			r.body, mayAccept = strings.Repeat(" ", 9<<20), false
		}
	case 7:
		kind, mayAccept = pick(h.writer, "", "text/plain", "application/xml", "multipart/form-data; boundary=x", "application/x-ndjson\x00", "a/b; c=\"\n"), false
	case 8:
		r.headers, mayAccept = append(r.headers, "Content-Encoding: "+pick(h.writer, "gzip", "br", "gzip, gzip", "identity, x", "GZIP")), false
	case 9:
		length, mayAccept = false, false
		r.headers = append(r.headers, "Content-Length: "+pick(h.writer, "-1", "+5", "x", "99999999999999999999", "9000000000", "5, 5"))
	case 10:
		length, mayAccept = false, false
		r.headers = append(r.headers, "Transfer-Encoding: chunked")
		r.body = pick(h.writer, "zz\r\n", "ffffffffffffffffff\r\n", "5\r\nhel", "-1\r\n", "0\r\n\r\n", "5;"+long(6000)+"\r\nhello\r\n0\r\n\r\n")
	case 11:
		r.headers = append(r.headers, "Expect: 100-continue")
	case 12:
		r.headers = append(r.headers, "X: "+long(40_000))
		mayAccept = false
	}
	r.headers = append(r.headers, "Host: localhost", "Authorization: Bearer "+key, "Content-Type: "+kind, "Connection: close")
	if length {
		r.headers = append(r.headers, fmt.Sprintf("Content-Length: %d", len(r.body)))
	}
	stream = r.bytes()
	if h.chance(4) {
		return h.mutate(stream), true
	}
	return stream, mayAccept
}
