package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"example.org/carstate/internal/store"
)

// ErrClosed means that the engine was closed.
var ErrClosed = errors.New("the engine is closed")

// Queue holds samples that wait to be stored. It stores all waiting samples, up to a limit, in one
// group commit. While a commit is in progress, new samples wait together for the next one. So an
// idle engine stores a single sample at once, and on a slow disk the commits become larger.
type Queue struct {
	waitingBytes               int // maximum of bytes
	commitSamples, commitBytes int

	wake chan struct{} // holds one element while samples may be waiting

	mu      sync.Mutex // guards the fields below
	waiting []Chunk
	bytes   int // total size of the chunks in waiting
	closed  bool
}

// NewQueue returns an empty queue. More than waitingBytes bytes of samples are accepted only while
// no other samples wait. A chunk that is too large for a commit has one of its own.
func NewQueue(waitingBytes, commitSamples, commitBytes int) *Queue {
	return &Queue{
		waitingBytes: waitingBytes, commitSamples: commitSamples, commitBytes: commitBytes,
		wake: make(chan struct{}, 1),
	}
}

// Add queues chunks of one Append, all of them or none. The error is [store.ErrOverloaded] if too
// many samples wait, and ErrClosed once Run has returned.
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

// take removes the chunks of one commit from the queue, and returns them with the number of their
// samples. It drops a chunk whose Append has already failed. Otherwise a vehicle's newer samples
// could be stored without its older samples, and the older samples would be ignored when they are
// sent again.
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

// Run stores the queued chunks, with one call of store for each commit, until ctx ends. Then it
// rejects the waiting chunks and all chunks that are queued later.
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
