package engine

import (
	"fmt"
	"sync/atomic"

	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/vehicle"
)

const (
	// Only its last sample may make a [Chunk] exceed ChunkBytes, by at most MaxSampleBytes.
	ChunkSamples = store.MaxBatch - 1
	ChunkBytes   = 512 << 10
	// Even a sample with 65,535 trouble codes, the maximum, is smaller.
	MaxSampleBytes   = 400 << 10
	UsualSampleBytes = 44
)

var ErrTooLarge = fmt.Errorf("a sample is larger than %d bytes", MaxSampleBytes)

// Chunk is a series of samples of one partition and source from the same [store.Engine.Append].
type Chunk struct {
	Partition int
	Source    uint32
	Count     int
	Samples   []vehicle.Sample // nil if the engine needs only Packed
	Packed    []byte
	Waiter    *Waiter
}

// With keep, the chunks contain the unpacked samples too, and may share memory with samples.
func Pack(samples []vehicle.Sample, partitions int, keep bool) (chunks []Chunk, err error) {
	open := make([]int, partitions)             // by partition: index of its last chunk, plus one
	last := make([]*vehicle.Sample, partitions) // in that chunk
	for i := range samples {
		p := codec.PartitionOf(samples[i].Vehicle, partitions)
		if n := open[p]; n == 0 || chunks[n-1].Count >= ChunkSamples || len(chunks[n-1].Packed) >= ChunkBytes ||
			samples[i].Source != last[p].Source || samples[i].Crowd != last[p].Crowd {
			room := min(len(samples)-i, ChunkSamples)*UsualSampleBytes/partitions + 2*UsualSampleBytes
			packed := codec.AppendSource(make([]byte, 0, room), &samples[i])
			chunks = append(chunks, Chunk{Partition: p, Source: samples[i].Source, Packed: packed})
			open[p], last[p] = len(chunks), &samples[i]
			if keep && partitions == 1 { // the chunk's samples are a prefix of samples[i:], so no copy is needed
				chunks[len(chunks)-1].Samples = samples[i:i]
			}
		}
		c := &chunks[open[p]-1]
		before := len(c.Packed)
		c.Packed = codec.AppendSample(c.Packed, &samples[i])
		if len(c.Packed)-before > MaxSampleBytes {
			return nil, ErrTooLarge
		}
		c.Count++
		switch {
		case keep && partitions == 1:
			c.Samples = c.Samples[:c.Count]
		case keep:
			c.Samples = append(c.Samples, samples[i])
		}
	}
	return chunks, nil
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
