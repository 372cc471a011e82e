package query

import (
	"errors"
	"time"

	"carstate/internal/access"

	"github.com/prometheus/client_golang/prometheus"
)

// operation is one of the two operations of the service, or noOperation for a request with any
// other path.
type operation uint8

const (
	carDrivingState operation = iota
	throttleSystem
	noOperation
	operationCount
)

// String returns the operation's name in metrics.
func (o operation) String() string {
	return [...]string{"car_driving_state", "throttle_system", "none"}[o]
}

// outcome is how a request ended.
type outcome uint8

const (
	answered outcome = iota
	unknownVehicle
	stale
	notDriving
	invalidRequest
	invalidToken
	insufficientScope
	notFound
	methodNotAllowed
	rateLimited
	unavailable
	documentation
	sandboxed // the metrics have it in place of the real outcome of a call with a sandbox token
	outcomeCount
)

// String returns the outcome's name in metrics. It is also the first word of a failure's
// message.
func (o outcome) String() string {
	return [...]string{
		"answered", "unknown", "stale", "not_driving",
		"invalid_request", "invalid_token", "insufficient_scope", "not_found",
		"method_not_allowed", "rate_limited", "unavailable",
		"documentation", "sandbox",
	}[o]
}

// usageOf returns the outcome that is counted in the usage statistics of a token, for a call that
// ended with the outcome o. err says why the token is invalid, or is nil if the token is valid.
func usageOf(o outcome, err error) access.Outcome {
	switch {
	case errors.Is(err, access.ErrExpired):
		return access.Expired
	case errors.Is(err, access.ErrRevoked):
		return access.Revoked
	case errors.Is(err, access.ErrReplaced):
		return access.Replaced
	}
	return [outcomeCount]access.Outcome{
		answered:          access.Answered,
		unknownVehicle:    access.Unknown,
		stale:             access.Stale,
		notDriving:        access.NotDriving,
		insufficientScope: access.InsufficientScope,
		rateLimited:       access.RateLimited,
		unavailable:       access.Unavailable,
		invalidRequest:    access.InvalidRequest,
	}[o]
}

// metrics counts requests. The counters of all operations and outcomes are created at the start, so
// that counting takes no lock. A query for a vehicle that the token was not granted is answered,
// and therefore also counted, like a query for an unknown vehicle.
type metrics struct {
	queries  [operationCount][outcomeCount]prometheus.Counter
	duration [noOperation]prometheus.Observer
	dropped  prometheus.Counter
}

// The names of metrics that other packages read. The first is a counter with the labels operation
// and outcome, the second a histogram.
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
	if reg != nil {
		reg.MustRegister(queries, duration, m.dropped)
	}
	for op := range operationCount {
		for o := range outcomeCount {
			m.queries[op][o] = queries.WithLabelValues(op.String(), o.String())
		}
	}
	for op := range noOperation {
		m.duration[op] = duration.WithLabelValues(op.String())
	}
	return m
}

// observe counts an answer. If the request was for one of the two operations, observe also records
// how long the answer took.
func (m *metrics) observe(r *response, took time.Duration) {
	o := r.outcome
	if r.sandbox {
		// The errors that the sandbox makes up must not look like real ones.
		o = sandboxed
	}
	m.queries[r.operation][o].Inc()
	if r.operation < noOperation {
		m.duration[r.operation].Observe(took.Seconds())
	}
}
