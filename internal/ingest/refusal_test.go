package ingest

import (
	"testing"

	"carstate/internal/access"
	"carstate/internal/testkit"
)

// TestLastRefusal_ByHTTP checks that the operator sees the words that the sender was told last, but
// nothing that the sender has put in place of the name of a signal.
func TestLastRefusal_ByHTTP(t *testing.T) {
	f := newFixture(t)
	_, key := f.addSource(t, access.SourceRequest{Name: "slow", Vehicles: f.source.Vehicles, Strict: true})
	_, url := startHTTP(t, f)
	const tooFast = "impossible value: Vehicle.Speed must be between 0 and 500 km/h"
	for _, tt := range []struct {
		body   string
		status int
		reason access.Refusal
		text   string
	}{
		{sampleLine("V1", 1, 501), 400, access.Impossible, tooFast},
		{"x", 400, access.Malformed, "the line is not valid JSON from byte 1 on"},
		{sampleLine("V1", 1, 501) + "\nx", 400, access.Impossible, tooFast},
		{sampleLine("V1", 1, 1) + "\n{", 202, access.Truncated, "the JSON ends early"},
		{sampleLine("NHeN4UqVsohGS55I7LBdh", 1, 1), 403, access.NotAllowed, errNotAllowed.text},
		{signalsLine("Vehicle.Sped"), 400, access.UnknownSignal, "Vehicle.Sped (did you mean Vehicle.Speed?)" + strictText},
		{signalsLine("NHeN4UqVsohGS55I7LBdh"), 400, access.UnknownSignal, "a signal" + strictText},
		{signalsLine("Vehicle.52.5200.13.4050"), 400, access.UnknownSignal, "a signal" + strictText},
	} {
		request{body: tt.body, status: tt.status}.send(t, url, key)
		if s := f.seen(t); s.Reason != tt.reason || s.Text != tt.text {
			t.Errorf("%.100s:\n got  %v: %s\n want %v: %s", tt.body, s.Reason, s.Text, tt.reason, tt.text)
		}
	}
}

// TestLastRefusal_ByMQTT checks the same for messages, whose senders are told nothing by MQTT 3.1.1.
func TestLastRefusal_ByMQTT(t *testing.T) {
	bothVersions(t, func(t *testing.T, version byte) {
		f := newFixture(t)
		_, key := f.addSource(t, access.SourceRequest{Name: "slow", Vehicles: f.source.Vehicles})
		_, addr := startMQTT(t, f.Config)
		for _, tt := range []struct {
			topic, body string
			reason      access.Refusal
			text        string
		}{
			{topicV1, sampleLine("V1", 1, 501), access.Impossible,
				"impossible value: Vehicle.Speed must be between 0 and 500 km/h"},
			{topicV1, sampleLine("V2", 1, 1), access.OtherVID, errOtherVID.text},
			{"vehicles/NHeN4UqVsohGS55I7LBdh/telemetry", sampleLine("V1", 1, 1), access.NotAllowed, errNotAllowed.text},
			{"vehicles", sampleLine("V1", 1, 1), access.BadTopic, errTopic.text},
		} {
			c := dialRaw(t, addr, version)
			if code := c.connect("slow", key, "", 30); code != 0 {
				t.Fatalf("CONNACK code %#x", code)
			}
			c.publish(2, 1, tt.topic, tt.body)
			testkit.Await(t, tt.text, func() bool {
				s := f.seen(t)
				return s.Reason == tt.reason && s.Text == tt.text
			})
		}
	})
}
