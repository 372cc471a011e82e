package cluster

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"carstate/internal/store"
)

// metrics counts what the engine does.
type metrics struct {
	commitSamples  prometheus.Histogram
	commitSeconds  prometheus.Histogram
	commitFailures prometheus.Counter
	foldSeconds    prometheus.Histogram
	foldedStates   prometheus.Counter
	streamBytes    *prometheus.GaugeVec // by stream, as are the next two
	streamLimit    *prometheus.GaugeVec
	streamRecords  *prometheus.GaugeVec
}

func newMetrics(r prometheus.Registerer, e *Engine) *metrics {
	m := &metrics{
		commitSamples: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "carstate_commit_samples",
			Help:    "Samples stored together by one group commit.",
			Buckets: []float64{1, 3, 10, 30, 100, 300, 1000},
		}),
		commitSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "carstate_commit_duration_seconds",
			Help:    "Time from sending a group commit to its being on disk.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}),
		commitFailures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "carstate_commit_failures_total",
			Help: "Group commits that were given up; their samples were not acknowledged.",
		}),
		foldSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "carstate_fold_commit_duration_seconds",
			Help:    "Time to store the states and the cursor of one fold.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}),
		foldedStates: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "carstate_states_stored_total",
			Help: "States stored, one for each vehicle that a fold touched.",
		}),
		streamBytes:   ofStream(store.MetricBytes, "What a stream of the engine keeps. Every node reports the same."),
		streamLimit:   ofStream(store.MetricLimit, "What a stream of the engine may keep at most."),
		streamRecords: ofStream("carstate_stream_records", "Records that a stream of the engine keeps."),
	}
	r.MustRegister(m.commitSamples, m.commitSeconds, m.commitFailures, m.foldSeconds, m.foldedStates,
		m.streamBytes, m.streamLimit, m.streamRecords, feedAges{e},
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: store.MetricBacklog,
			Help: "Age of the oldest stored sample that is not folded yet.",
		}, func() float64 { return e.backlog.age().Seconds() }),
	)
	return m
}

func (m *metrics) commit(samples int, took time.Duration, err error) {
	if err != nil {
		m.commitFailures.Inc()
		return
	}
	m.commitSamples.Observe(float64(samples))
	m.commitSeconds.Observe(took.Seconds())
}

func ofStream(name, help string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"stream"})
}

// fills notes how full a stream is.
func (m *metrics) fills(stream string, bytes, limit, records uint64) {
	m.streamBytes.WithLabelValues(stream).Set(float64(bytes))
	m.streamLimit.WithLabelValues(stream).Set(float64(limit))
	m.streamRecords.WithLabelValues(stream).Set(float64(records))
}

// feedAges shows how old this node's copies are, for each stream that it keeps a
// copy of and that has caught up.
type feedAges struct{ e *Engine }

var feedAge = prometheus.NewDesc(store.MetricFeedAge,
	"How old this node's copy of a stream may be. Missing before the copy has caught up.", []string{"stream"}, nil)

// Describe and Collect make it a [prometheus.Collector].
func (feedAges) Describe(ch chan<- *prometheus.Desc) { ch <- feedAge }

func (f feedAges) Collect(ch chan<- prometheus.Metric) {
	for _, name := range fedStreams {
		if age, ok := f.e.beats[name].age(); ok {
			ch <- prometheus.MustNewConstMetric(feedAge, prometheus.GaugeValue, age.Seconds(), name)
		}
	}
}
