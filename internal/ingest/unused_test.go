package ingest_test

import (
	"strings"
	"testing"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/vehicle"
)

func valuesLine(signals string) string {
	return `{"vid":"V1","time":1795147200000,"signals":{` + signals + `}}`
}

func TestHTTPNamesTheValuesThatItDoesNotUse(t *testing.T) {
	f := newFixture(t)
	_, url := startHTTP(t, f)
	const (
		dark = `"reason":"is not available: it is null, or a number that means so"`
		fast = `"reason":"must be between 0 and 500 km/h"`
	)
	for _, r := range []request{
		{body: valuesLine(`"Vehicle.OBD.Speed":501,"Vehicle.Speed":2`), status: 202,
			answer: `{"accepted":1,"rejected":[],"unused":[{"signal":"Vehicle.OBD.Speed",` + fast + `,"count":1}]}`},
		// A sample without any value that can be used is accepted.
		{body: valuesLine(`"Vehicle.Speed":null`) + "\n" + valuesLine(`"Vehicle.Speed":-1,"Vehicle.OBD.Speed":501`) + "\n" +
			valuesLine(`"Vehicle.Speed":502`), status: 202,
			answer: `{"accepted":3,"rejected":[],"unused":[{"signal":"Vehicle.Speed",` + dark +
				`,"count":2},{"signal":"Vehicle.OBD.Speed",` + fast + `,"count":1},{"signal":"Vehicle.Speed",` + fast + `,"count":1}]}`},
		// Nothing is said of the values of a refused sample.
		{body: strings.Replace(valuesLine(`"Vehicle.Speed":null`), "V1", "V9", 1), status: 403,
			answer: `{"accepted":0,"rejected":[{"line":1,"reason":"` + "the source may not send data of this vehicle" + `"}]}`},
	} {
		r.send(t, url, f.key)
	}
	f.store.wants(t, "V1 2")
	f.wantMetric(t, 3, "carstate_values_unused_total", "reason", "impossible")
	f.wantMetric(t, 2, "carstate_values_unused_total", "reason", "not_available")
	g, _ := f.Sources.Get("car")
	if s := g.Seen(); s.Unused != 5 || s.Accepted != 4 {
		t.Errorf("got %d unused values of %d samples, want 5 of 4", s.Unused, s.Accepted)
	}
}

func TestMQTTNamesTheValuesThatItDoesNotUse(t *testing.T) {
	f := newFixture(t)
	_, addr := startMQTT(t, f.Config)
	client, _ := f.connectPaho(t, addr, "car", f.key, nil)
	const wants = "unknown signals: x; not used: Vehicle.Speed must be a number (2)"
	line := valuesLine(`"x":1,"Vehicle.Speed":"NO DATA"`)
	if code, reason := published(t, client, line+"\n"+line); code != 0 || reason != wants {
		t.Errorf("got code %#x, reason %q; want 0, %q", code, reason, wants)
	}
	f.wantMetric(t, 2, "carstate_values_unused_total", "protocol", "mqtt", "reason", "wrong_type")
}

func TestStrictSourceRefusesUnusedValues(t *testing.T) {
	f := newFixture(t)
	_, url := startHTTP(t, f)
	_, key := f.addSource(t, access.Credential{Name: "slow", Vehicles: f.source.Vehicles, Strict: true})
	for signals, kind := range map[string]access.Refusal{
		`"Vehicle.Speed":null,"Vehicle.OBD.Speed":2`:                                   access.NotAvailable,
		`"Vehicle.OBD.Speed":2,"Vehicle.Speed":501`:                                    access.Impossible,
		`"Vehicle.Speed":"12.4","Vehicle.OBD.Speed":2`:                                 access.WrongType,
		`"Vehicle.Speed":2,"Vehicle.OBD.DTCList":["x"]`:                                access.Impossible,
		`"Vehicle.OBD.ThrottlePosition":1,"Vehicle.Powertrain.CombustionEngine.TPS":2`: access.Duplicate,
	} {
		request{body: valuesLine(signals), status: 400}.send(t, url, key)
		if s := f.seen(t); s.Reason != kind || !strings.HasSuffix(s.Text, ", and this source is strict") {
			t.Errorf("%s: got %v: %s; want %v", signals, s.Reason, s.Text, kind)
		}
	}
	request{body: valuesLine(`"Vehicle.Speed":2,"Vehicle.OBD.EngineLoad":100.4`), status: 202}.send(t, url, key)
	f.store.wants(t, "V1 2")
	f.wantMetric(t, 0, "carstate_values_unused_total")
}

// A sample is late if every reading is older than the verdict that it serves.
func TestLateSamples(t *testing.T) {
	f := newFixture(t)
	f.Verdicts = func(vehicle.ID) (d vehicle.DrivingVerdict, t vehicle.ThrottleVerdict) {
		d.Time, t.Time = 1795147200001, 1795147199000
		return d, t
	}
	_, url := startHTTP(t, f)
	const (
		speed    = `"Vehicle.Speed":1`
		throttle = `"Vehicle.OBD.ThrottlePosition":1`
		position = `"Vehicle.CurrentLocation.Latitude":1,"Vehicle.CurrentLocation.Longitude":1`
		early    = `{"vid":"V1","time":1795147198000,"signals":{` + throttle + `}}`
	)
	for body, wants := range map[string]string{
		valuesLine(speed):                             `{"accepted":1,"rejected":[],"late":1}`,
		valuesLine(throttle):                          `{"accepted":1,"rejected":[]}`,
		valuesLine(speed + "," + throttle):            `{"accepted":1,"rejected":[]}`,
		valuesLine(position):                          `{"accepted":1,"rejected":[]}`,
		valuesLine(speed+","+position) + "\n" + early: `{"accepted":2,"rejected":[],"late":2}`,
		sampleLine("V1", 1, 1):                        `{"accepted":1,"rejected":[]}`,
	} {
		request{body: body, status: 202, answer: wants}.send(t, url, f.key)
	}
	f.wantMetric(t, 3, "carstate_samples_late_total", "protocol", "http")
	g, _ := f.Sources.Get("car")
	if s := g.Seen(); s.Late != 3 {
		t.Errorf("got %d late samples of the source, want 3", s.Late)
	}
}
