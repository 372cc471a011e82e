package throughput_test

import (
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"example.org/carstate/internal/admin/throughput"
	"example.org/carstate/internal/ingest"
	"example.org/carstate/internal/query"
	"example.org/carstate/internal/store"
)

func TestBetween(t *testing.T) {
	noon := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	registry := prometheus.NewPedanticRegistry()
	auto := promauto.With(registry)
	counter := func(name string, labels ...string) *prometheus.CounterVec {
		return auto.NewCounterVec(prometheus.CounterOpts{Name: name, Help: "x"}, labels)
	}
	gauge := func(name string) *prometheus.GaugeVec {
		return auto.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: "x"}, []string{"stream"})
	}
	accepted := counter(ingest.MetricAccepted, "protocol")
	refused := counter(ingest.MetricRefused, "protocol", "reason")
	keys := counter(ingest.MetricKeysRefused, "protocol", "reason")
	connections := counter(ingest.MetricConnectionsRefused, "protocol", "reason")
	queries := counter(query.MetricQueries, "operation", "outcome")
	duration := auto.NewHistogramVec(prometheus.HistogramOpts{Name: query.MetricDuration, Help: "x",
		Buckets: []float64{1, 2, 4}}, []string{"operation"})
	bytes, limit, age := gauge(store.MetricBytes), gauge(store.MetricLimit), gauge(store.MetricFeedAge)

	if f := throughput.Read(registry, noon); f.FeedAge != 0 {
		t.Errorf("an idle node: got %+v, want feed age 0", f)
	}
	queries.WithLabelValues("throttle_system", "rate_limited").Add(7)
	old := throughput.Read(registry, noon)
	accepted.WithLabelValues("http").Add(100)
	accepted.WithLabelValues("mqtt").Add(20)
	refused.WithLabelValues("http", "time").Add(30)
	refused.WithLabelValues("mqtt", "time").Add(10)
	keys.WithLabelValues("http", "unknown").Add(20)
	connections.WithLabelValues("mqtt", "credentials").Add(3) // their keys are counted already
	connections.WithLabelValues("mqtt", "no_connect").Add(3)  // such as a probe of a load balancer
	connections.WithLabelValues("mqtt", "share").Add(10)
	queries.WithLabelValues("throttle_system", "answered").Add(50)
	queries.WithLabelValues("none", "not_found").Add(5)
	for range 98 {
		duration.WithLabelValues("throttle_system").Observe(.5)
	}
	duration.WithLabelValues("car_driving_state").Observe(1.5)
	duration.WithLabelValues("car_driving_state").Observe(3)
	bytes.WithLabelValues("STATES").Set(10)
	limit.WithLabelValues("STATES").Set(100)
	age.WithLabelValues("STATES").Set(.25)
	age.WithLabelValues("TOKENS").Set(.5)
	now := throughput.Read(registry, noon.Add(10*time.Second))
	r := throughput.Between(&old, &now)
	if r.Samples != 12 || r.Queries != 5 || now.FeedAge != .5 || now.Streams["STATES"] != (throughput.Fill{10, 100}) {
		t.Errorf("got %+v, %+v; want 12 samples, 5 queries, feed age .5, 10 of 100 in STATES", r, now)
	}
	type of = throughput.Refusal
	if want := []throughput.Refused{{of{"sample", "time"}, 40, 4}, {of{"key", "unknown"}, 20, 2},
		{of{"connection", "share"}, 10, 1}, {of{"query", "rate_limited"}, 7, 0},
		{of{"query", "not_found"}, 5, .5}}; !slices.Equal(r.Refused, want) {
		t.Errorf("refused: got %+v, want %+v", r.Refused, want)
	}
	if r.P99 != 2 || r.Beyond { // 98 of 100 took up to 1 s, 99 up to 2 s
		t.Errorf("p99: got %v, beyond %t; want 2, false", r.P99, r.Beyond)
	}
	duration.WithLabelValues("car_driving_state").Observe(100)
	later := throughput.Read(registry, noon.Add(20*time.Second))
	if r := throughput.Between(&now, &later); r.P99 != 4 || !r.Beyond {
		t.Errorf("p99 of one that is beyond all buckets: got %+v, want 4, beyond", r)
	}
	if r := throughput.Between(&later, &later); r.Over != 0 || r.Samples != 0 {
		t.Errorf("no time in between: got %+v, want over 0 and no sample", r)
	}
}
