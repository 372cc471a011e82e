package local

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/store/engine"
	"example.org/carstate/internal/vehicle"
)

const (
	waitingBytes = 16 << 20
	commitBytes  = 4 << 20 // both for [engine.NewQueue]
)

func (e *Engine) Append(ctx context.Context, samples []vehicle.Sample) error {
	if len(samples) == 0 {
		return nil
	}
	if e.over.Load() || e.reserve.scarce.Load() {
		return store.ErrBacklog
	}
	if e.writesFailed.Err() != nil {
		return errWritesFailed
	}
	chunks := engine.Pack(samples, e.dir.Partitions)
	w := engine.NewWaiter(chunks)
	if err := e.queue.Add(chunks...); err != nil {
		return err
	}
	select {
	case <-w.Done():
		return w.Err()
	case <-ctx.Done():
		return ctx.Err()
	case <-e.halted.Done():
		return context.Cause(e.halted)
	}
}

func (e *Engine) storeChunks(_ context.Context, chunks []engine.Chunk) error {
	groups, now := e.groupsOf(chunks), e.config.Now()
	err := e.safely(func() error {
		b := e.db.NewBatch()
		defer b.Close()
		for _, g := range groups {
			if err := b.Set(telemetryKey(g.partition, g.seq), g.encode(now), nil); err != nil {
				return err
			}
		}
		return e.commit(b, codec.Telemetry, groups[len(groups)-1].seq)
	})
	if err != nil {
		return err
	}
	for _, g := range groups {
		for _, c := range g.chunks {
			e.unfolded.Store(g.partition, g.seq, c.Source, c.Count)
		}
		e.partitions[g.partition].advance(g.seq)
	}
	return nil
}

type group struct {
	partition int
	seq       uint64 // the groups of all partitions are numbered together, without gaps
	before    uint64 // sequence of the partition's previous group; shows a missing one
	chunks    []engine.Chunk
	count     int // of samples
	packed    []byte
}

func (e *Engine) groupsOf(chunks []engine.Chunk) (groups []*group) {
	last := e.telemetryEnd()
	open := make([]*group, len(e.partitions)) // the last group of each partition
	for _, c := range chunks {
		g := open[c.Partition]
		if g == nil || g.count+c.Count > engine.ChunkSamples || len(g.packed)+len(c.Packed) > engine.ChunkBytes {
			last++
			before := e.partitions[c.Partition].stored()
			if g != nil {
				before = g.seq
			}
			g = &group{partition: c.Partition, seq: last, before: before}
			groups, open[c.Partition] = append(groups, g), g
		}
		g.chunks = append(g.chunks, c)
		g.count += c.Count
		g.packed = append(g.packed, c.Packed...)
	}
	return groups
}

func (e *Engine) telemetryEnd() (last uint64) {
	for _, p := range e.partitions {
		last = max(last, p.stored())
	}
	return last
}

const timeBytes = 8

func (g *group) encode(stored time.Time) []byte {
	b := make([]byte, 0, timeBytes+codec.SealBytes+binary.MaxVarintLen64+len(g.packed))
	b = append(binary.BigEndian.AppendUint64(b, uint64(stored.UnixNano())), codec.SchemaVersion)
	b = append(binary.AppendUvarint(b, g.before), g.packed...)
	return binary.LittleEndian.AppendUint32(b, codec.Checksum(codec.TelemetrySubject(g.partition), b[timeBytes:]))
}

// decodeGroup uses the memory of room for the samples.
func decodeGroup(p int, key, value []byte, room []vehicle.Sample) (g store.Group, before uint64, err error) {
	if len(value) < timeBytes {
		return g, 0, codec.ErrDamaged
	}
	g = store.Group{Seq: sequenceOf(key), Stored: storedAt(value)}
	body, err := codec.Unseal(codec.TelemetrySubject(p), value[timeBytes:])
	if err != nil {
		return g, 0, err
	}
	before, n := binary.Uvarint(body)
	if n <= 0 {
		return g, 0, codec.ErrDamaged
	}
	g.Samples = room[:0]
	err = codec.DecodeSamples(body[n:], func(x vehicle.Sample) { g.Samples = append(g.Samples, x) })
	return g, before, err
}

func storedAt(value []byte) time.Time { return time.Unix(0, int64(binary.BigEndian.Uint64(value))) }

func telemetrySpan(p int, from uint64) pebble.KeyRange {
	return pebble.KeyRange{Start: telemetryKey(p, from), End: telemetryKey(p+1, 0)}
}

// firstGroup returns the first group in an order, from a sequence on. If there is none, seq is 0.
func (e *Engine) firstGroup(p int, from uint64, o order) (seq uint64, stored time.Time, err error) {
	for is, err := range e.walk(context.Background(), telemetrySpan(p, from), o) {
		if err == nil && len(is.value) < timeBytes {
			err = codec.ErrDamaged
		}
		if err != nil {
			return 0, stored, e.viewError(err)
		}
		return sequenceOf(is.key), storedAt(is.value), nil
	}
	return 0, stored, nil
}

// lastGroup returns cursor if the last group cannot be read, but was folded before the last orderly
// close: it is not needed any more.
func (e *Engine) lastGroup(p int, cursor uint64) (seq uint64, err error) {
	seq, _, err = e.firstGroup(p, 0, backwards)
	if was, orderly := e.dir.Ends[telemetryEndName(p)]; errors.Is(err, codec.ErrDamaged) && orderly && was <= cursor {
		return cursor, nil
	}
	return seq, err
}

func (e *Engine) Recent(ctx context.Context, id vehicle.ID, most int) (found store.Recent, err error) {
	found.Since = e.config.Now()
	since := func(t time.Time) {
		if t.Before(found.Since) {
			found.Since = t
		}
	}
	p := codec.PartitionOf(id, e.dir.Partitions)
	found.All = true
	for is, err := range e.walk(ctx, telemetrySpan(p, 0), backwards) {
		if ctx.Err() != nil || len(found.Samples) >= most {
			found.All = false
			break
		}
		if err == nil && len(is.value) >= timeBytes {
			since(storedAt(is.value))
		}
		var g store.Group // empty, unless the vehicle may be in it
		if err == nil && bytes.Contains(is.value, []byte(id)) {
			g, _, err = decodeGroup(p, is.key, is.value, nil)
		}
		if err != nil {
			return found, fmt.Errorf("cannot read the retained telemetry: %w", e.viewError(err))
		}
		for _, x := range g.Samples {
			if x.Vehicle == id && !e.forgotten.Covers(id) {
				found.Samples = append(found.Samples, x)
			}
		}
	}
	if found.All {
		since(e.config.Now().Add(-e.config.Retention))
	}
	slices.SortStableFunc(found.Samples, func(a, b vehicle.Sample) int { return int(a.Time - b.Time) })
	return found, nil
}
