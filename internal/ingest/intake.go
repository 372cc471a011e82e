package ingest

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/lograte"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/telemetry"
	"example.org/carstate/internal/vehicle"
)

type intake struct {
	Config
	accepted prometheus.Counter
	refused  [access.SampleRefusals]prometheus.Counter
	ignored  prometheus.Counter
	late     prometheus.Counter
	unused   map[access.Refusal]prometheus.Counter
	keys     *prometheus.CounterVec // refused keys, by reason
	duration map[outcome]prometheus.Observer

	failing   atomic.Bool // limits an outage of the store to two log lines
	wrongKeys lograte.Warning
}

type outcome string

const (
	stored       outcome = "stored"
	rejected     outcome = "refused"
	unauthorised outcome = "unauthorised"
	unavailable  outcome = "unavailable"
	readOnlyNow  outcome = "read_only"
	noRoom       outcome = "no_room" // in a quota, or in the source's share of it
	documented   outcome = ""        // documents are not observed
)

// Metrics that other packages read.
const (
	MetricAccepted           = "carstate_samples_accepted_total"
	MetricRefused            = "carstate_samples_refused_total"
	MetricKeysRefused        = "carstate_ingest_keys_refused_total"
	MetricConnectionsRefused = "carstate_mqtt_connections_refused_total"
)

func newIntake(c Config, protocol string) *intake {
	if c.Now == nil {
		c.Now = time.Now
	}
	c.MaxHTTPConnections = cmp.Or(c.MaxHTTPConnections, 4096)
	c.MaxConnections = cmp.Or(c.MaxConnections, 20_000)
	c.grace = cmp.Or(c.grace, grace)
	c.MaxBytes = cmp.Or(c.MaxBytes, 256<<20)
	c.Registry = prometheus.WrapRegistererWith(prometheus.Labels{"protocol": protocol}, c.Registry)
	in := &intake{Config: c, unused: make(map[access.Refusal]prometheus.Counter), duration: make(map[outcome]prometheus.Observer)}
	in.accepted = in.counter(MetricAccepted, "Samples that were accepted, stored and acknowledged.")
	in.ignored = in.counter("carstate_signals_ignored_total", "Signals in samples that no rule uses.")
	in.late = in.counter("carstate_samples_late_total",
		"Accepted samples that are older than what is known of their vehicle, and change nothing.")
	in.keys = in.counters(MetricKeysRefused, "Requests and MQTT logins that were refused because of their key, by reason.")
	refused := in.counters(MetricRefused,
		"Samples that were refused, by reason. A message refused before it was read counts as one.")
	unused := in.counters("carstate_values_unused_total",
		"Values of known signals in accepted samples that are not used, by reason.")
	duration := promauto.With(c.Registry).NewHistogramVec(prometheus.HistogramOpts{
		Name:    "carstate_ingest_request_duration_seconds",
		Help:    "Time from a request's head or a message's arrival to its acknowledgement or refusal.",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
	}, []string{"outcome"})
	for why := range access.SampleRefusals {
		in.refused[why] = refused.WithLabelValues(why.String())
	}
	for _, why := range telemetry.UnusedKinds {
		in.unused[why] = unused.WithLabelValues(why.String())
	}
	// A counter that appeared with its first event would lack this event in its rate.
	for _, o := range []outcome{stored, rejected, unauthorised, unavailable, readOnlyNow, noRoom} {
		in.duration[o] = duration.WithLabelValues(string(o))
	}
	for _, k := range keyReasons {
		in.keys.WithLabelValues(k.reason)
	}
	return in
}

func (in *intake) counter(name, help string) prometheus.Counter {
	return promauto.With(in.Registry).NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

func (in *intake) counters(name, help string) *prometheus.CounterVec {
	return promauto.With(in.Registry).NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"reason"})
}

func (in *intake) gauge(name, help string, value func() int) {
	promauto.With(in.Registry).NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
		func() float64 { return float64(value()) })
}

func (in *intake) heldBytes(held func() int) {
	in.gauge("carstate_ingest_held_bytes", "Memory that is reserved for telemetry which is not answered yet.", held)
}

func (in *intake) origin(s *access.Grant, topic vehicle.ID) telemetry.Origin {
	return telemetry.Origin{
		Source: s, Vehicle: topic, Now: signal.At(in.Now()),
		Forgotten: in.Forgotten, Admit: in.Admit, Verdicts: in.Verdicts,
	}
}

