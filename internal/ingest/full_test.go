package ingest

import (
	"testing"

	"carstate/internal/vehicle"
)

// TestNewVehiclesBeyondTheBoundAreRefused checks that a sample of a new vehicle beyond the limit of
// vehicles is refused with a reason of its own. Samples of known vehicles in the same batch must be
// accepted. A sample without a known signal must be accepted, too, because it adds no vehicle.
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
