package ingest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"carstate/internal/access"
	"carstate/internal/vehicle"
)

// intake is what both protocols share: the store behind the door and the counts
// of what went through it.
type intake struct {
	Config
	accepted prometheus.Counter
	refused  [access.SampleRefusals]prometheus.Counter
	ignored  prometheus.Counter
	duration *prometheus.HistogramVec
	// failing is set while the store refuses, so that the log tells the
	// beginning and the end of it and not every sample.
	failing atomic.Bool
}

// outcome is how a request or message ended, as metrics tell it.
type outcome string

const (
	stored       outcome = "stored"
	rejected     outcome = "refused"
	unauthorised outcome = "unauthorised"
	unavailable  outcome = "unavailable"
)

// Metrics that others read: counters of samples, the refused ones by the label reason.
const (
	MetricAccepted = "carstate_samples_accepted_total"
	MetricRefused  = "carstate_samples_refused_total"
)

// newIntake registers the metrics, each with the label protocol, so that both
// protocols can share a registry.
func newIntake(c Config, protocol string) *intake {
	c = c.withDefaults()
	c.Registry = prometheus.WrapRegistererWith(prometheus.Labels{"protocol": protocol}, c.Registry)
	in := &intake{
		Config: c,
		accepted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: MetricAccepted,
			Help: "Samples that were accepted, stored and acknowledged.",
		}),
		ignored: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "carstate_signals_ignored_total",
			Help: "Signals in samples that no rule uses.",
		}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "carstate_ingest_request_duration_seconds",
			Help:    "Time from a request's head or a message's arrival to its acknowledgement or refusal.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"outcome"}),
	}
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: MetricRefused,
		Help: "Samples that were refused, by reason. A message refused before it was read counts as one.",
	}, []string{"reason"})
	for why := range access.SampleRefusals {
		in.refused[why] = refused.WithLabelValues(why.String())
	}
	// A counter that begins with its first event has no rate of that.
	for _, o := range []outcome{stored, rejected, unauthorised, unavailable} {
		in.duration.WithLabelValues(string(o))
	}
	c.Registry.MustRegister(in.accepted, refused, in.ignored, in.duration)
	return in
}

// gauge shows how much of MaxBytes is in use.
func (in *intake) gauge(taken func() int) {
	in.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "carstate_ingest_held_bytes",
		Help: "Memory set aside for what senders have sent and are not answered for.",
	}, func() float64 { return float64(taken()) }))
}

// origin describes a batch of the source that arrives now.
func (in *intake) origin(s *access.Grant, topic vehicle.ID) origin {
	return origin{
		source: s, vehicles: s.Vehicles, topic: topic,
		forgotten: in.Forgotten, admit: in.Admit, latest: vehicle.At(in.Now().Add(MaxAhead)),
	}
}

// observe notes how long a request or message took that began at start.
func (in *intake) observe(start time.Time, o outcome) {
	in.duration.WithLabelValues(string(o)).Observe(in.Now().Sub(start).Seconds())
}

// refuse counts n samples of a source that are refused; nil: the source is not known.
func (in *intake) refuse(source *access.Grant, why access.Refusal, n int) {
	if n == 0 {
		return
	}
	in.refused[why].Add(float64(n))
	if source != nil {
		source.CountRefused(why, n, in.Now())
	}
}

// store stores what the batch accepted and counts the batch. Only after nil may
// anything of it be acknowledged.
func (in *intake) store(ctx context.Context, b *batch) error {
	for why, n := range b.refused {
		in.refuse(b.source, access.Refusal(why), n)
	}
	in.ignored.Add(float64(b.ignored.count))
	in.noteBatch(ctx, b)
	err := in.append(ctx, b.samples)
	accepted := b.accepted
	if err != nil {
		in.refuse(b.source, access.NotStored, b.accepted)
		accepted = 0
	}
	in.accepted.Add(float64(accepted))
	if b.source != nil {
		b.source.CountSamples(accepted, b.ignored.count)
		b.ignored.countFor(b.source)
	}
	return err
}

func (in *intake) append(ctx context.Context, samples []vehicle.Sample) error {
	if len(samples) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	err := in.Store.Append(ctx, samples)
	switch {
	case err == nil:
		if in.failing.CompareAndSwap(true, false) {
			in.Log.Info("telemetry is being stored again")
		}
		return nil
	case errors.Is(err, context.Canceled):
		// The sender went away or we are shutting down.
	case in.failing.CompareAndSwap(false, true):
		in.Log.Error("telemetry is not being stored; senders are told to come back", "error", err)
	}
	return fmt.Errorf("storing %d samples: %w", len(samples), err)
}