func (in *intake) observe(start time.Time, o outcome) {
	in.duration[o].Observe(in.Now().Sub(start).Seconds())
}

func (in *intake) countRefused(source *access.Grant, why *telemetry.Refusal, n int) {
	in.refused[why.Kind].Add(float64(n))
	source.CountRefused(why.Kind, n)
	in.note(source, why)
}

var (
	errNoKey        = errors.New("missing source key: send it as Authorization: Bearer KEY")
	errNotBearer    = errors.New("invalid Authorization header: it must be Bearer KEY")
	errKeyInAddress = errors.New("a key in the address is accepted only for a source of a format such as torque: " +
		"send it as Authorization: Bearer KEY")
)

// keyReasons has the metric's label for each error. Other errors have the first label.
var keyReasons = []struct {
	err    error
	reason string
}{
	{access.ErrMalformed, "malformed"},
	{errNoKey, "missing"},
	{access.ErrIsToken, "access_token"},
	{access.ErrNotKnown, "unknown"},
	{access.ErrExpired, "expired"},
	{access.ErrRevoked, "revoked"},
	{access.ErrReplaced, "replaced"},
}

func (in *intake) countKey(source *access.Grant, err error) {
	reason := keyReasons[0].reason
	for _, k := range keyReasons {
		if errors.Is(err, k.err) {
			reason = k.reason
		}
	}
	in.keys.WithLabelValues(reason).Inc()
	if source != nil {
		in.warn(source)
	}
}

func (in *intake) note(source *access.Grant, why *telemetry.Refusal) {
	source.NoteRefused(why.Kind, cmp.Or(why.Shown, why.Text), in.Now())
	// append logs an outage of the store, and a backlog passes in a second.
	if why.Kind != access.NotStored && why.Kind != access.Backlog {
		in.warn(source)
	}
}

func (in *intake) warn(source *access.Grant) {
	last, others, due := source.Unlogged(in.Now())
	if !due {
		return
	}
	const text = "refused telemetry or a key of a source"
	args := []any{"source", source.Name, "reason", last.Reason.String(), "text", last.Text,
		"others_since_last_line", others}
	if last.Reason == access.WrongKey { // strangers can name all sources: one limit for their lines
		in.wrongKeys.Log(in.Log, text, args...)
		return
	}
	in.Log.Warn(text, args...)
}

func (in *intake) store(ctx context.Context, b *telemetry.Batch) error {
	if b.First != nil {
		for why, n := range b.Refused {
			if n > 0 {
				in.refused[why].Add(float64(n))
				b.Source.CountRefused(access.Refusal(why), n)
			}
		}
		in.note(b.Source, b.First)
	}
	in.ignored.Add(float64(b.IgnoredTotal))
	in.late.Add(float64(b.Late))
	unused := 0
	for _, why := range telemetry.UnusedKinds {
		in.unused[why].Add(float64(b.UnusedByReason[why]))
		unused += b.UnusedByReason[why]
	}
	if f, first := b.Source.CompareSpeeds(b.Samples); first {
		in.Log.Warn("the speeds of a source differ from its positions by a factor: have it send km/h",
			"source", b.Source.Name, "factor", f.Factor, "unit", f.Unit, "vehicles", f.Vehicles, "compared", f.Compared)
	}
	err := in.append(ctx, b.Samples)
	accepted := b.Accepted
	if err != nil {
		in.countRefused(b.Source, errNotStored, b.Accepted)
		accepted = 0
	}
	in.accepted.Add(float64(accepted))
	b.Source.CountSamples(access.SampleCounts{
		Accepted: int64(accepted), Ignored: int64(b.IgnoredTotal), Unused: int64(unused), Late: int64(b.Late),
	})
	return err
}

func (in *intake) append(ctx context.Context, samples []vehicle.Sample) error {
	if len(samples) == 0 {
		return nil
	}
	err := in.Store.Append(ctx, samples)
	switch {
	case err == nil:
		if in.failing.CompareAndSwap(true, false) {
			in.Log.Info("storing telemetry again")
		}
	case errors.Is(err, context.Canceled):
		// The sender disconnected, or the node is shutting down.
	case in.failing.CompareAndSwap(false, true):
		in.Log.Error("cannot store telemetry; senders will send it again", "error", err)
	}
	return err
}
