package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"example.org/carstate/internal/store"
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

// More than waitingBytes is accepted only if nothing else waits. A chunk that is too large for a
// commit has one of its own.
func NewQueue(waitingBytes, commitSamples, commitBytes int) *Queue {
	return &Queue{
		waitingBytes: waitingBytes, commitSamples: commitSamples, commitBytes: commitBytes,
		wake: make(chan struct{}, 1),
	}
}

// All chunks of one Append are queued or none. The error is [store.ErrOverloaded], or ErrClosed
// once Run has returned.
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

// A chunk whose Append has failed is dropped, or a vehicle's newer samples could be stored without
// the older, which would be ignored when sent again.
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

// When ctx ends, Run rejects what waits and comes later.
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
