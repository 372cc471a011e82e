package query

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/carstate/internal/access"
)

// A request is for one operation, or for 0, none.
var operationNames = [...]string{
	0: "none", access.CarDrivingState: "car_driving_state", access.ThrottleSystem: "throttle_system",
}

// outcome is one of access.Outcome, as counted for a token, or, from invalidToken on, another.
type outcome access.Outcome

const (
	insufficientScope = outcome(access.InsufficientScope)
	rateLimited       = outcome(access.RateLimited)
	unavailable       = outcome(access.Unavailable)
	invalidRequest    = outcome(access.InvalidRequest)
)

const (
	invalidToken = outcome(access.Outcomes) + iota
	notFound
	methodNotAllowed
	documentation
	sandboxed // in metrics only, in place of the real outcome
	outcomeCount
)

// String returns the name in metrics, which is also the first word of a failure's message.
func (o outcome) String() string {
	if access.Outcome(o).InvalidSecret() {
		o = invalidToken
	}
	if o < invalidToken {
		return access.Outcome(o).String()
	}
	return [...]string{"invalid_token", "not_found", "method_not_allowed", "documentation", "sandbox"}[o-invalidToken]
}

// metrics has all counters from the start, so that counting takes no lock. A vehicle that is not
// granted is counted like an unknown one.
type metrics struct {
	queries  [len(operationNames)][outcomeCount]prometheus.Counter
	duration [len(operationNames)]prometheus.Observer
	dropped  prometheus.Counter
}

// Metrics that other packages read.
const (
	MetricQueries  = "carstate_queries_total"
	MetricDuration = "carstate_query_duration_seconds"
)

func newMetrics(reg prometheus.Registerer) *metrics {
	queries := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: MetricQueries,
		Help: "Requests on the query listener by operation and outcome.",
	}, []string{"operation", "outcome"})
	duration := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    MetricDuration,
		Help:    "Time to answer a query, from the parsed head to the finished answer, without reading and writing.",
		Buckets: []float64{1e-6, 2.5e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 1e-2, 1e-1},
	}, []string{"operation"})
	m := &metrics{
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "carstate_query_connections_dropped_total",
			Help: "Connections to the query listener that were closed because there were too many.",
		}),
	}
	reg.MustRegister(queries, duration, m.dropped)
	for op, name := range operationNames {
		for o := range outcomeCount {
			m.queries[op][o] = queries.WithLabelValues(name, o.String())
		}
		if op != 0 {
			m.duration[op] = duration.WithLabelValues(name)
		}
	}
	return m
}

func (m *metrics) observe(r *response, took time.Duration) {
	o := r.outcome
	if r.sandbox {
		// Errors that the sandbox makes up must not look like real ones.
		o = sandboxed
	}
	m.queries[r.operation][o].Inc()
	if r.operation != 0 {
		m.duration[r.operation].Observe(took.Seconds())
	}
}
