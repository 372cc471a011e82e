package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"example.org/carstate/internal/access"
)

// traces sends the spans of sampled requests to a collector.
type traces struct {
	provider *sdktrace.TracerProvider // nil if nothing is traced
}

// newTraces returns the sender of traces that the configuration describes. It opens no connection
// yet. If OTLPEndpoint is "", the sender sends nothing. If the tracing library refuses the endpoint
// or a variable OTEL_EXPORTER_OTLP_…, newTraces returns an error.
func newTraces(ctx context.Context, c *Config) (traces, error) {
	if c.OTLPEndpoint == "" {
		return traces{}, nil
	}
	// The library's own log prints headers that the library cannot parse, and a header may contain
	// the collector's key.
	otel.SetLogger(logr.Discard())
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(c.OTLPEndpoint),
		otlptracehttp.WithProxy(proxyOf))
	if err != nil {
		return traces{}, fmt.Errorf("traces cannot be sent: check --otlp-endpoint and the variables "+
			"OTEL_EXPORTER_OTLP_…: %w", err)
	}
	// The environment may add attributes of this process (OTEL_RESOURCE_ATTRIBUTES). Attributes
	// that cannot be parsed are left out.
	about, _ := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithFromEnv(), resource.WithAttributes(
		attribute.String("service.name", "carstate"), attribute.String("service.version", c.Version)))
	return traces{sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(&quietExporter{SpanExporter: exporter, log: c.Log}),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(c.TraceSample))),
		sdktrace.WithResource(about),
	)}, nil
}

// proxyOf returns the proxy for a request that sends traces. It refuses requests that follow a
// redirect, because they would send the collector's key to the target. With other methods to
// prevent redirects, the library ignores variables such as OTEL_EXPORTER_OTLP_CERTIFICATE.
func proxyOf(r *http.Request) (*url.URL, error) {
	if r.Response != nil {
		return nil, errors.New("the collector answers with a redirect, which is not followed")
	}
	return http.ProxyFromEnvironment(r)
}

// tracer returns the tracer that creates spans, or nil if nothing is traced.
func (t traces) tracer() trace.Tracer {
	if t.provider == nil {
		return nil
	}
	return t.provider.Tracer("carstate")
}

// close sends the remaining spans and ends the exporter.
func (t traces) close(ctx context.Context) error {
	if t.provider == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// quietExporter logs once when spans cannot be sent, and once when they can be sent again. Spans
// that cannot be sent are dropped.
type quietExporter struct {
	sdktrace.SpanExporter
	log     *slog.Logger
	failing atomic.Bool
}

// ExportSpans implements [sdktrace.SpanExporter]. It always returns nil, because it logs the error
// itself.
func (q *quietExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := q.SpanExporter.ExportSpans(ctx, spans)
	switch {
	case err == nil && q.failing.CompareAndSwap(true, false):
		q.log.Info("traces are being sent again")
	case err != nil && q.failing.CompareAndSwap(false, true):
		q.log.Warn("traces cannot be sent and are dropped: check --otlp-endpoint",
			"error", withoutResponse(access.OneLine(err)))
	}
	return nil
}

// withoutResponse returns the text of an error of the tracing library without the collector's
// response that the text contains, because the response may repeat the collector's key.
func withoutResponse(text string) string {
	for _, mark := range []string{"body: ", "partial success: "} {
		text, _, _ = strings.Cut(text, mark)
	}
	return strings.TrimRight(text, " (")
}

// TracesURL converts the flag --otlp-endpoint into [Config.OTLPEndpoint]. Without a path, it adds
// that of OTLP, /v1/traces. ok is false for anything but an http or https URL with a host and
// without a user, or "".
func TracesURL(endpoint string) (_ string, ok bool) {
	if endpoint == "" {
		return "", true
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		return "", false
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/traces"
	}
	return u.String(), true
}
