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

// untraced is the span that is used if tracing is off.
var untraced trace.Span = noop.Span{}

// span begins the span of one request, or of the MQTT messages that are stored together. It returns
// the span and a context that contains it. It ignores a traceparent header, so that senders cannot
// decide what is traced. No attribute names a vehicle or a source. If tracing is off, span returns
// ctx and the span untraced.
func (in *intake) span(ctx context.Context, name string, start time.Time) (context.Context, trace.Span) {
	if in.Tracer == nil {
		return ctx, untraced
	}
	return in.Tracer.Start(ctx, name, trace.WithTimestamp(start), trace.WithSpanKind(trace.SpanKindServer))
}

func endSpan(s trace.Span, o outcome) {
	if s.IsRecording() {
		s.SetAttributes(attribute.String("carstate.outcome", string(o)))
		if o == unavailable || o == readOnlyNow || o == noRoom {
			s.SetStatus(codes.Error, "not stored")
		}
	}
	s.End()
}

// noteBatch adds the numbers of accepted and refused samples of b to the span in ctx.
func (in *intake) noteBatch(ctx context.Context, b *batch) {
	if in.Tracer == nil {
		return
	}
	if s := trace.SpanFromContext(ctx); s.IsRecording() {
		s.SetAttributes(attribute.Int("carstate.samples.accepted", b.accepted),
			attribute.Int("carstate.samples.refused", b.rejectedTotal()))
	}
}

// inSpan returns r with ctx, the context of span s. If s is not recorded, it returns r itself.
func inSpan(ctx context.Context, r *http.Request, s trace.Span) *http.Request {
	if !s.IsRecording() {
		return r
	}
	return r.WithContext(ctx)
}
