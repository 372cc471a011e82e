package store

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Traces follow samples from the request that brought them over the group commit to the
// fold. A commit that holds samples of several traced requests continues the first one's
// trace and links to the others; so does a fold of several commits. Without a tracer
// nothing of this runs.

// maxTraced bounds the links of one span.
const maxTraced = 64

// Traced is the span under which an Append was called.
func Traced(ctx context.Context, t trace.Tracer) trace.SpanContext {
	if t == nil {
		return trace.SpanContext{}
	}
	return trace.SpanContextFromContext(ctx)
}

// CommitSpan begins the span of a group commit of requests. Without a sampled request it
// returns nil and the context as it is.
func CommitSpan(ctx context.Context, t trace.Tracer, requests []trace.SpanContext, samples int) (context.Context, trace.Span) {
	if t == nil {
		return ctx, nil
	}
	var from []trace.SpanContext
	for _, s := range requests {
		if s.IsSampled() && len(from) < maxTraced {
			from = append(from, s)
		}
	}
	if len(from) == 0 {
		return ctx, nil
	}
	return t.Start(trace.ContextWithSpanContext(ctx, from[0]), "group commit",
		trace.WithSpanKind(trace.SpanKindProducer), linksTo(from[1:]),
		trace.WithAttributes(attribute.Int("carstate.samples", samples)))
}

func linksTo(others []trace.SpanContext) trace.SpanStartOption {
	links := make([]trace.Link, len(others))
	for i, s := range others {
		links[i].SpanContext = s
	}
	return trace.WithLinks(links...)
}

// EndSpan ends a span that may be nil.
func EndSpan(s trace.Span, err error) {
	if s == nil {
		return
	}
	if err != nil {
		s.SetStatus(codes.Error, "not stored")
	}
	s.End()
}

// FoldSpans are the traced commits that a partition has read and not folded yet. The zero
// value is ready.
type FoldSpans struct {
	from  []trace.SpanContext
	since time.Time
}

// Note remembers that a commit was read, if it is traced.
func (f *FoldSpans) Note(s trace.SpanContext) {
	if !s.IsSampled() || len(f.from) == maxTraced {
		return
	}
	if len(f.from) == 0 {
		f.since = time.Now()
	}
	f.from = append(f.from, s)
}

// Folded writes the span of a fold that is stored now.
func (f *FoldSpans) Folded(ctx context.Context, t trace.Tracer, partition, states int) {
	if len(f.from) == 0 || t == nil {
		return
	}
	from := f.from
	f.from = nil
	_, span := t.Start(trace.ContextWithRemoteSpanContext(ctx, from[0]), "fold",
		trace.WithTimestamp(f.since), trace.WithSpanKind(trace.SpanKindConsumer), linksTo(from[1:]),
		trace.WithAttributes(attribute.Int("carstate.partition", partition), attribute.Int("carstate.states", states)))
	span.End()
}
