package engine

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/vehicle"
)

var ErrClosed = errors.New("the engine is closed")

// While a commit is in progress, new samples wait for the next. So an idle engine stores a single
// sample at once, and on a slow disk the commits become larger.
type Queue struct {
	waitingBytes               int
	commitSamples, commitBytes int

	wake chan struct{} // holds one element while samples may be waiting

	mu      sync.Mutex // guards the fields below
	waiting []Chunk
	bytes   int
	closed  bool
}

// Chunks with which more than waitingBytes would wait are accepted only if nothing else waits. A
// chunk that exceeds commitSamples or commitBytes has a commit of its own.
func NewQueue(waitingBytes, commitSamples, commitBytes int) *Queue {
	return &Queue{
		waitingBytes: waitingBytes, commitSamples: commitSamples, commitBytes: commitBytes,
		wake: make(chan struct{}, 1),
	}
}

// Add queues all chunks or none. The error is [store.ErrOverloaded], or ErrClosed once Run has
// returned.
func (q *Queue) Add(chunks ...Chunk) error {
	bytes := 0
	for i := range chunks {
		bytes += len(chunks[i].Packed)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return ErrClosed
	case q.bytes > 0 && q.bytes+bytes > q.waitingBytes:
		return store.ErrOverloaded
	}
	q.waiting = append(q.waiting, chunks...)
	q.bytes += bytes
	select {
	case q.wake <- struct{}{}:
	default:
	}
	return nil
}

// take drops a chunk whose Append has failed: otherwise, newer samples of a vehicle could be stored
// without older ones, which would be ignored when sent again.
func (q *Queue) take() (chunks []Chunk, samples int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, bytes := 0, 0
	for ; n < len(q.waiting); n++ {
		k := q.waiting[n]
		if k.Waiter.Err() != nil {
			q.bytes -= len(k.Packed)
			k.Waiter.Finish(nil)
			continue
		}
		if len(chunks) > 0 && (samples+k.Count > q.commitSamples || bytes+len(k.Packed) > q.commitBytes) {
			break
		}
		chunks = append(chunks, k)
		samples += k.Count
		bytes += len(k.Packed)
	}
	q.bytes -= bytes
	if q.waiting = q.waiting[n:]; len(q.waiting) == 0 {
		q.waiting = nil // frees the array
	}
	return chunks, samples
}

// When ctx ends, Run rejects chunks that wait or come later.
func (q *Queue) Run(ctx context.Context, m *Metrics, store func(ctx context.Context, chunks []Chunk) error) {
	defer q.close()
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.wake:
		}
		for ctx.Err() == nil {
			chunks, samples := q.take()
			if len(chunks) == 0 {
				break
			}
			start := time.Now()
			err := store(ctx, chunks)
			m.commit(samples, time.Since(start), err)
			for i := range chunks {
				chunks[i].Waiter.Finish(err)
			}
		}
	}
}

func (q *Queue) close() {
	q.mu.Lock()
	waiting := q.waiting
	q.waiting, q.closed = nil, true
	q.mu.Unlock()
	for i := range waiting {
		waiting[i].Waiter.Finish(ErrClosed)
	}
}

const (
	// A [Chunk] exceeds ChunkBytes only by its last sample, by at most MaxSampleBytes.
	ChunkSamples     = store.MaxBatch - 1
	ChunkBytes       = 512 << 10
	MaxSampleBytes   = 400 << 10 // Even a sample with 65,535 trouble codes, the maximum, is smaller.
	UsualSampleBytes = 44
)

// Chunk is a series of samples of one partition and source from the same [store.Engine.Append].
type Chunk struct {
	Partition int
	Source    uint32
	Count     int
	Packed    []byte
	Waiter    *Waiter
}

func Pack(samples []vehicle.Sample, partitions int) (chunks []Chunk) {
	open := make([]int, partitions)             // by partition: index of its last chunk, plus one
	last := make([]*vehicle.Sample, partitions) // first sample of that chunk
	for i := range samples {
		p := codec.PartitionOf(samples[i].Vehicle, partitions)
		if n := open[p]; n == 0 || chunks[n-1].Count >= ChunkSamples || len(chunks[n-1].Packed) >= ChunkBytes ||
			samples[i].Source != last[p].Source || samples[i].Crowd != last[p].Crowd {
			room := min(len(samples)-i, ChunkSamples)*UsualSampleBytes/partitions + 2*UsualSampleBytes
			packed := codec.AppendSource(make([]byte, 0, room), &samples[i])
			chunks = append(chunks, Chunk{Partition: p, Source: samples[i].Source, Packed: packed})
			open[p], last[p] = len(chunks), &samples[i]
		}
		c := &chunks[open[p]-1]
		c.Packed = codec.AppendSample(c.Packed, &samples[i])
		c.Count++
	}
	return chunks
}

type Waiter struct {
	left atomic.Int32
	err  atomic.Pointer[error]
	done chan struct{}
}

func NewWaiter(chunks []Chunk) *Waiter {
	w := &Waiter{done: make(chan struct{})}
	w.left.Store(int32(len(chunks)))
	for i := range chunks {
		chunks[i].Waiter = w
	}
	return w
}

// Finish must be called once for each chunk.
func (w *Waiter) Finish(err error) {
	if err != nil {
		w.err.CompareAndSwap(nil, &err)
	}
	if w.left.Add(-1) == 0 {
		close(w.done)
	}
}

func (w *Waiter) Done() <-chan struct{} { return w.done }

func (w *Waiter) Err() error { return errorAt(&w.err) }
