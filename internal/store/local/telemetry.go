package local

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"go.opentelemetry.io/otel/trace"

	"carstate/internal/store"
	"carstate/internal/store/codec"
	"carstate/internal/vehicle"
)

const (
	// groupSamples and groupBytes are where a group of samples ends. The last sample may
	// exceed the bytes, by maxSampleBytes at most.
	groupSamples = 1000
	groupBytes   = 512 << 10
	// maxSampleBytes is more than the largest sample of 65,535 trouble codes.
	maxSampleBytes = 400 << 10
	// usualSampleBytes is about what a packed sample takes.
	usualSampleBytes = 44
	// waitingBytes bounds what waits for the disk.
	waitingBytes = 16 << 20
	// commitBytes is where a commit ends.
	commitBytes = 4 << 20
)

var errTooLarge = fmt.Errorf("a sample is larger than %d bytes", maxSampleBytes)

// chunk is a run of samples of one partition that belong to one Append.
type chunk struct {
	partition int
	samples   []vehicle.Sample
	packed    []byte
	waiter    *waiter
}

// waiter is one Append that waits for its chunks.
type waiter struct {
	left   atomic.Int32
	err    atomic.Pointer[error]
	done   chan struct{}
	traced trace.SpanContext // of the Append; zero: not traced
}

// finish notes that one chunk was stored, or was not.
func (w *waiter) finish(err error) {
	if err != nil {
		w.err.CompareAndSwap(nil, &err)
	}
	if w.left.Add(-1) == 0 {
		close(w.done)
	}
}

// Append implements [store.Engine].
func (e *Engine) Append(ctx context.Context, samples []vehicle.Sample) error {
	if len(samples) == 0 {
		return nil
	}
	if e.over.Load() {
		return store.ErrBacklog
	}
	chunks, bytes, err := e.pack(samples)
	if err != nil {
		return err
	}
	w := &waiter{done: make(chan struct{}), traced: store.Traced(ctx, e.config.Tracer)}
	w.left.Store(int32(len(chunks)))
	for i := range chunks {
		chunks[i].waiter = w
	}
	if err := e.telemetry.enqueue(chunks, bytes); err != nil {
		return err
	}
	select {
	case <-w.done:
		if err := w.err.Load(); err != nil {
			return *err
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-e.jammed.Done():
		return errJammed
	case <-e.cut.Done():
		return errClosed
	}
}

// pack spreads samples over their partitions.
func (e *Engine) pack(samples []vehicle.Sample) (chunks []chunk, bytes int, err error) {
	n := e.dir.Partitions
	open := make([]int, n) // index of the partition's last chunk, plus one
	for i := range samples {
		p := codec.PartitionOf(samples[i].Vehicle, n)
		if c := open[p]; c == 0 || len(chunks[c-1].packed) >= groupBytes || len(chunks[c-1].samples) >= groupSamples {
			chunks = append(chunks, chunk{partition: p, packed: make([]byte, 0, min(len(samples)-i, groupSamples)*usualSampleBytes/n+usualSampleBytes)})
			open[p] = len(chunks)
			if n == 1 { // the samples need no copy
				chunks[len(chunks)-1].samples = samples[i:i]
			}
		}
		c := &chunks[open[p]-1]
		before := len(c.packed)
		c.packed = codec.AppendSample(c.packed, &samples[i])
		if len(c.packed)-before > maxSampleBytes {
			return nil, 0, errTooLarge
		}
		bytes += len(c.packed) - before
		if n == 1 {
			c.samples = c.samples[:len(c.samples)+1]
		} else {
			c.samples = append(c.samples, samples[i])
		}
	}
	return chunks, bytes, nil
}

// telemetryWriter stores samples. All that wait go to disk together, and while they are
// under way the next ones gather, so that a lone sample never waits for company and a slow
// disk makes commits larger.
type telemetryWriter struct {
	e    *Engine
	wake chan struct{} // holds a token while something may be waiting

	mu      sync.Mutex // guards what follows
	waiting []chunk
	bytes   int // of waiting
	closed  bool
}

// enqueue takes all chunks of an Append, or none.
func (w *telemetryWriter) enqueue(chunks []chunk, bytes int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed:
		return errClosed
	case w.e.jammed.Err() != nil:
		return errJammed
	case w.bytes > 0 && w.bytes+bytes > waitingBytes:
		return store.ErrOverloaded
	}
	w.waiting = append(w.waiting, chunks...)
	w.bytes += bytes
	select {
	case w.wake <- struct{}{}:
	default:
	}
	return nil
}

// take removes from the queue what one commit holds.
func (w *telemetryWriter) take() []chunk {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, bytes := 0, 0
	for n < len(w.waiting) && (n == 0 || bytes+len(w.waiting[n].packed) <= commitBytes) {
		bytes += len(w.waiting[n].packed)
		n++
	}
	taken := w.waiting[:n:n]
	if w.waiting = w.waiting[n:]; len(w.waiting) == 0 {
		w.waiting = nil // the array goes once the commit is done
	}
	w.bytes -= bytes
	return taken
}

// run stores what is enqueued until the context ends.
func (w *telemetryWriter) run(ctx context.Context) {
	defer w.close()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		}
		for ctx.Err() == nil {
			chunks := w.take()
			if len(chunks) == 0 {
				break
			}
			start := time.Now()
			samples := 0
			for i := range chunks {
				samples += len(chunks[i].samples)
			}
			committing, span := store.CommitSpan(ctx, w.e.config.Tracer, w.traced(chunks), samples)
			var groups []group
			err := w.e.safely(func() (err error) {
				groups, err = w.e.storeGroups(chunks, w.e.now())
				return err
			})
			store.EndSpan(span, err)
			for i := range groups {
				groups[i].traced = trace.SpanContextFromContext(committing)
			}
			if err == nil {
				w.e.deliver(groups)
			}
			w.e.metrics.Commit(samples, time.Since(start), err)
			for i := range chunks {
				chunks[i].waiter.finish(err)
			}
		}
	}
}

