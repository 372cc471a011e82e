package cluster

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/engine"
)

type metrics struct {
	*engine.Metrics
	records *prometheus.GaugeVec
	missing *prometheus.GaugeVec
}

func newMetrics(
	r prometheus.Registerer, newer *store.Newer, backlog func() time.Duration, beats map[string]*heartbeat,
) *metrics {
	m := &metrics{
		Metrics: engine.NewMetrics(r, backlog),
		records: engine.OfStream("carstate_stream_records", "Records that a stream of the engine keeps."),
		missing: engine.OfStream("carstate_stream_copies_missing",
			"Copies of a stream that are out of reach or lag behind. Every node reports the same."),
	}
	r.MustRegister(m.records, m.missing, newer, feedAges(beats))
	return m
}

// The copy of a stream has no age until its feed has delivered a heartbeat of this node.
type feedAges map[string]*heartbeat

var feedAge = prometheus.NewDesc(store.MetricFeedAge,
	"How old this node's copy of a stream may be. Missing before the copy has caught up.", []string{"stream"}, nil)

func (feedAges) Describe(ch chan<- *prometheus.Desc) { ch <- feedAge }

func (f feedAges) Collect(ch chan<- prometheus.Metric) {
	for _, name := range fedStreams {
		if at, ok := f[name].fed(); ok {
			ch <- prometheus.MustNewConstMetric(feedAge, prometheus.GaugeValue, time.Since(at).Seconds(), name)
		}
	}
}
