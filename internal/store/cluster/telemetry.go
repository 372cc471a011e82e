package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"go.opentelemetry.io/otel/trace"

	"carstate/internal/store"
	"carstate/internal/store/codec"
	"carstate/internal/vehicle"
)

var (
	errTooLarge = fmt.Errorf("a sample is larger than %d bytes", maxSampleBytes)

	errClosed = errors.New("the engine is closed")
)

// Append stores samples and returns nil once all of them are on disk. Samples of
// one vehicle keep their order. It may be called from many goroutines: all
// samples that wait for a partition go to disk together.
func (e *Engine) Append(ctx context.Context, samples []vehicle.Sample) error {
	if len(samples) == 0 {
		return nil
	}
	if err := e.backlog.err(); err != nil {
		return err
	}
	chunks, err := e.pack(samples)
	if err != nil {
		return err
	}
	w := &waiter{done: make(chan struct{}), traced: store.Traced(ctx, e.config.Tracer)}
	w.left.Store(int32(len(chunks)))
	for i := range chunks {
		chunks[i].waiter = w
		e.committers[chunks[i].partition].enqueue(chunks[i])
	}
	select {
	case <-w.done:
		if err := w.err.Load(); err != nil {
			return *err
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// chunk is a run of packed samples of one partition that one commit can take.
type chunk struct {
	partition int
	samples   int
	packed    []byte
	waiter    *waiter
}

// pack spreads samples over their partitions.
func (e *Engine) pack(samples []vehicle.Sample) ([]chunk, error) {
	open := make([]int, e.partitions) // index of the partition's last chunk, plus one
	var chunks []chunk
	for i := range samples {
		p := codec.PartitionOf(samples[i].Vehicle, e.partitions)
		if open[p] == 0 || chunks[open[p]-1].full() {
			room := min(len(samples)-i, maxCommitSamples)*usualSampleBytes/e.partitions + usualSampleBytes
			chunks = append(chunks, chunk{partition: p, packed: make([]byte, 0, room)})
			open[p] = len(chunks)
		}
		c := &chunks[open[p]-1]
		before := len(c.packed)
		c.packed = codec.AppendSample(c.packed, &samples[i])
		if len(c.packed)-before > maxSampleBytes {
			return nil, errTooLarge
		}
		c.samples++
	}
	return chunks, nil
}

// full leaves room for the largest sample below the payload limit.
func (c *chunk) full() bool {
	return c.samples >= maxCommitSamples || len(c.packed) >= maxCommitBytes
}

// waiter is one Append that waits for its chunks.
type waiter struct {
	left atomic.Int32
	err  atomic.Pointer[error]
	done chan struct{}

	traced trace.SpanContext // of the Append; zero: not traced
}

// failed reports whether the Append will return an error in any case.
func (w *waiter) failed() bool { return w.err.Load() != nil }

// finish notes that one chunk was stored, or was not.
func (w *waiter) finish(err error) {
	if err != nil {
		w.err.CompareAndSwap(nil, &err)
	}
	if w.left.Add(-1) == 0 {
		close(w.done)
	}
}