// traced are the spans of the Appends of some chunks.
func (w *telemetryWriter) traced(chunks []chunk) (from []trace.SpanContext) {
	if w.e.config.Tracer == nil {
		return nil
	}
	for i := range chunks {
		if c := chunks[i].waiter.traced; c.IsSampled() {
			from = append(from, c)
		}
	}
	return from
}

// close refuses what still waits and all that comes later.
func (w *telemetryWriter) close() {
	w.mu.Lock()
	waiting := w.waiting
	w.waiting, w.closed = nil, true
	w.mu.Unlock()
	for i := range waiting {
		waiting[i].waiter.finish(errClosed)
	}
}

// group is what was stored under one key.
type group struct {
	partition int
	seq       uint64 // sequences grow over all partitions
	before    uint64 // of the group before it in its partition
	stored    time.Time
	samples   []vehicle.Sample
	packed    int
	traced    trace.SpanContext
}

// storeGroups stores chunks as groups, several small chunks of a partition together, and
// returns once they are on disk.
func (e *Engine) storeGroups(chunks []chunk, now time.Time) (groups []group, err error) {
	b := e.db.NewBatch()
	defer b.Close()
	last := e.telemetryEnd()
	var parts []*chunk
	for p := range e.partitions {
		before := e.partitions[p].stored()
		flush := func() error {
			if len(parts) == 0 {
				return nil
			}
			last++
			g, err := e.setGroup(b, p, last, now, parts)
			g.before, before = before, last
			groups, parts = append(groups, g), parts[:0]
			return err
		}
		samples, bytes := 0, 0
		for i := range chunks {
			c := &chunks[i]
			if c.partition != p {
				continue
			}
			if samples+len(c.samples) > groupSamples || bytes+len(c.packed) > groupBytes {
				if err := flush(); err != nil {
					return nil, err
				}
				samples, bytes = 0, 0
			}
			parts = append(parts, c)
			samples, bytes = samples+len(c.samples), bytes+len(c.packed)
		}
		if err := flush(); err != nil {
			return nil, err
		}
	}
	return groups, b.Commit(e.sync())
}

// telemetryEnd is the last sequence of all partitions.
func (e *Engine) telemetryEnd() (last uint64) {
	for _, p := range e.partitions {
		last = max(last, p.stored())
	}
	return last
}

// timeBytes is what a stored group begins with: when it was stored, Unix ns.
const timeBytes = 8

// setGroup adds chunks of a partition to a batch under one key.
func (e *Engine) setGroup(b *pebble.Batch, p int, seq uint64, now time.Time, parts []*chunk) (group, error) {
	g := group{partition: p, seq: seq, stored: now}
	for _, c := range parts {
		g.packed += len(c.packed)
		if len(parts) == 1 {
			g.samples = c.samples
		} else {
			g.samples = append(g.samples, c.samples...)
		}
	}
	value := make([]byte, 0, timeBytes+codec.SealBytes+g.packed)
	value = binary.BigEndian.AppendUint64(value, uint64(now.UnixNano()))
	value = append(value, 0)
	for _, c := range parts {
		value = append(value, c.packed...)
	}
	sealed := codec.Seal(codec.TelemetrySubject(p), value[timeBytes:])
	return g, b.Set(telemetryKey(p, seq), value[:timeBytes+len(sealed)], nil)
}

// deliver lets the partitions have groups that are on disk.
func (e *Engine) deliver(groups []group) {
	for _, g := range groups {
		e.partitions[g.partition].deliver(g)
	}
}

// decodeGroup takes a stored group apart.
func decodeGroup(p int, key, value []byte) (g group, err error) {
	if len(value) < timeBytes {
		return g, codec.ErrDamaged
	}
	g = group{partition: p, seq: sequenceOf(key), stored: storedAt(value)}
	body, err := codec.Unseal(codec.TelemetrySubject(p), value[timeBytes:])
	if err != nil {
		return g, err
	}
	g.packed = len(body)
	g.samples = make([]vehicle.Sample, 0, len(body)/usualSampleBytes+1)
	return g, codec.DecodeSamples(body, func(x vehicle.Sample) { g.samples = append(g.samples, x) })
}

// storedAt is when a stored group was stored.
func storedAt(value []byte) time.Time { return time.Unix(0, int64(binary.BigEndian.Uint64(value))) }

// telemetrySpan is the keys of a partition's telemetry from a sequence on.
func telemetrySpan(p int, from uint64) (lower, upper []byte) {
	return telemetryKey(p, from), telemetryKey(p+1, 0)
}

// firstGroup returns the sequence of a partition's first group at or after a sequence, and
// when it was stored; 0 if there is none.
func (e *Engine) firstGroup(p int, from uint64) (seq uint64, stored time.Time, err error) {
	lower, upper := telemetrySpan(p, from)
	it, err := e.newIter(lower, upper)
	if err != nil {
		return 0, time.Time{}, err
	}
	defer it.Close()
	if !it.First() {
		return 0, time.Time{}, e.read(it.Error())
	}
	value, err := it.ValueAndErr()
	if err != nil || len(value) < timeBytes {
		return 0, time.Time{}, e.read(errors.Join(err, codec.ErrDamaged))
	}
	return sequenceOf(it.Key()), storedAt(value), nil
}
