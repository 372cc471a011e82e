package stream

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics counts what the engine does.
type metrics struct {
	commitSamples  prometheus.Histogram
	commitSeconds  prometheus.Histogram
	commitFailures prometheus.Counter
	foldSeconds    prometheus.Histogram
	foldedStates   prometheus.Counter
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
	}
	r.MustRegister(m.commitSamples, m.commitSeconds, m.commitFailures, m.foldSeconds, m.foldedStates,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "carstate_feed_age_seconds",
			Help: "How old this node's copy of the worst of the fed streams may be; -1 before it has caught up.",
		}, func() float64 {
			age, err := e.FeedAge()
			if err != nil {
				return -1
			}
			return age.Seconds()
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "carstate_forgotten_vehicles",
			Help: "Vehicles that are forgotten, of which nothing is taken in.",
		}, func() float64 { return float64(e.forgotten.Len()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "carstate_backlog_seconds",
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
