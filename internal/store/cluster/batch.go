package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"carstate/internal/store"
	"carstate/internal/store/codec"
)

// Store stores all writes or none, and returns the sequence of the last. A batch of one is
// an ordinary message, which costs fewer syncs. [store.ErrConflict] means that the
// expectation failed, or another write of the subject was under way all the time,
// perhaps an earlier try of the caller's. Of writes that belong together only the last
// may carry an expectation, so that a torn batch never satisfies it. After a time-out
// nobody knows; the caller reads or tries again.
func (e *Engine) Store(ctx context.Context, stream string, writes []store.Write) (seq uint64, err error) {
	if len(writes) > store.MaxBatch {
		return 0, fmt.Errorf("a batch of %d records exceeds the limit of %d", len(writes), store.MaxBatch)
	}
	for until := time.Now().Add(e.config.Timeouts.Try); ; {
		seq, err = e.storeOnce(ctx, stream, writes)
		if api, ok := asAPIError(err); !ok || api.ErrorCode != writeUnderWay || time.Now().After(until) {
			if conflict(err) {
				err = fmt.Errorf("%w: %w", store.ErrConflict, err)
			}
			return seq, err
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(underWayAgain):
		}
	}
}

// underWayAgain is how long a write of a subject rests while another is under way.
const underWayAgain = 50 * time.Millisecond

// storeOnce is one try of Store.
//
// The client library has no call for atomic batches; the protocol is NATS
// ADR-50: every message names the batch and its place, the last one commits and
// is answered.
//
// The server drops batches beyond 50 open ones a stream, so a node keeps few
// open; it handles a stream's batches one by one anyway.
func (e *Engine) storeOnce(ctx context.Context, stream string, writes []store.Write) (uint64, error) {
	if len(writes) > 1 {
		select {
		case e.batches <- struct{}{}:
			defer func() { <-e.batches }()
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	ctx, cancel := context.WithTimeout(ctx, e.config.Timeouts.Try)
	defer cancel()
	id := nuid.Next()
	for i, w := range writes {
		m := &nats.Msg{Subject: w.Subject, Data: w.Record, Header: make(nats.Header, 4)}
		if w.Expected {
			m.Header[jetstream.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(w.Expect, 10)}
		}
		if len(writes) > 1 {
			m.Header["Nats-Batch-Id"] = []string{id}
			m.Header["Nats-Batch-Sequence"] = []string{strconv.Itoa(i + 1)}
		}
		if i < len(writes)-1 {
			if err := e.nc.PublishMsg(m); err != nil {
				return 0, err
			}
			continue
		}
		// A batch cannot span streams: the last write speaks for all.
		m.Header[jetstream.ExpectedStreamHeader] = []string{stream}
		if len(writes) > 1 {
			m.Header["Nats-Batch-Commit"] = []string{"1"}
		}
		answer, err := e.nc.RequestMsgWithContext(ctx, m)
		if err != nil {
			return 0, err
		}
		seq, err := parseAck(answer.Data)
		if err == nil && stream == codec.States {
			e.noteState(seq)
		}
		return seq, err
	}
	return 0, nil
}

func parseAck(data []byte) (uint64, error) {
	var ack struct {
		Error    *jetstream.APIError `json:"error"`
		Sequence uint64              `json:"seq"`
	}
	if err := json.Unmarshal(data, &ack); err != nil {
		return 0, fmt.Errorf("the engine's answer makes no sense: %w", err)
	}
	if ack.Error != nil {
		return 0, ack.Error
	}
	return ack.Sequence, nil
}

// Codes with which the server refuses a write for what it expects. A cluster's
// leader knows what a subject's last record is only while no write of it is under way.
const (
	wrongLastSequence = 10071
	writeUnderWay     = 10164
)

// conflict reports whether a write failed because its expectation did, or may have.
func conflict(err error) bool {
	api, ok := asAPIError(err)
	return ok && (api.ErrorCode == wrongLastSequence || api.ErrorCode == writeUnderWay)
}
