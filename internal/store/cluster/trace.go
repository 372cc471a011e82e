package cluster

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Traces follow samples from the request that brought them over the group commit
// to the fold. A commit that holds samples of several traced requests continues
// the first one's trace and links to the others; so does a fold of several
// commits. The commit's context travels in the header of its message. With
// [Config.Tracer] nil nothing of this runs.

// maxTraced bounds what one span links to.
const maxTraced = 64

var traceHeader propagation.TraceContext

// tracedOf is the span under which an Append was called.
func (e *Engine) tracedOf(ctx context.Context) trace.SpanContext {
	if e.config.Tracer == nil {
		return trace.SpanContext{}
	}
	return trace.SpanContextFromContext(ctx)
}

// commitSpan begins the span of a group commit and returns the header that its
// message is to carry; nil, nil unless one of its requests is traced.
func (e *Engine) commitSpan(ctx context.Context, batch []chunk, samples int) (trace.Span, nats.Header) {
	if e.config.Tracer == nil {
		return nil, nil
	}
	var from []trace.SpanContext
	for i := range batch {
		if s := batch[i].waiter.traced; s.IsSampled() && len(from) < maxTraced {
			from = append(from, s)
		}
	}
	if len(from) == 0 {
		return nil, nil
	}
	ctx, span := e.config.Tracer.Start(trace.ContextWithSpanContext(ctx, from[0]), "group commit",
		trace.WithSpanKind(trace.SpanKindProducer), linksTo(from[1:]),
		trace.WithAttributes(attribute.Int("carstate.partition", batch[0].partition), attribute.Int("carstate.samples", samples)))
	h := make(nats.Header)
	traceHeader.Inject(ctx, propagation.HeaderCarrier(h))
	return span, h
}

func linksTo(others []trace.SpanContext) trace.SpanStartOption {
	links := make([]trace.Link, len(others))
	for i, s := range others {
		links[i].SpanContext = s
	}
	return trace.WithLinks(links...)
}

// endSpan ends a span that may be nil.
func endSpan(s trace.Span, err error) {
	if s == nil {
		return
	}
	if err != nil {
		s.SetStatus(codes.Error, "not stored")
	}
	s.End()
}

// folding is the traced commits that a partition has read and not folded yet.
type folding struct {
	from  []trace.SpanContext
	since time.Time
}

// noteTraced remembers that a traced commit was read.
func (t *Partition) noteTraced(m *nats.Msg) {
	if t.e.config.Tracer == nil || len(m.Header) == 0 || len(t.folding.from) == maxTraced {
		return
	}
	ctx := traceHeader.Extract(context.Background(), propagation.HeaderCarrier(m.Header))
	if s := trace.SpanContextFromContext(ctx); s.IsSampled() {
		if len(t.folding.from) == 0 {
			t.folding.since = time.Now()
		}
		t.folding.from = append(t.folding.from, s)
	}
}

// traceFold writes the span of a fold that is stored now.
func (t *Partition) traceFold(ctx context.Context, states int) {
	f := t.folding
	if len(f.from) == 0 {
		return
	}
	t.folding = folding{}
	_, span := t.e.config.Tracer.Start(trace.ContextWithRemoteSpanContext(ctx, f.from[0]), "fold",
		trace.WithTimestamp(f.since), trace.WithSpanKind(trace.SpanKindConsumer), linksTo(f.from[1:]),
		trace.WithAttributes(attribute.Int("carstate.partition", t.number), attribute.Int("carstate.states", states)))
	span.End()
}
