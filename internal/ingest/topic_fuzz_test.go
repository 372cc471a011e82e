package ingest

import (
	"testing"

	"example.org/carstate/internal/vehicle"
)

// FuzzTopic checks that only topics of the form vehicles/VID/telemetry name a vehicle.
func FuzzTopic(f *testing.F) {
	for _, topic := range []string{"vehicles/CAR1/telemetry", "vehicles//telemetry", "vehicles/a-b/telemetry",
		"vehicles/CAR1/telemetry/", "vehicles/+/telemetry", "vehicles/telemetry", "$SYS/#", ""} {
		f.Add(topic)
	}
	f.Fuzz(func(t *testing.T, topic string) {
		id, ok := vehicleOf(topic)
		want, err := vehicle.ParseID(string(id))
		if ok && (err != nil || want != id || len(id) > vehicle.MaxReportingID ||
			topic != "vehicles/"+string(id)+"/telemetry") {
			t.Errorf("%q names the vehicle %q", topic, id)
		}
	})
}
