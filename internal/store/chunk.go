package store

import (
	"context"
	"fmt"
	"sync/atomic"

	"go.opentelemetry.io/otel/trace"

	"carstate/internal/store/codec"
	"carstate/internal/vehicle"
)

const (
	// ChunkSamples and ChunkBytes are where a [Chunk] ends. The last sample may exceed the
	// bytes, by MaxSampleBytes at most.
	ChunkSamples = BatchStates
	ChunkBytes   = 512 << 10
	// MaxSampleBytes is more than the largest sample of 65,535 trouble codes.
	MaxSampleBytes = 400 << 10
	// UsualSampleBytes is about what a packed sample takes.
	UsualSampleBytes = 44
)

// ErrTooLarge means that a sample cannot be stored.
var ErrTooLarge = fmt.Errorf("a sample is larger than %d bytes", MaxSampleBytes)

// Chunk is a run of samples of one partition that belong to one Append.
type Chunk struct {
	Partition int
	Count     int              // of the samples
	Samples   []vehicle.Sample // nil if the engine does not want them
	Packed    []byte
	Waiter    *Waiter
}

// Pack packs samples into chunks of their partitions. With keep, the chunks hold the samples
// as they are too. bytes is the size of all.
func Pack(samples []vehicle.Sample, partitions int, keep bool) (chunks []Chunk, bytes int, err error) {
	open := make([]int, partitions) // index of the partition's last chunk, plus one
	for i := range samples {
		p := codec.PartitionOf(samples[i].Vehicle, partitions)
		if n := open[p]; n == 0 || chunks[n-1].Count >= ChunkSamples || len(chunks[n-1].Packed) >= ChunkBytes {
			room := min(len(samples)-i, ChunkSamples)*UsualSampleBytes/partitions + UsualSampleBytes
			chunks = append(chunks, Chunk{Partition: p, Packed: make([]byte, 0, room)})
			open[p] = len(chunks)
			if keep && partitions == 1 { // the samples need no copy
				chunks[len(chunks)-1].Samples = samples[i:i]
			}
		}
		c := &chunks[open[p]-1]
		before := len(c.Packed)
		c.Packed = codec.AppendSample(c.Packed, &samples[i])
		if len(c.Packed)-before > MaxSampleBytes {
			return nil, 0, ErrTooLarge
		}
		bytes += len(c.Packed) - before
		c.Count++
		switch {
		case keep && partitions == 1:
			c.Samples = c.Samples[:c.Count]
		case keep:
			c.Samples = append(c.Samples, samples[i])
		}
	}
	return chunks, bytes, nil
}

// Waiter is one Append that waits for its chunks.
type Waiter struct {
	left   atomic.Int32
	err    atomic.Pointer[error]
	done   chan struct{}
	Traced trace.SpanContext // of the Append; zero: not traced
}

// NewWaiter returns what waits for all of some chunks.
func NewWaiter(ctx context.Context, t trace.Tracer, chunks []Chunk) *Waiter {
	w := &Waiter{done: make(chan struct{}), Traced: Traced(ctx, t)}
	w.left.Store(int32(len(chunks)))
	for i := range chunks {
		chunks[i].Waiter = w
	}
	return w
}

// Finish notes that one chunk was stored, or was not.
func (w *Waiter) Finish(err error) {
	if err != nil {
		w.err.CompareAndSwap(nil, &err)
	}
	if w.left.Add(-1) == 0 {
		close(w.done)
	}
}

// Done is closed once every chunk is finished.
func (w *Waiter) Done() <-chan struct{} { return w.done }

// Err is why a chunk was not stored, if one was not.
func (w *Waiter) Err() error {
	if err := w.err.Load(); err != nil {
		return *err
	}
	return nil
}
