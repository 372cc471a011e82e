package store

import "github.com/prometheus/client_golang/prometheus"

// Metrics of every engine that others read: gauges, all but the backlog by the label
// stream.
const (
	MetricBacklog = "carstate_backlog_seconds"
	MetricFeedAge = "carstate_feed_age_seconds"
	MetricBytes   = "carstate_stream_bytes"
	MetricLimit   = "carstate_stream_limit_bytes"
)

// registerMetrics exports what the keeper counts.
func (k *Keeper) registerMetrics() {
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "carstate_roads_refused_total",
		Help: "Stored profiles of roads, and messages of other nodes about roads, that were left out because they make no sense.",
	}, []string{"reason"})
	k.roadsRefused = make(map[string]prometheus.Counter)
	for _, reason := range []string{refusedProfile, refusedEvidence} {
		k.roadsRefused[reason] = refused.WithLabelValues(reason)
	}
	k.config.Registry.MustRegister(refused, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "carstate_forgotten_vehicles",
		Help: "Vehicles that are forgotten, of which nothing is taken in.",
	}, func() float64 { return float64(k.forgotten.Len()) }))
}
