package ingest_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/test/testkit"
)

// rated's source "slow" has four samples a minute; forward moves the clock.
func rated(t *testing.T) (f *fixture, key string, forward func(time.Duration)) {
	t.Helper()
	f = newFixture(t)
	var passed atomic.Int64
	f.Now = func() time.Time { return testNow.Add(time.Duration(passed.Load())) }
	_, key = f.addSource(t, access.Credential{
		Name: "slow", Vehicles: f.source.Vehicles, Rate: access.Rate{Calls: 4, Window: time.Minute},
	})
	return f, key, func(d time.Duration) { passed.Add(int64(d)) }
}

func (f *fixture) seen(t *testing.T) access.SourceActivity {
	t.Helper()
	g, ok := f.Sources.Get("slow")
	if !ok {
		t.Fatal("the source slow: got none, want it")
	}
	return g.Seen()
}

func TestHTTPSourceOverItsRate(t *testing.T) {
	f, key, forward := rated(t)
	_, url := startHTTP(t, f)
	const policy = "RateLimit-Policy: \"source\";q=4;w=60\n"
	const over = `{"error":"the policy of this source allows 4 samples in 60 s: ` +
		`wait 60 s; nothing of this request was accepted"}`
	two := sampleLine("V1", 1, 1) + "\nno sample"
	five := strings.Repeat(sampleLine("V1", 2, 1)+"\n", 5)
	for _, r := range []struct {
		after time.Duration
		request
	}{
		{0, request{body: two, status: 202, wants: policy + `RateLimit: "source";r=2;t=15`}},
		{0, request{body: five, status: 202, wants: policy + `RateLimit: "source";r=0;t=60`}}, // 3 samples taken in advance
		{0, request{body: two, status: 429, answer: over, wants: policy + "RateLimit: \"source\";r=0;t=60\nRetry-After: 60"}},
		{59 * time.Second, request{body: two, status: 429, wants: "Retry-After: 1"}},
		{time.Second, request{body: sampleLine("V1", 7, 1), status: 202, wants: policy + `RateLimit: "source";r=0;t=15`}},
	} {
		forward(r.after)
		r.send(t, url, key)
	}
	const byDefault = `RateLimit-Policy: "source";q=36000;w=1800`
	request{body: two, status: 202, wants: byDefault}.send(t, url, f.key)
	_, unlimited := f.addSource(t, access.Credential{Name: "unlimited", Vehicles: f.source.Vehicles, Rate: access.NoRate})
	_, all := f.add(t, "all", access.AllVehicles())
	for _, key := range []string{unlimited, all} {
		request{body: two, status: 202, wants: "RateLimit-Policy: "}.send(t, url, key)
	}
	f.wantMetric(t, 2, "carstate_samples_refused_total", "protocol", "http", "reason", "rate")
	s := f.seen(t)
	if s.Accepted != 7 || s.Refused[access.Malformed] != 1 || s.Refused[access.OverRate] != 2 ||
		s.Reason != access.OverRate || s.Text != "the policy of this source allows 4 samples in 60 s: "+
		"wait 1 s; nothing of this request was accepted" || !s.LastRefused.Equal(testNow.Add(59*time.Second)) {
		t.Errorf("the activity: got %+v, want 7 accepted, 1 malformed, 2 over the rate as the last", s)
	}
}

func TestHTTPRateCountsWhatIsRefused(t *testing.T) {
	f, key, _ := rated(t)
	_, url := startHTTP(t, f)
	request{body: "x\nx\nx", status: 400}.send(t, url, key)
	request{header: "Content-Encoding: gzip", body: "no gzip", status: 400}.send(t, url, key)
	request{body: sampleLine("V1", 1, 1), status: 429}.send(t, url, key)
	f.store.wants(t)
}

func TestHTTPRateCountsWhiteSpace(t *testing.T) {
	for header, encode := range map[string]func(string) string{
		"": func(text string) string { return text }, "Content-Encoding: gzip": zip,
	} {
		f, key, _ := rated(t)
		_, url := startHTTP(t, f)
		body := strings.Repeat(strings.Repeat(" ", chargedBytes-1)+"\n", 4) + sampleLine("V1", 1, 1)
		request{header: header, body: encode(body), status: 202}.send(t, url, key)
		request{body: sampleLine("V1", 2, 1), status: 429}.send(t, url, key)
	}
}

func TestMQTTSourceOverItsRate(t *testing.T) {
	f, key, forward := rated(t)
	_, addr := startMQTT(t, f.Config)
	c := dialRaw(t, addr, 5).logIn("slow", key)
	three := sampleLine("V1", 1, 1) + "\n" + sampleLine("V1", 2, 2) + "\n" + sampleLine("V1", 3, 3)
	for id, code := range []byte{0, 0, 0x97} { // the second takes samples in advance
		c.publish(2, uint16(id+1), topicV1, three)
		c.wantPuback(uint16(id+1), code)
	}
	forward(time.Minute)
	c.publish(2, 4, topicV1, three)
	c.wantPuback(4, 0)
	f.wantMetric(t, 1, "carstate_samples_refused_total", "protocol", "mqtt", "reason", "rate")
	if s := f.seen(t); s.Accepted != 9 || s.Refused[access.OverRate] != 1 || s.Reason != access.OverRate {
		t.Errorf("the activity: got %+v, want 9 accepted, 1 over the rate as the last", s)
	}
}

