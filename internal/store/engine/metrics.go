package engine

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/carstate/internal/store"
)

type Metrics struct {
	commitSamples  prometheus.Histogram
	commitSeconds  prometheus.Histogram
	commitFailures prometheus.Counter
	foldSeconds    prometheus.Histogram
	foldedStates   prometheus.Counter
	streamBytes    *prometheus.GaugeVec
	streamLimit    *prometheus.GaugeVec
}

// backlog is the age of the oldest stored sample that is not folded.
func NewMetrics(r prometheus.Registerer, backlog func() time.Duration) *Metrics {
	m := &Metrics{
		commitSamples: histogram("carstate_commit_samples", "Samples stored together by one group commit.",
			[]float64{1, 3, 10, 30, 100, 300, 1000}),
		commitSeconds: histogram("carstate_commit_duration_seconds",
			"Time from sending a group commit to its being on disk.", prometheus.ExponentialBuckets(0.0005, 2, 14)),
		commitFailures: counter("carstate_commit_failures_total",
			"Group commits that were given up; their samples were not acknowledged."),
		foldSeconds: histogram("carstate_fold_commit_duration_seconds",
			"Time to store the states and the cursor of one fold.", prometheus.ExponentialBuckets(0.0005, 2, 14)),
		foldedStates: counter("carstate_states_stored_total",
			"States stored, one for each vehicle that a fold touched."),
		streamBytes: OfStream(store.MetricBytes, "Size of a stream. Every node reports the same value."),
		streamLimit: OfStream(store.MetricLimit, "Maximum size of a stream."),
	}
	r.MustRegister(m.commitSamples, m.commitSeconds, m.commitFailures, m.foldSeconds, m.foldedStates,
		m.streamBytes, m.streamLimit,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: store.MetricBacklog,
			Help: "Age of the oldest stored sample that is not folded yet.",
		}, func() float64 { return backlog().Seconds() }),
	)
	return m
}

func histogram(name, help string, buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

func (m *Metrics) commit(samples int, took time.Duration, err error) {
	if err != nil {
		m.commitFailures.Inc()
		return
	}
	m.commitSamples.Observe(float64(samples))
	m.commitSeconds.Observe(took.Seconds())
}

func (m *Metrics) Fold(states int, took time.Duration) {
	m.foldSeconds.Observe(took.Seconds())
	m.foldedStates.Add(float64(states))
}

func OfStream(name, help string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"stream"})
}

// A stream with the limit 0 has none.
func (m *Metrics) Fills(stream string, bytes, limit uint64) {
	m.streamBytes.WithLabelValues(stream).Set(float64(bytes))
	if limit > 0 {
		m.streamLimit.WithLabelValues(stream).Set(float64(limit))
	}
}
