package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// A trace follows samples from the request that brought them, through the group commit, to the
// fold. If a group commit stores the samples of several traced requests, its span belongs to the
// trace of the first request and links to the other requests. A fold of several commits has its
// parent and its links in the same way. Without a tracer, no span is created.

// maxTraced is the maximum number of requests or commits that one span refers to: one is its
// parent, and the others are links.
const maxTraced = 64

// commitSpan starts the span of a group commit that stores the given chunks. If t is nil or no
// chunk belongs to a request that is sampled for tracing, the span records nothing.
func commitSpan(ctx context.Context, t trace.Tracer, chunks []Chunk, samples int) (context.Context, trace.Span) {
	if t == nil {
		return ctx, trace.SpanFromContext(ctx)
	}
	var from []trace.SpanContext
	for i := range chunks {
		if s := chunks[i].Waiter.Traced; s.IsSampled() && len(from) < maxTraced {
			from = append(from, s)
		}
	}
	if len(from) == 0 {
		return ctx, trace.SpanFromContext(ctx)
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

// FoldSpans holds the spans of group commits in progress between reading and storing: the owner of
// a partition has read the samples of the commit, but the resulting states are not stored yet. The
// zero value is ready to use. The methods of FoldSpans may be called concurrently.
type FoldSpans struct {
	mu   sync.Mutex // guards from
	from []tracedCommit
}

type tracedCommit struct {
	seq  uint64
	at   time.Time // when the partition read it
	span trace.SpanContext
}

// Note records that the partition has read the group commit at sequence seq, whose span is s.
func (f *FoldSpans) Note(seq uint64, s trace.SpanContext) {
	if !s.IsSampled() {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.from) < maxTraced {
		f.from = append(f.from, tracedCommit{seq, time.Now(), s})
	}
}

// Folded writes the span of a fold of all group commits up to sequence seq, whose states were just
// stored, if Note has recorded any.
func (f *FoldSpans) Folded(ctx context.Context, t trace.Tracer, partition int, seq uint64, states int) {
	f.mu.Lock()
	n := 0
	for n < len(f.from) && f.from[n].seq <= seq {
		n++
	}
	folded := f.from[:n]
	f.from = slices.Clone(f.from[n:])
	f.mu.Unlock()
	if n == 0 || t == nil {
		return
	}
	since, from := folded[0].at, make([]trace.SpanContext, n)
	for i := range folded {
		from[i] = folded[i].span
	}
	_, span := t.Start(trace.ContextWithRemoteSpanContext(ctx, from[0]), "fold",
		trace.WithTimestamp(since), trace.WithSpanKind(trace.SpanKindConsumer), linksTo(from[1:]),
		trace.WithAttributes(attribute.Int("carstate.partition", partition), attribute.Int("carstate.states", states)))
	span.End()
}
