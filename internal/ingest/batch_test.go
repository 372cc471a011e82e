package ingest_test

import (
	"strings"
	"testing"

	"example.org/carstate/internal/ingest"
)

func TestBatchLimits(t *testing.T) {
	f := newFixture(t)
	_, url := startHTTP(t, f)
	padded := func(n int) string { // a sample of n bytes
		s := sampleLine("V1", 1, 1)
		return `{"x":"` + strings.Repeat("x", n-len(s)-len(`"x":"",`)) + `",` + s[1:]
	}
	const object = "Content-Type: application/json"
	const tooLarge = `{"error":"a sample is larger than 64 KiB"}`
	empty := strings.Repeat("\n", maxSamples-1)
	for _, r := range []request{
		{body: padded(maxSample), status: 202},
		{body: padded(maxSample) + "\r\n" + padded(maxSample), status: 202, answer: `{"accepted":2,"rejected":[]}`},
		{body: padded(maxSample + 1), status: 413, answer: tooLarge},
		{header: object, body: padded(maxSample), status: 202},
		{header: object, body: padded(maxSample + 1), status: 413, answer: tooLarge},
		{header: object, body: " \n", status: 400},
		{body: empty + padded(100), status: 202, answer: `{"accepted":1,"rejected":[]}`},
		{body: "\n" + empty + padded(100), status: 413,
			answer: `{"error":"there are more than 10,000 lines: send them in several batches"}`},
	} {
		r.send(t, url, f.key)
	}
}

func TestMQTT_LinesOrOneObject(t *testing.T) {
	f := newFixture(t)
	_, addr := startMQTT(t, f.Config)
	client, _ := f.connectPaho(t, addr, "car", f.key, nil)
	spread := func(s string) string { return strings.ReplaceAll(s, ",", ",\n") }
	good := sampleLine("V1", 1, 1)
	bad := `{"vid":"V1","time":1,"signals":{}}`
	for name, c := range map[string]struct {
		message           string
		accepted, refused float64
		reason            string // if nothing is accepted
	}{
		"one":                 {good, 1, 0, ""},
		"one over many lines": {spread(good), 1, 0, ""},
		"pretty":              {"{\n\"time\":1795147200000,\n\"signals\":{}\n}\n", 1, 0, ""},
		"bad over many lines": {spread(bad), 0, 1,
			"time is before the year 1974: as a number it must be in milliseconds, not seconds"},
		"many":                     {good + "\n" + good, 2, 0, ""},
		"many, the first bad":      {bad + "\n" + good, 1, 1, ""},
		"many, the first cut off":  {good[:40] + "\n" + good, 1, 1, ""},
		"many, the second cut off": {good + "\n" + good[:40], 1, 1, ""},
		"cut off":                  {good[:40] + "\n" + good[:40], 0, 2, "the JSON ends early"},
	} {
		accepted, refused := f.metric(t, ingest.MetricAccepted), f.metric(t, ingest.MetricRefused)
		if code, reason := published(t, client, c.message); (code == 0) != (c.accepted > 0) || reason != c.reason {
			t.Errorf("%s: got code %#x, %q; want %q", name, code, reason, c.reason)
		}
		f.wantMetric(t, accepted+c.accepted, ingest.MetricAccepted)
		f.wantMetric(t, refused+c.refused, ingest.MetricRefused)
	}
}
