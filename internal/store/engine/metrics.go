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
	saveSeconds    prometheus.Histogram
	savedBytes     prometheus.Counter
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
		saveSeconds: histogram("carstate_checkpoint_duration_seconds",
			"Time to store a checkpoint of a partition, with the pauses between its pieces.",
			prometheus.ExponentialBuckets(0.001, 4, 10)),
		savedBytes: counter("carstate_checkpoint_bytes_total",
			"Bytes of the states in stored checkpoints, before they are compressed."),
		streamBytes: OfStream(store.MetricBytes, "Size of a stream. Every node reports the same value."),
		streamLimit: OfStream(store.MetricLimit, "Maximum size of a stream."),
	}
	r.MustRegister(m.commitSamples, m.commitSeconds, m.commitFailures, m.saveSeconds, m.savedBytes,
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

func (m *Metrics) Checkpoint(bytes int, took time.Duration) {
	m.saveSeconds.Observe(took.Seconds())
	m.savedBytes.Add(float64(bytes))
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
