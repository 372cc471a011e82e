package ingest_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/format"
	"example.org/carstate/internal/test/testkit"
)

func (f *fixture) mappedSource(t *testing.T, name, text string, v access.Vehicles) (key string) {
	t.Helper()
	mapping, err := format.Parse(text)
	testkit.NoError(t, err)
	_, key = f.addSource(t, access.Credential{Name: name, Vehicles: v, Format: mapping})
	return key
}

const traccarBody = `{"position":{"fixTime":"2026-11-20T04:00:01Z","valid":true,"speed":%d},"device":{"uniqueId":"%s"}}`

func TestHTTPMapped(t *testing.T) {
	f := newFixture(t)
	keys := map[string]string{"": f.key}
	for _, name := range []string{"traccar", "owntracks", "torque", "viss", "lenient"} {
		keys[name] = f.mappedSource(t, name, name, access.AllVehicles())
	}
	keys["one"] = f.mappedSource(t, "one", "viss", access.VehicleSet("V1"))
	_, url := startHTTP(t, f)
	const sameVID = "another vehicle of this source already has this vid without its other characters: " +
		"the operator can give the mapping a table, or clean: hash"
	const keyInAddress = "a key in the address is accepted only for a source of a format such as torque: " +
		"send it as Authorization: Bearer KEY"
	const notObject = `a sample is one JSON object, such as {"vid":"V","time":1795147200250,"signals":{"Vehicle.Speed":12.4}}`
	query := "?eml=a&session=1&id=V1&time=1795147201000&kd=%s&key=" + keys["torque"]
	for _, c := range []struct {
		source string
		request
	}{
		{"traccar", request{header: "Content-Type: application/json", body: fmt.Sprintf(traccarBody, 10, "V-1"), status: 202,
			answer: `{"accepted":1,"rejected":[]}`}},
		{"traccar", request{header: "Content-Type: text/plain", body: fmt.Sprintf(traccarBody, 20, "V1"), status: 400,
			answer: `{"accepted":0,"rejected":[{"line":1,"reason":"` + sameVID + `"}]}`}},
		{"traccar", request{body: "[" + fmt.Sprintf(traccarBody, 30, "V-1") + ",\n" + fmt.Sprintf(traccarBody, -1, "V2") + "]",
			status: 202, answer: `{"accepted":2,"rejected":[],"unused":[{"signal":"Vehicle.Speed","reason":"` +
				"is not available: it is null, or a number that means so" + `","count":1}]}`}},
		{"traccar", request{header: "Content-Encoding: gzip", body: zip(fmt.Sprintf(traccarBody, 40, "V-1")), status: 202}},
		{"traccar", request{body: `{"event":1}`, status: 202, answer: `{"accepted":1,"rejected":[]}`}},
		{"traccar", request{body: `{`, status: 400, answer: `{"accepted":0,"rejected":[{"line":1,"reason":"` +
			`the message is not valid JSON"}]}`}},
		{"traccar", request{body: " ", status: 400, answer: `{"error":"the body has no sample"}`}},
		{"traccar", request{body: strings.Repeat(" ", maxMapped+1), status: 413,
			answer: `{"error":"a body in the format of this source is larger than 1 MiB"}`}},
		{"traccar", request{body: strings.Repeat("[]", 100) + strings.Repeat("1 ", maxSamples+1), status: 413}},
		{"traccar", request{body: strings.ReplaceAll(fmt.Sprintf(traccarBody, 1, "V1"), "2026", "2036"), status: 400,
			answer: `{"accepted":0,"rejected":[{"line":1,"reason":"time is 315619191 s ahead of this service's clock, more than 30 s: check the sender's clock and time zone"}]}`}},
		{"owntracks", request{header: "Content-Type: application/json", status: 200, answer: "[]",
			body: `{"_type":"location","tst":1795147201,"vel":50,"topic":"owntracks/V/2"}`}},
		{"owntracks", request{header: "Content-Type: application/json", status: 200, answer: "[]", body: `{"_type":"status"}`}},
		{"", request{header: "Content-Type: application/json\nAuthorization: Basic " +
			base64.StdEncoding.EncodeToString([]byte("owntracks:"+keys["owntracks"])), status: 200, body: `{"_type":"status"}`}},
		{"", request{header: "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("car:"+f.key)), status: 401}},
		{"one", request{body: `{"data":{"path":"Vehicle.Speed","dp":{"value":"60","ts":"2026-11-20T04:00:02Z"}}}`, status: 202}},
		{"viss", request{body: `{"data":{"path":"Vehicle.Speed","dp":{"value":"60","ts":"2026-11-20T04:00:02Z"}}}`, status: 400}},
		{"lenient", request{body: `{"vid":"V1","time":"1795147203000","signals":{"Vehicle.Speed":"70"}}`, status: 202}},

		{"torque", request{method: "GET", path: telemetryPath + fmt.Sprintf(query, "47"), header: "Authorization:",
			status: 200, answer: "OK!"}},
		{"torque", request{method: "GET", path: telemetryPath + "?key=" + keys["torque"] + "?id=V1&time=1795147202000&kd=48",
			header: "Authorization:", status: 200, answer: "OK!"}},
		{"torque", request{method: "GET", path: telemetryPath + "?id=V1&time=1795147203000&kd=49", status: 200, answer: "OK!"}},
		{"torque", request{method: "GET", path: telemetryPath + "?id=V1&kd=49", status: 400}},
		{"torque", request{method: "GET", path: telemetryPath + "?key=" + mistyped(keys["torque"]), header: "Authorization:",
			status: 401}},
		{"", request{method: "GET", path: telemetryPath + "?key=" + f.key, header: "Authorization:", status: 401,
			answer: `{"error":"` + keyInAddress + `"}`}},
		{"", request{path: telemetryPath + "?key=" + f.key, header: "Authorization:", body: sampleLine("V1", 1, 1), status: 401}},
		{"traccar", request{method: "GET", path: telemetryPath + "?id=V1", status: 405}},

		{"", request{header: "Content-Type: application/json", status: 202,
			body:   " \n[" + sampleLine("V1", 11, 1) + ",\r\n" + sampleLine("V2", 11, 2) + "]",
			answer: `{"accepted":2,"rejected":[]}`}},
		{"", request{header: "Content-Type: application/json", status: 202,
			body: "[" + sampleLine("V1", 12, 3) + `,7,"]\",[{",` + sampleLine("V1", 13, 4) + "",
			answer: `{"accepted":2,"rejected":[{"line":2,"reason":` + fmt.Sprintf("%q", notObject) + `},{"line":3,` +
				`"reason":` + fmt.Sprintf("%q", notObject) + `},{"line":5,"reason":"the JSON ends early"}]}`}},
		{"", request{header: "Content-Type: application/json", body: "[]", status: 400}},
		{"", request{header: "Content-Type: application/json\nContent-Encoding: gzip",
			body: zip("[" + sampleLine("V2", 14, 5) + "] x"), status: 202,
			answer: `{"accepted":1,"rejected":[{"line":2,"reason":"the line is not valid JSON from byte 1 on"}]}`}},
		{"", request{header: "Content-Type: application/jsonl; charset=utf-8", body: sampleLine("V1", 15, 6), status: 202}},
		{"", request{header: "Content-Type: application/ndjson", body: sampleLine("V1", 16, 7), status: 202}},
		{"", request{header: "Content-Type: application/cloudevents+json", status: 202,
			body: `{"specversion":"1.0","id":"1","source":"/g","type":"t","data":` + sampleLine("V1", 17, 8) + `}`}},
		{"", request{header: "Content-Type: application/cloudevents-batch+json", status: 202,
			body: `[{"specversion":"1.0","id":"1","source":"/g","type":"t","data":` + sampleLine("V1", 18, 9) + `}]`}},
		{"", request{header: "Content-Type: application/cloudevents+json", body: `{"data":{"vid":"V1"}}`, status: 400,
			answer: `{"accepted":0,"rejected":[{"line":1,"reason":"time is missing` + members + `"}]}`}},
		{"", request{header: "Content-Type: application/cloudevents+json", body: `{"datas":1}`, status: 400}},
	} {
		c.send(t, url, keys[c.source])
	}
	f.store.wants(t, "V1 18.52", "V1 55.56", "V1 74.08", "V2 50", "V1 60", "V1 70", "V1 0", "V1 0", "V1 0",
		"V1 1", "V2 2", "V1 3", "V1 4", "V2 5", "V1 6", "V1 7", "V1 8", "V1 9")
}

func TestMQTTMapped(t *testing.T) {
	bothVersions(t, func(t *testing.T, version byte) {
		f := newFixture(t)
		tracks := f.mappedSource(t, "tracks", "owntracks", access.VehicleSet("V1"))
		_, addr := startMQTT(t, f.Config)
		c := dialRaw(t, addr, version).logIn("tracks", tracks)
		c.publish(2, 1, "owntracks/V/1", `{"_type":"location","tst":1795147201,"vel":50}`)
		c.wantPuback(1, 0)
		c.publish(2, 2, "owntracks/V/1", `{"_type":"lwt","tst":1795147201}`)
		c.wantPuback(2, 0)
		c = dialRaw(t, addr, version).logIn("tesla", f.mappedSource(t, "tesla", "tesla", access.AllVehicles()))
		c.publish(2, 3, "telemetry/V2/v/VehicleSpeed", "10")
		c.wantPuback(3, 0)
		c = dialRaw(t, addr, version).logIn("viss", f.mappedSource(t, "viss", "viss", access.AllVehicles()))
		c.publish(2, 4, topicV1, `{"data":{"path":"Vehicle.Speed","dp":{"value":"60","ts":"2026-11-20T04:00:02Z"}}}`)
		c.wantPuback(4, 0)
		f.login(t, addr, version).publish(2, 5, topicV1, "["+sampleLine("V1", 5, 1)+","+sampleLine("V1", 6, 2)+"]")
		testkit.Await(t, "an array is stored", func() bool { return len(f.store.describe()) == 5 })
		f.store.wants(t, "V1 50", "V2 16.09344", "V1 60", "V1 1", "V1 2")
		if version < 5 {
			return
		}
		c = dialRaw(t, addr, version).logIn("tracks", tracks)
		for i, topic := range []string{topicV1, "owntracks/V", "owntracks/V/1/event"} {
			c.publish(2, uint16(i+8), topic, `{}`)
			c.wantPuback(uint16(i+8), 0x90)
		}
		if g, _ := f.Sources.Get("tracks"); !strings.HasSuffix(g.Seen().Text, `takes "owntracks/+/+"`) {
			t.Errorf(`the last refusal: got %q, want one with takes "owntracks/+/+"`, g.Seen().Text)
		}
		c.publish(2, 7, "owntracks/V/2", `{"_type":"location","tst":1795147201,"vel":50}`)
		c.wantPuback(7, 0x99)
	})
}
