package engine

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

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

	Backlogs []atomic.Int64 // by partition, the age of the oldest sample that is not folded, ns
	shows    func(p int, age time.Duration) bool
}

func NewMetrics(r prometheus.Registerer, partitions int, shows func(p int, age time.Duration) bool) *Metrics {
	auto := promauto.With(r)
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return auto.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	}
	m := &Metrics{
		Backlogs: make([]atomic.Int64, partitions), shows: shows,
		commitSamples: histogram("carstate_commit_samples", "Samples stored together by one group commit.",
			[]float64{1, 3, 10, 30, 100, 300, 1000}),
		commitSeconds: histogram("carstate_commit_duration_seconds",
			"Time from sending a group commit to its being on disk.", prometheus.ExponentialBuckets(0.0005, 2, 14)),
		commitFailures: auto.NewCounter(prometheus.CounterOpts{Name: "carstate_commit_failures_total",
			Help: "Group commits that were given up; their samples were not acknowledged."}),
		saveSeconds: histogram("carstate_checkpoint_duration_seconds",
			"Time to store a checkpoint of a partition, with the pauses between its pieces.",
			prometheus.ExponentialBuckets(0.001, 4, 10)),
		savedBytes: auto.NewCounter(prometheus.CounterOpts{Name: "carstate_checkpoint_bytes_total",
			Help: "Bytes of the states in stored checkpoints, before they are compressed."}),
		streamBytes: OfStream(r, store.MetricBytes, "Size of a stream. Every node reports the same value."),
		streamLimit: OfStream(r, store.MetricLimit, "Maximum size of a stream."),
	}
	r.MustRegister(m)
	return m
}

var backlog = prometheus.NewDesc(store.MetricBacklog,
	"Age of the oldest stored sample that is not folded yet.", []string{"partition"}, nil)

func (*Metrics) Describe(ch chan<- *prometheus.Desc) { ch <- backlog }

func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for p := range m.Backlogs {
		if age := time.Duration(m.Backlogs[p].Load()); m.shows(p, age) {
			ch <- prometheus.MustNewConstMetric(backlog, prometheus.GaugeValue, age.Seconds(), strconv.Itoa(p))
		}
	}
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

func OfStream(r prometheus.Registerer, name, help string) *prometheus.GaugeVec {
	return promauto.With(r).NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"stream"})
}

func (m *Metrics) Fills(stream string, bytes, limit uint64) {
	m.streamBytes.WithLabelValues(stream).Set(float64(bytes))
	if limit > 0 {
		m.streamLimit.WithLabelValues(stream).Set(float64(limit))
	}
}