// MQTT 3.1.1 and QoS 0 have no reason codes, so nothing is read until the rate allows it.
func TestMQTTOverTheRatePauses(t *testing.T) {
	for _, tt := range []struct {
		version, flags byte
	}{{4, 2}, {4, 0}, {5, 0}} {
		f, key, _ := rated(t)
		f.Now = time.Now
		f.Sources.Put(func() access.Credential {
			g, _ := f.Sources.Get("slow")
			c := g.Credential
			c.Rate = access.Rate{Calls: 50, Window: time.Second}
			return c
		}())
		_, addr := startMQTT(t, f.Config)
		c := dialRaw(t, addr, tt.version).logIn("slow", key)
		began := time.Now()
		const messages = 70
		for id := range uint16(messages) {
			c.publish(tt.flags, id+1, topicV1, sampleLine("V1", int(id), 1))
		}
		testkit.Await(t, "all is stored", func() bool { return len(f.store.describe()) == messages })
		if took := time.Since(began); took < (messages-50)*20*time.Millisecond {
			t.Errorf("MQTT %d, flags %d: got %v, want %d × 20 ms or more", tt.version, tt.flags, took, messages-50)
		}
		f.wantMetric(t, 0, "carstate_samples_refused_total")
	}
}

// A message that would wait for over a minute is refused, and closes its connection.
func TestMQTTOverTheRateForLong(t *testing.T) {
	f, key, _ := rated(t)
	_, addr := startMQTT(t, f.Config)
	send := func(version byte) *rawClient {
		c := dialRaw(t, addr, version).logIn("slow", key)
		lines := ""
		for i := range 12 {
			lines += sampleLine("V1", i, 1) + "\n"
		}
		c.publish(0, 0, topicV1, lines)
		return c
	}
	first := send(5)
	testkit.Await(t, "a batch is stored", func() bool { return len(f.store.describe()) == 12 })
	first.publish(0, 0, topicV1, sampleLine("V1", 20, 1))
	first.wantClosed(0x97)
	send(4).wantClosed(0)
	f.wantMetric(t, 2, "carstate_samples_refused_total", "reason", "rate")
}

func TestSourceCounters(t *testing.T) {
	f, key, _ := rated(t)
	_, url := startHTTP(t, f)
	const unused = `{"vid":"V1","time":1795147200000,"signals":{"Vehicle.Speed":1,"Vehicle.Color":"red","x":1}}`
	request{body: unused + "\n" + sampleLine("V9", 1, 1), status: 202}.send(t, url, key)
	f.store.append = func(context.Context) error { return errDisk }
	request{body: sampleLine("V1", 1, 1), status: 503, wants: "Retry-After: 1"}.send(t, url, key)
	s := f.seen(t)
	if s.Accepted != 1 || s.Ignored != 2 || s.Refused[access.NotAllowed] != 1 || s.Refused[access.NotStored] != 1 ||
		s.Reason != access.NotStored || s.Text != "telemetry cannot be stored now; nothing of this request was accepted" || !s.LastRefused.Equal(testNow.Truncate(time.Second)) {
		t.Errorf("the activity: got %+v, want 1 accepted, 2 ignored, 1 not allowed, 1 not stored as the last", s)
	}
}

// full has no room for the source until the time.
type full struct {
	source uint32
	until  atomic.Int64 // Unix milliseconds
	held   atomic.Int64
}

func (f *full) Reserve(source uint32, n int) (time.Duration, bool) {
	if left := time.Until(time.UnixMilli(f.until.Load())); source == f.source && left > 0 {
		return left, false
	}
	f.held.Add(int64(n))
	return 0, true
}

func (f *full) Release(_ uint32, n int) { f.held.Add(-int64(n)) }

// A source that is behind is refused by HTTP and MQTT 5, and waits by MQTT 3.1.1. Another notices
// nothing.
func TestSourceBehind(t *testing.T) {
	f := newFixture(t)
	slow, key := f.addSource(t, access.Credential{Name: "slow", Vehicles: f.source.Vehicles})
	slow.Number = 7
	f.Sources.Put(slow)
	u := &full{source: 7}
	u.until.Store(time.Now().Add(time.Hour).UnixMilli())
	f.Unfolded = u
	_, url := startHTTP(t, f)
	_, addr := startMQTT(t, f.Config)
	request{body: sampleLine("V1", 1, 1), status: 429, wants: "Retry-After: 3600",
		answer: `{"error":"earlier samples of this source are still being processed: wait 3600 s; ` +
			`nothing of this request was accepted"}`}.send(t, url, key)
	c := dialRaw(t, addr, 5).logIn("slow", key)
	c.publish(2, 1, topicV1, sampleLine("V1", 2, 1))
	c.wantPuback(1, 0x97)
	old := dialRaw(t, addr, 4).logIn("slow", key)
	old.publish(2, 1, topicV1, sampleLine("V1", 3, 1))
	request{body: sampleLine("V2", 1, 1), status: 202}.send(t, url, f.key)
	f.store.wants(t, "V2 1")
	if s := f.seen(t); s.Refused[access.Backlog] != 2 || s.Reason != access.Backlog {
		t.Errorf("the activity: got %+v, want 2 refused for the backlog, as the last", s)
	}
	u.until.Store(0) // the withheld message waits for an hour, a new one does not
	request{body: sampleLine("V1", 5, 1), status: 202}.send(t, url, key)
	testkit.Await(t, "all reservations are returned", func() bool { return u.held.Load() == 0 })
}

func TestSourceBehindForAShortTime(t *testing.T) {
	f := newFixture(t)
	u := &full{source: f.source.Number}
	f.Unfolded = u
	_, addr := startMQTT(t, f.Config)
	for _, version := range []byte{4, 5} {
		c := dialRaw(t, addr, version).logIn("car", f.key)
		u.until.Store(time.Now().Add(50 * time.Millisecond).UnixMilli())
		c.publish(0, 0, topicV1, sampleLine("V1", int(version), 1))
		testkit.Await(t, "it is stored", func() bool { return len(f.store.describe()) == int(version)-3 })
	}
	f.wantMetric(t, 0, "carstate_samples_refused_total")
}
