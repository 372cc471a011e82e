package ingest

import (
	"context"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// untraced stands for a span where nothing is traced.
var untraced trace.Span = noop.Span{}

// span begins the span of one request, or of the messages that are stored
// together. Nobody outside decides what is traced: a traceparent that a sender
// sends is not looked at. No attribute names a vehicle or a source.
func (in *intake) span(ctx context.Context, name string, start time.Time) (context.Context, trace.Span) {
	if in.Tracer == nil {
		return ctx, untraced
	}
	return in.Tracer.Start(ctx, name, trace.WithTimestamp(start), trace.WithSpanKind(trace.SpanKindServer))
}

// endSpan ends a span of [intake.span].
func endSpan(s trace.Span, o outcome) {
	if s.IsRecording() {
		s.SetAttributes(attribute.String("carstate.outcome", string(o)))
		if o == unavailable {
			s.SetStatus(codes.Error, "not stored")
		}
	}
	s.End()
}

// noteBatch adds to the span of the context what is stored.
func (in *intake) noteBatch(ctx context.Context, b *batch) {
	if in.Tracer == nil {
		return
	}
	if s := trace.SpanFromContext(ctx); s.IsRecording() {
		s.SetAttributes(attribute.Int("carstate.samples.accepted", b.accepted), attribute.Int("carstate.samples.refused", b.rejectedTotal()))
	}
}

// inSpan gives a request the context of its span.
func inSpan(ctx context.Context, r *http.Request, s trace.Span) *http.Request {
	if !s.IsRecording() {
		return r
	}
	return r.WithContext(ctx)
}
