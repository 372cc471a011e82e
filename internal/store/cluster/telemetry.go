package cluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/cluster/natsconn"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/store/engine"
	"example.org/carstate/internal/vehicle"
)

func (e *Engine) TelemetryStream(p int) string { return e.configs[p%e.streams].Name }

func (e *Engine) Append(ctx context.Context, samples []vehicle.Sample) error {
	if len(samples) == 0 {
		return nil
	}
	if e.backlogged.Load() {
		return store.ErrBacklog
	}
	chunks := engine.Pack(samples, e.partitions)
	w := engine.NewWaiter(chunks)
	for _, k := range chunks {
		if err := e.queues[k.Partition].Add(k); err != nil {
			w.Finish(err) // the queues drop the chunks that they have
			return err
		}
	}
	select {
	case <-w.Done():
		return w.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

const maxWaitingBytes = 8 << 20

func (e *Engine) runQueue(ctx context.Context, p int, q *engine.Queue) {
	q.Run(ctx, e.metrics, func(ctx context.Context, chunks []engine.Chunk) error {
		var packed []byte
		for i := range chunks {
			packed = append(packed, chunks[i].Packed...)
		}
		seq, err := e.publish(ctx, p, packed)
		if err != nil {
			return err
		}
		for i := range chunks {
			e.unfolded.Store(p, seq, chunks[i].Source, chunks[i].Count)
		}
		return nil
	})
}

// After a time-out, the commit may be stored or not, so publish repeats it; NATS recognizes a
// duplicate by the message id. The error is [store.ErrBacklog] if the stream is full, and
// [engine.ErrClosed] if ctx is canceled.
func (e *Engine) publish(ctx context.Context, p int, packed []byte) (seq uint64, _ error) {
	ctx, cancel := context.WithTimeout(ctx, e.config.Patience.Store)
	defer cancel()
	failing, committing := &e.failing[p%e.streams], &e.committing[p%e.streams]
	committing.Add(1)
	defer committing.Add(-1)
	id, subject := rand.Text(), codec.TelemetrySubject(p)
	m := &nats.Msg{Subject: subject, Data: codec.Seal(subject, append([]byte{0}, s2.Encode(nil, packed)...))}
	for {
		try, cancel := context.WithTimeout(ctx, e.config.Timeouts.Try)
		ack, err := e.js.PublishMsg(try, m, jetstream.WithMsgID(id), jetstream.WithExpectStream(e.TelemetryStream(p)))
		cancel()
		code := natsconn.Code(err)
		switch {
		case err == nil:
			failing.Store(false)
			return ack.Sequence, nil // stored by this try or an earlier one
		case full(err):
			failing.Store(false) // NATS stores again once there is room
			return 0, store.ErrBacklog
		case errors.Is(ctx.Err(), context.Canceled):
			return 0, engine.ErrClosed
		case errors.Is(err, nats.ErrMaxPayload), code != 0 && code != duplicateInProcess: // NATS refuses the commit
			return 0, err
		}
		failing.Store(true)
		if ctx.Err() != nil {
			return 0, err
		}
		e.warned.commit.Log(e.config.Log, "cannot store a commit of samples yet; will retry", "subject", subject, "error", err)
		if periodic.Pause(ctx, 100*time.Millisecond) != nil {
			return 0, err
		}
	}
}

const (
	storeFailed        = 10077
	duplicateInProcess = 10158 // an earlier write with the same message id is still being processed
)

func full(err error) bool {
	return natsconn.Code(err) == storeFailed && strings.Contains(err.Error(), "maximum bytes")
}

const maxCommitBytes = engine.ChunkBytes + 2*engine.MaxSampleBytes // before it is compressed

func unpackCommit(m message) ([]byte, error) {
	body, err := codec.Unseal(m.Subject, m.Data)
	if err != nil {
		return nil, err
	}
	if size, err := s2.DecodedLen(body); err != nil || size > maxCommitBytes {
		return nil, codec.ErrDamaged
	}
	packed, err := s2.Decode(nil, body)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", codec.ErrDamaged, err)
	}
	return packed, nil
}

// tryTelemetry stores empty commits after a failure: only a stored one proves that writes work.
func (e *Engine) tryTelemetry(ctx context.Context, i int) {
	for range periodic.Every(ctx, e.config.Timeouts.Beat) {
		if e.failing[i].Load() && e.committing[i].Load() == 0 { // a commit in progress shows by itself whether writes work
			_, _ = e.publish(ctx, i, nil)
		}
	}
}

// Recent reads one window of time after another, the newest first. Each begins windowGrowth times
// as long ago as the one before, so a short deadline yields the newest samples.
const (
	firstWindow  = 10 * time.Second
	windowGrowth = 3
)

func (e *Engine) Recent(ctx context.Context, id vehicle.ID, most int) (store.Recent, error) {
	s, err := e.js.Stream(ctx, e.TelemetryStream(codec.PartitionOf(id, e.partitions)))
	if ctx.Err() != nil {
		return store.Recent{Since: e.config.Now()}, nil
	}
	if err != nil {
		return store.Recent{}, fmt.Errorf("cannot read the retained telemetry: %w", err)
	}
	state, now := s.CachedInfo().State, e.config.Now()
	found, until := store.Recent{Since: now}, state.LastSeq+1
	for span := firstWindow; ; span *= windowGrowth {
		from := now.Add(-span)
		first, samples, err := e.window(ctx, id, from, until)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return store.Recent{}, fmt.Errorf("cannot read the retained telemetry: %w", err)
		}
		found.Samples, found.Since, until = append(found.Samples, samples...), from, first
		if found.All = state.Msgs == 0 || !from.After(state.FirstTime); found.All || len(found.Samples) >= most {
			break
		}
	}
	slices.SortStableFunc(found.Samples, func(a, b vehicle.Sample) int { return int(a.Time - b.Time) })
	return found, nil
}

// first is the sequence of the first commit that was read, or until.
func (e *Engine) window(
	ctx context.Context, id vehicle.ID, from time.Time, until uint64,
) (first uint64, found []vehicle.Sample, err error) {
	p := codec.PartitionOf(id, e.partitions)
	commits := e.read(ctx, e.TelemetryStream(p), nats.StartTime(from),
		nats.ConsumerFilterSubjects(codec.TelemetrySubject(p)))
	first = until
	for m, err := range commits {
		if err != nil {
			return 0, nil, err
		}
		if m.seq() >= until {
			break
		}
		first = min(first, m.seq())
		body, err := unpackCommit(m)
		if err != nil {
			return 0, nil, err
		}
		if !bytes.Contains(body, []byte(id)) {
			continue // far cheaper than decoding all samples of the commit
		}
		err = codec.DecodeSamples(body, func(x vehicle.Sample) {
			if x.Vehicle == id && !e.forgotten.Covers(id) {
				found = append(found, x)
			}
		})
		if err != nil {
			return 0, nil, err
		}
	}
	return first, found, nil
}
