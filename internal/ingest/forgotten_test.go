package ingest_test

import (
	"testing"

	"example.org/carstate/internal/ingest"
	"example.org/carstate/internal/vehicle"
)

// A source that may not write for the vehicle does not learn that it was forgotten.
func TestForgottenIsRefused(t *testing.T) {
	f := newFixture(t)
	f.Forgotten = func(id vehicle.ID) bool { return id == "V2" || id == "V9" }
	_, url := startHTTP(t, f)
	const why = `the vehicle was forgotten: its samples are refused until the operator allows it again`
	for _, r := range []request{
		{body: sampleLine("V1", 1, 1) + "\n" + sampleLine("V2", 1, 2), status: 202,
			answer: `{"accepted":1,"rejected":[{"line":2,"reason":"` + why + `"}]}`},
		{body: sampleLine("V2", 2, 2), status: 403, wants: "WWW-Authenticate:",
			answer: `{"accepted":0,"rejected":[{"line":1,"reason":"` + why + `"}]}`},
		{body: sampleLine("V9", 2, 2), status: 403,
			answer: `{"accepted":0,"rejected":[{"line":1,"reason":"the source may not send data of this vehicle"}]}`},
	} {
		r.send(t, url, f.key)
	}
	f.wantMetric(t, 2, "carstate_samples_refused_total", "protocol", "http", "reason", "forgotten")
	f.store.wants(t, "V1 1")
}

func TestMQTTRefusesVehicles(t *testing.T) {
	for _, c := range []struct {
		reason string
		code   byte
		refuse func(*ingest.Config)
	}{
		{"forgotten", 0x87, func(c *ingest.Config) { c.Forgotten = func(id vehicle.ID) bool { return id == "V2" } }},
		{"vehicle_limit", 0x97, func(c *ingest.Config) { c.Admit = func(id vehicle.ID) bool { return id == "V1" } }},
	} {
		t.Run(c.reason, func(t *testing.T) {
			bothVersions(t, func(t *testing.T, version byte) {
				f := newFixture(t)
				c.refuse(&f.Config)
				_, car := startMQTTClient(t, f, version)
				const topicV2 = "vehicles/V2/telemetry"
				car.publish(0, 0, topicV2, sampleLine("V2", 1, 1)) // only counted
				car.publish(2, 1, topicV1, sampleLine("V1", 1, 1))
				car.wantPuback(1, 0)
				car.publish(2, 2, topicV2, sampleLine("V2", 1, 1))
				car.wantPuback(2, map[byte]byte{5: c.code}[version])
				car.publish(2, 3, topicV1, sampleLine("V1", 2, 2))
				car.wantPuback(3, 0)
				f.store.wants(t, "V1 1", "V1 2")
				f.wantMetric(t, 2, "carstate_samples_refused_total", "protocol", "mqtt", "reason", c.reason)
			})
		})
	}
}

// A sample without a known signal adds no vehicle.
func TestNewVehiclesBeyondTheBoundAreRefused(t *testing.T) {
	f := newFixture(t)
	f.Admit = func(id vehicle.ID) bool { return id == "V1" }
	_, url := startHTTP(t, f)
	const why = `a new vehicle beyond the limit of vehicles: the operator can raise --max-vehicles`
	for _, r := range []request{
		{body: sampleLine("V1", 1, 1) + "\n" + sampleLine("V2", 1, 2) + "\n" + sampleLine("V1", 2, 2), status: 202,
			answer: `{"accepted":2,"rejected":[{"line":2,"reason":"` + why + `"}]}`},
		{body: sampleLine("V2", 2, 2), status: 403, answer: `{"accepted":0,"rejected":[{"line":1,"reason":"` + why + `"}]}`},
		{body: `{"vid":"V2","time":1795147200250,"signals":{"Unknown.Signal":1}}`, status: 202,
			answer: `{"accepted":1,"rejected":[],"ignored":["Unknown.Signal"]}`},
	} {
		r.send(t, url, f.key)
	}
	f.wantMetric(t, 2, "carstate_samples_refused_total", "protocol", "http", "reason", "vehicle_limit")
	f.store.wants(t, "V1 1", "V1 2")
}
