package ingest_test

import (
	"testing"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/ingest"
)

// The operator sees the sender's text, without what may be in place of a name.
func TestLastRefusal_ByHTTP(t *testing.T) {
	f := newFixture(t)
	_, key := f.addSource(t, access.Credential{Name: "slow", Vehicles: f.source.Vehicles, Strict: true})
	_, url := startHTTP(t, f)
	const tooFast = "Vehicle.Speed must be between 0 and 500 km/h, and this source is strict"
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
		{sampleLine("NHeN4UqVsohGS55I7LBdh", 1, 1), 403, access.NotAllowed, "the source may not send data of this vehicle"},
		{signalsLine("Vehicle.Sped"), 400, access.UnknownSignal, "a signal (did you mean Vehicle.Speed?)" + strictText},
		{signalsLine("NHeN4UqVsohGS55I7LBdh"), 400, access.UnknownSignal, "a signal" + strictText},
		{signalsLine("Vehicle.52.5200.13.4050"), 400, access.UnknownSignal, "a signal" + strictText},
	} {
		request{body: tt.body, status: tt.status}.send(t, url, key)
		if s := f.seen(t); s.Reason != tt.reason || s.Text != tt.text {
			t.Errorf("%.100s:\n got  %v: %s\n want %v: %s", tt.body, s.Reason, s.Text, tt.reason, tt.text)
		}
	}
}

// A refused key is no refused sample; the source of a revoked one is known.
func TestRefusedKeys_AreCounted(t *testing.T) {
	f := newFixture(t)
	removed, removedKey := f.add(t, "gone", access.AllVehicles())
	f.remove(removed)
	unknown, _ := access.NewSecret(access.SourceKind)
	token, _ := access.NewSecret(access.TokenKind)
	_, url := startHTTP(t, f)
	request{header: "Authorization:", status: 401}.send(t, url, f.key)
	for _, key := range []string{"x", mistyped(f.key), unknown, token, removedKey} {
		request{status: 401}.send(t, url, key)
	}
	for reason, want := range map[string]float64{
		"missing": 1, "malformed": 2, "unknown": 1, "access_token": 1, "revoked": 1, "expired": 0, "replaced": 0,
	} {
		f.wantMetric(t, want, ingest.MetricKeysRefused, "protocol", "http", "reason", reason)
	}
	f.wantMetric(t, 0, ingest.MetricRefused)
	g, _ := f.Sources.Get("gone")
	if s := g.Seen(); s.Refused[access.KeyRevoked] != 1 {
		t.Errorf("got %d revoked keys of the source, want 1", s.Refused[access.KeyRevoked])
	}
}

// The operator sees it; the client's answer is the same for every name.
func TestWrongPassword_IsNotedForItsSource(t *testing.T) {
	f := newFixture(t)
	_, addr := startMQTT(t, f.Config)
	token, _ := access.NewSecret(access.TokenKind)
	_, other := f.add(t, "slow", access.AllVehicles())
	for _, tt := range []struct{ key, text string }{
		{"wrong", "the password is not the key of this source: it does not have the form of such a secret"},
		{mistyped(other), "the password is not the key of this source: " + access.ErrChecksum.Error()},
		{token, "the password is not the key of this source: " + access.ErrIsToken.Error()},
		{f.key, "the password is not the key of this source: it is the key of another one"},
	} {
		for _, name := range []string{"slow", "nobody"} {
			c := dialRaw(t, addr, 5)
			if code := c.connect(name, tt.key, 30); code != 0x86 {
				t.Errorf("%s: got CONNACK code %#x, want 0x86", name, code)
			}
			c.wantClosed(0)
		}
		if s := f.seen(t); s.Reason != access.WrongKey || s.Text != tt.text {
			t.Errorf("got last refusal %v: %q, want %v: %q", s.Reason, s.Text, access.WrongKey, tt.text)
		}
	}
	if s := f.seen(t); s.Refused[access.WrongKey] != 4 || !s.LastSeen.IsZero() {
		t.Errorf("got %d wrong keys, seen %v; want 4, never", s.Refused[access.WrongKey], s.LastSeen)
	}
	if _, ok := f.Sources.Get("nobody"); ok {
		t.Error("a wrong name: got a source of it, want none")
	}
	f.wantMetric(t, 8, ingest.MetricKeysRefused, "protocol", "mqtt")
	f.wantMetric(t, 0, ingest.MetricRefused)
}
