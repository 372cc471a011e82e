package store

import "github.com/prometheus/client_golang/prometheus"

// Names of gauges that every engine exports and other packages read. All of them except
// MetricBacklog have the label stream.
const (
	MetricBacklog = "carstate_backlog_seconds"
	MetricFeedAge = "carstate_feed_age_seconds"
	MetricBytes   = "carstate_stream_bytes"
	MetricLimit   = "carstate_stream_limit_bytes"
)

// registerMetrics registers the metrics of the record store.
func (k *RecordStore) registerMetrics() {
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "carstate_roads_refused_total",
		Help: "Stored profiles of roads, and messages of other nodes about roads, that were ignored because they " +
			"are invalid.",
	}, []string{"reason"})
	k.roadsRefused = make(map[string]prometheus.Counter)
	for _, reason := range []string{refusedProfile, refusedEvidence} {
		k.roadsRefused[reason] = refused.WithLabelValues(reason)
	}
	k.config.Registry.MustRegister(refused, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "carstate_forgotten_vehicles",
		Help: "Forgotten vehicles, whose telemetry is refused.",
	}, func() float64 { return float64(k.forgotten.Len()) }))
}
