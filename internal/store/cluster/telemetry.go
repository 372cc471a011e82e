package cluster

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"carstate/internal/periodic"
	"carstate/internal/store"
	"carstate/internal/store/codec"
	"carstate/internal/store/engine"
	"carstate/internal/vehicle"
)

var errClosed = errors.New("the engine is closed")

// Append stores samples and returns nil once all of them are on disk. Samples of one vehicle keep
// their order. Append is safe for concurrent use. It stores all samples that wait for the same
// partition together. The error is [store.ErrBacklog] if too much telemetry is not folded yet or
// the stream is full, and [store.ErrOverloaded] if too many samples wait to be stored. After Close,
// it is errClosed. If the context ends first, the error is that of the context, and the samples may
// be stored nevertheless.
func (e *Engine) Append(ctx context.Context, samples []vehicle.Sample) error {
	if len(samples) == 0 {
		return nil
	}
	if e.backlog.over.Load() {
		return store.ErrBacklog
	}
	chunks, _, err := engine.Pack(samples, e.partitions, false)
	if err != nil {
		return err
	}
	w := engine.NewWaiter(ctx, e.config.Tracer, chunks)
	for i := range chunks {
		e.committers[chunks[i].Partition].enqueue(chunks[i])
	}
	select {
	case <-w.Done():
		return w.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// maxWaitingBytes is the maximum size in bytes of the samples of a partition that wait to be
// stored.
const maxWaitingBytes = 8 << 20

// committer stores one partition's samples. It sends one message at a time, with as many of the
// waiting samples as fit. New samples wait only until that message is stored. So an idle committer
// sends a single sample at once, and on a slow disk the commits become larger.
type committer struct {
	e       *Engine
	subject string
	wake    chan struct{} // holds one element while samples may be waiting

	mu      sync.Mutex // guards the fields below
	waiting []engine.Chunk
	bytes   int // size of the chunks in waiting
	closed  bool
}

func newCommitter(e *Engine, partition int) *committer {
	return &committer{e: e, subject: codec.TelemetrySubject(partition), wake: make(chan struct{}, 1)}
}

// enqueue queues a chunk, which is a part of one Append. If enqueue must refuse the chunk, the
// Append returns an error, and enqueue also refuses the later chunks of the same Append. Otherwise
// a vehicle's newer samples could be stored without its older samples, and the older samples would
// be ignored when they are sent again.
func (c *committer) enqueue(k engine.Chunk) {
	c.mu.Lock()
	var err error
	switch {
	case k.Waiter.Err() != nil:
		err = k.Waiter.Err()
	case c.closed:
		err = errClosed
	case c.bytes+len(k.Packed) > maxWaitingBytes:
		err = store.ErrOverloaded
	default:
		c.waiting = append(c.waiting, k)
		c.bytes += len(k.Packed)
	}
	c.mu.Unlock()
	if err != nil {
		k.Waiter.Finish(err)
		return
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run stores the queued chunks until the context ends, and then rejects those that still wait (see
// close). One commit is in flight at a time.
func (c *committer) run(ctx context.Context) {
	var record []byte
	for {
		select {
		case <-ctx.Done():
			c.close()
			return
		case <-c.wake:
		}
		for ctx.Err() == nil {
			batch, samples := c.take()
			if len(batch) == 0 {
				break
			}
			record = append(record[:0], 0)
			for i := range batch {
				record = append(record, batch[i].Packed...)
			}
			var err error
			if samples > 0 {
				start := time.Now()
				span, header := c.span(ctx, batch, samples)
				err = c.store(ctx, codec.Seal(c.subject, record), header)
				c.e.metrics.Commit(samples, time.Since(start), err)
				engine.EndSpan(span, err)
			}
			for i := range batch {
				batch[i].Waiter.Finish(err)
			}
		}
	}
}

// traceHeader writes the trace context of a commit into the header of its NATS message, and reads
// it from there.
var traceHeader propagation.TraceContext

// span begins the span of a group commit and returns the span and the header of its message. If no
// request in the commit is traced, both results are nil.
func (c *committer) span(ctx context.Context, batch []engine.Chunk, samples int) (trace.Span, nats.Header) {
	ctx, span := engine.CommitSpan(ctx, c.e.config.Tracer, batch, samples)
	if span == nil {
		return nil, nil
	}
	span.SetAttributes(attribute.Int("carstate.partition", batch[0].Partition))
	h := make(nats.Header)
	traceHeader.Inject(ctx, propagation.HeaderCarrier(h))
	return span, h
}

// take removes the chunks of the next commit from the queue, and returns them with the number of
// their samples. If the Append of a chunk has already failed, take returns the chunk without its
// samples.
func (c *committer) take() (batch []engine.Chunk, samples int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, bytes := 0, 0
	for n < len(c.waiting) {
		k := &c.waiting[n]
		if k.Waiter.Err() != nil {
			c.bytes -= len(k.Packed)
			k.Packed, k.Count = nil, 0
		}
		if n > 0 && (samples+k.Count > engine.ChunkSamples || bytes+len(k.Packed) > engine.ChunkBytes) {
			break
		}
		samples += k.Count
		bytes += len(k.Packed)
		n++
	}
	batch = c.waiting[:n:n]
	c.waiting = c.waiting[n:]
	c.bytes -= bytes
	if len(c.waiting) == 0 {
		c.waiting = nil // frees the array once the batch is stored
	}
	return batch, samples
}

// store sends one commit of samples until NATS confirms that the commit is on disk, for
// Patience.Store at most, and then returns the error of the last try. An error by which NATS
// refuses the commit is returned at once. After a time-out, it is unknown whether the commit was
// stored. So the same bytes are sent again with the same message id, by which NATS recognizes a
// duplicate. If the stream is full, the error is [store.ErrBacklog]. If the context is canceled
// first, the error is errClosed.
func (c *committer) store(ctx context.Context, record []byte, header nats.Header) error {
	ctx, cancel := context.WithTimeout(ctx, c.e.config.Patience.Store)
	defer cancel()
	c.e.committing.Add(1)
	defer c.e.committing.Add(-1)
	id := nuid.Next()
	for {
		try, cancel := context.WithTimeout(ctx, c.e.config.Timeouts.Try)
		_, err := c.e.js.PublishMsg(try, &nats.Msg{Subject: c.subject, Data: record, Header: maps.Clone(header)},
			jetstream.WithMsgID(id), jetstream.WithExpectStream(codec.Telemetry))
		cancel()
		if err == nil {
			c.e.failing.Store(false)
			return nil // stored by this try or an earlier one
		}
		_, answered := asAPIError(err)
		switch {
		case full(err):
			return store.ErrBacklog
		case errors.Is(ctx.Err(), context.Canceled):
			return errClosed
		case errors.Is(err, nats.ErrMaxPayload):
			return err
		case answered && !hasCode(err, duplicateInProcess): // NATS itself refuses the commit
			return err
		}
		c.e.failing.Store(true)
		if ctx.Err() != nil {
			return err
		}
		c.e.warned.commit.Log(c.e.log, "cannot store a commit of samples yet; will retry", "subject", c.subject,
			"error", err)
		if periodic.Pause(ctx, 100*time.Millisecond) != nil {
			return err
		}
	}
}

// close rejects, with errClosed, the waiting chunks and all chunks that are queued later.
func (c *committer) close() {
	c.mu.Lock()
	waiting := c.waiting
	c.waiting, c.closed = nil, true
	c.mu.Unlock()
	for i := range waiting {
		waiting[i].Waiter.Finish(errClosed)
	}
}
