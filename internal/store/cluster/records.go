package cluster

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
)

// Last implements [store.Records]. It reads from the stream's leader, and never from a replica,
// which may lag. If the record cannot be decoded, it returns the record without a Body, and an
// error.
func (c *conn) Last(ctx context.Context, stream, subject string) (store.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	m, err := c.legacy.GetLastMsg(stream, subject, nats.Context(ctx))
	if errors.Is(err, nats.ErrMsgNotFound) {
		return store.Record{}, nil
	}
	if err != nil {
		// The error omits the subject, which may hold a vid.
		return store.Record{}, fmt.Errorf("cannot read a record of %s from NATS: %w", stream, err)
	}
	body, err := codec.Unseal(subject, m.Data)
	return store.Record{Subject: subject, Body: body, Seq: m.Sequence, Sealed: m.Data}, err
}

const (
	// pageRecords is the maximum number of records in the response to one request of ScanFrom, and
	// pageBytes the maximum number of bytes.
	pageRecords = 1000
	pageBytes   = 8 << 20
	// replicaPause is the pause before conn.Before requests a record again, after a replica that
	// does not have the record yet has answered.
	replicaPause = 20 * time.Millisecond
)

// ScanFrom implements [store.Records]. Any server may answer. If the answering server lags behind,
// the newest records are missing; the caller gets them in a later call, to which it passes next as
// from.
func (c *conn) ScanFrom(
	ctx context.Context, stream string, from uint64, do func(store.Record) error,
) (next uint64, damaged int, err error) {
	for next = from; ; {
		records, end, err := c.directGet(ctx, stream, page{next, pageRecords, pageBytes})
		if errors.Is(err, errNoRecords) {
			return next, damaged, nil
		}
		if err != nil {
			return next, damaged, err
		}
		for _, r := range records {
			next = r.Seq + 1
			r.Body, err = codec.Unseal(r.Subject, r.Sealed)
			r.Newer = c.config.Newer.Note(stream, err)
			if err == nil || r.Newer {
				err = do(r)
			}
			if err != nil {
				damaged++
			}
		}
		if len(records) == 0 || end.Get("Nats-Num-Pending") == "0" {
			return next, damaged, nil
		}
	}
}

// Before implements [store.Records]. A damaged record is an error.
func (c *conn) Before(
	ctx context.Context, stream string, before uint64, limit int,
) (records []store.Record, older uint64, err error) {
	s, err := c.js.Stream(ctx, stream)
	if err != nil {
		return nil, 0, err
	}
	state := s.CachedInfo().State
	seq, first := state.LastSeq, max(state.FirstSeq, 1)
	if before != 0 {
		seq = min(seq, before-1)
	}
	for ; seq >= first && len(records) < limit; seq-- {
		m, err := s.GetMsg(ctx, seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			if state.NumDeleted > 0 { // an operator has deleted the record
				continue
			}
			// The replica that answered lags behind the leader.
			if err := periodic.Pause(ctx, replicaPause); err != nil {
				return nil, 0, err
			}
			seq++
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		r := store.Record{Subject: m.Subject, Seq: m.Sequence, Sealed: m.Data}
		r.Body, err = codec.Unseal(m.Subject, m.Data)
		switch {
		case c.config.Newer.Note(stream, err):
			r.Newer, r.Stored = true, m.Time
		case err != nil:
			return nil, 0, err
		}
		records = append(records, r)
	}
	if seq >= first {
		older = seq + 1
	}
	return records, older, nil
}

// Remove implements [store.Records]. A record of STATES may name a forgotten vehicle, so its bytes
// are also overwritten on disk. A record of another stream is only purged, and not overwritten,
// because the NATS account has no permission to delete single messages of other streams.
func (c *conn) Remove(ctx context.Context, stream string, records []store.Record) error {
	if len(records) == 0 {
		return nil
	}
	s, err := c.js.Stream(ctx, stream)
	if err != nil {
		return err
	}
	for _, r := range records {
		switch {
		case r.Seq == 0:
			err = s.Purge(ctx, jetstream.WithPurgeSubject(r.Subject))
		case stream == codec.States:
			err = s.SecureDeleteMsg(ctx, r.Seq)
		default:
			err = s.Purge(ctx, jetstream.WithPurgeSubject(r.Subject), jetstream.WithPurgeSequence(r.Seq+1))
		}
		if err != nil && !noSuchMessage(err) {
			return err
		}
	}
	return nil
}

// noSuchMessage reports whether a message could not be removed because it does not exist any more.
// It searches the text of the error, because the client library keeps nothing else of the response.
func noSuchMessage(err error) bool {
	if !errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) {
		return false
	}
	return strings.Contains(err.Error(), "no message found") ||
		strings.Contains(err.Error(), "err_code=10043") // no such sequence
}

func (c *conn) End(ctx context.Context, stream string) (store.End, error) {
	s, err := c.js.Stream(ctx, stream)
	if err != nil {
		return store.End{}, err
	}
	info := s.CachedInfo()
	return store.End{Last: info.State.LastSeq, Made: info.Created.UnixNano()}, nil
}

// Erased does nothing, because NATS decides when it compacts its files.
func (c *conn) Erased(context.Context) error { return nil }

// ErasedWithin returns ok false, because it is unknown when NATS compacts its files.
func (c *conn) ErasedWithin(context.Context) (d time.Duration, ok bool, err error) { return }

// TrimTo does nothing, and returns true, because only [Engine.Trim] removes telemetry.
func (c *conn) TrimTo(context.Context, uint64) (gone bool, err error) { return true, nil }

// Store implements [store.Records]. It stores a single write as an ordinary message, which costs
// fewer syncs than a batch. In a batch, only the last write may expect a sequence. The last write
// also commits the batch, so an incomplete batch is never stored. More than [store.MaxBatch] writes
// are an error.
//
// Store tries again only while NATS is processing another write of the subject, perhaps an earlier
// write of the same caller, for Timeouts.Try at most. Then it returns [store.ErrConflict], too.
func (c *conn) Store(ctx context.Context, stream string, writes []store.Write) (seq uint64, err error) {
	return c.storeIf(ctx, stream, "", writes)
}

// storeIf is like Store. If subject is not empty, it has the sequence that a write expects, instead of
// the subject of the write.
func (c *conn) storeIf(ctx context.Context, stream, subject string, writes []store.Write) (seq uint64, err error) {
	if len(writes) > store.MaxBatch {
		return 0, fmt.Errorf("a batch of %d records exceeds the limit of %d", len(writes), store.MaxBatch)
	}
	for until := time.Now().Add(c.config.Timeouts.Try); ; {
		seq, err = c.storeOnce(ctx, stream, subject, writes)
		if !hasCode(err, writeInProgress) || time.Now().After(until) {
			if hasCode(err, wrongLastSequence, writeInProgress) {
				err = fmt.Errorf("%w: %w", store.ErrConflict, err)
			}
			return seq, err
		}
		if err := periodic.Pause(ctx, inProgressBackoff); err != nil {
			return 0, err
		}
	}
}

// inProgressBackoff is the pause before a write is tried again while NATS is still processing
// another write of the subject.
const inProgressBackoff = 50 * time.Millisecond

// storeOnce is one try of storeIf. It returns the sequence of the last write.
//
// The client library has no call for atomic batches, so storeOnce implements NATS ADR-50. Every
// message contains the id of the batch and the number of the message in the batch. The last message
// commits the batch, and the server answers it.
//
// The server drops batches if a stream has more than 50 open ones, so a node opens at most
// openBatches. storeOnce waits until it may open another, or until the context ends. This costs no
// speed, because the server processes the batches of a stream one at a time.
func (c *conn) storeOnce(ctx context.Context, stream, subject string, writes []store.Write) (uint64, error) {
	if len(writes) > 1 {
		select {
		case c.batches <- struct{}{}:
			defer func() { <-c.batches }()
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeouts.Try)
	defer cancel()
	id := rand.Text()
	for i, w := range writes {
		m := &nats.Msg{Subject: w.Subject, Data: w.Record, Header: make(nats.Header, 4)}
		if w.Expected {
			m.Header[jetstream.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(w.Expect, 10)}
			if subject != "" {
				m.Header[jetstream.ExpectedLastSubjSeqSubjHeader] = []string{subject}
			}
		}
		if len(writes) > 1 {
			m.Header["Nats-Batch-Id"] = []string{id}
			m.Header["Nats-Batch-Sequence"] = []string{strconv.Itoa(i + 1)}
		}
		if i < len(writes)-1 {
			if err := c.nc.PublishMsg(m); err != nil {
				return 0, err
			}
			continue
		}
		// A batch belongs to one stream, so the header of the last write applies to all writes.
		m.Header[jetstream.ExpectedStreamHeader] = []string{stream}
		if len(writes) > 1 {
			m.Header["Nats-Batch-Commit"] = []string{"1"}
		}
		answer, err := c.nc.RequestMsgWithContext(ctx, m)
		if err != nil {
			return 0, err
		}
		var ack struct {
			Error    *jetstream.APIError `json:"error"`
			Sequence uint64              `json:"seq"`
		}
		if err := json.Unmarshal(answer.Data, &ack); err != nil {
			return 0, fmt.Errorf("%w: %w", errInvalidResponse, err)
		}
		if ack.Error != nil {
			return 0, ack.Error
		}
		return ack.Sequence, nil
	}
	return 0, nil
}

// Scan implements [store.Records]. For a subject that changes during the scan, do receives the
// newer record, either in addition to the older one or instead of it. While NATS is unavailable,
// Scan retries until the context ends, and then returns the error of the context.
func (c *conn) Scan(ctx context.Context, stream string, patterns []string, do func(store.Record) error) error {
	reading, stop := context.WithCancel(ctx)
	defer stop()
	f := c.newFeed(stream, patterns...)
	f.beat = nil // this node's copy of the stream is read by another feed
	var failed error
	last := uint64(0)
	f.apply = func(r store.Record) error {
		if reading.Err() != nil {
			return nil
		}
		if failed = do(r); failed != nil {
			stop()
		}
		last = r.Seq
		return nil
	}
	if err := f.Run(reading, stop); err != nil {
		return err
	}
	if err := errors.Join(failed, ctx.Err()); err != nil {
		return err
	}
	return c.scanTail(ctx, stream, f.created.Load(), last+1, func(r store.Record) error {
		for _, pattern := range patterns {
			if codec.Matches(pattern, r.Subject) {
				return do(r)
			}
		}
		return nil
	})
}

const (
	// The first request of scanTail asks for at most tailRecords records and tailBytes bytes. These
	// limits are low, because NATS stores nothing while it answers a request. After each request
	// that returns records but does not reach the end of the stream, the limits are doubled, up to
	// tailMost times their first values.
	tailRecords = 250
	tailBytes   = 4 << 20
	tailMost    = 16
	// tailPause is the pause before the next request, if a server has returned no records although
	// the end of the stream is not reached.
	tailPause = 10 * time.Millisecond
)

// scanTail calls do with all records from sequence next up to the end of the stream. It completes a
// Scan. While the Scan reads, a record may be replaced and missed; scanTail delivers the
// replacement. made is the creation time, in Unix ns, of the stream that the Scan has read.
// scanTail retries while NATS is unavailable, until the context ends, and then returns the error of
// the context. An error of do ends scanTail and is returned.
func (c *conn) scanTail(
	ctx context.Context, stream string, made int64, next uint64, do func(store.Record) error,
) error {
	for times := 1; ; {
		records, end, err := c.readPage(ctx, stream, made, next, times)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if c.isFinal(err) {
			return err
		}
		for _, r := range records {
			if err := do(r); err != nil {
				return err
			}
			next = r.Seq + 1
		}
		if end {
			return nil
		}
		rest := tailPause
		if err != nil {
			rest, times = feedBackoff, 1
		} else if len(records) > 0 {
			times = min(2*times, tailMost)
			continue
		}
		if err := periodic.Pause(ctx, rest); err != nil {
			return err
		}
	}
}

// readPage reads records from sequence next on. Its limits are times × tailRecords records and
// times × tailBytes bytes. end reports whether the records include everything that was stored
// before readPage was called. If the stream was not created at the time made, in Unix ns, the error
// is [store.ErrReplaced].
func (c *conn) readPage(
	ctx context.Context, stream string, made int64, next uint64, times int,
) (records []store.Record, end bool, err error) {
	s, err := c.js.Stream(ctx, stream)
	if err != nil {
		return nil, false, err
	}
	// known is the present end of the stream, according to the stream's leader. No earlier answer
	// contained a record after known. A server whose copy of the stream ends before known may lack
	// the replacement of a record that another server has delivered. If the record with the
	// sequence known was removed, no record arrives with this sequence, but a heartbeat with a
	// later sequence follows soon.
	info := s.CachedInfo()
	known := info.State.LastSeq
	if info.Created.UnixNano() != made {
		return nil, false, fmt.Errorf("%w: %s", store.ErrReplaced, stream)
	}
	most := times * tailRecords
	records, last, err := c.directGet(ctx, stream, page{next, most, times * tailBytes})
	if errors.Is(err, errNoRecords) {
		return nil, next > known, nil
	}
	if err != nil {
		return nil, false, err
	}
	for i := range records {
		r := &records[i]
		if r.Body, err = codec.Unseal(r.Subject, r.Sealed); err != nil {
			return nil, false, fmt.Errorf("%s: record %d: %w", stream, r.Seq, err)
		}
		next = r.Seq + 1
	}
	return records, len(records) < most && last.Get("Nats-Num-Pending") == "0" && next > known, nil
}

// errGap means that some records of a response did not arrive, because the connection was lost and
// re-established during the response.
var errGap = errors.New("a part of the response from NATS is missing")

// errNoRecords means that the server that answered has none of the requested records.
var errNoRecords = errors.New("NATS has no such records")

// errInvalidResponse means that a response violates the protocol.
var errInvalidResponse = errors.New("invalid response from NATS")

// page is a request for records of a stream: at most Batch records and Bytes bytes, beginning at
// sequence Seq.
type page struct {
	Seq   uint64 `json:"seq"`
	Batch int    `json:"batch"`
	Bytes int    `json:"max_bytes"`
}

// directGet asks any server of a stream for several records. It returns the records, with their
// bodies still sealed, and the header of the message that ends the response.
//
// The client library has no call for this request, so directGet implements NATS ADR-31. The records
// arrive one by one, each with the sequence of the previous record. After the last record, a
// message with status 204 arrives. If a record is missing, the error is errGap; without this check,
// a vehicle whose record was lost would be treated as a new vehicle. If the server has none of the
// requested records, the error is errNoRecords. If no answer arrives within requestTimeout, the
// error is context.DeadlineExceeded.
func (c *conn) directGet(
	ctx context.Context, stream string, question any,
) (records []store.Record, end nats.Header, err error) {
	request, err := json.Marshal(question)
	if err != nil {
		return nil, nil, err
	}
	// The timeout is short, so that the request can be repeated if the answer is lost, before the
	// caller gives up.
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	inbox := c.nc.NewRespInbox()
	sub, err := c.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, nil, err
	}
	defer sub.Unsubscribe()
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return nil, nil, err
	}
	if err := c.nc.PublishRequest("$JS.API.DIRECT.GET."+stream, inbox, request); err != nil {
		return nil, nil, err
	}
	last := "0" // sequence of the newest record
	for {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return nil, nil, err
		}
		status := m.Header.Get("Status")
		if (status == "" || status == "204") && m.Header.Get("Nats-Last-Sequence") != last {
			return nil, nil, errGap
		}
		switch status {
		case "":
			last = m.Header.Get("Nats-Sequence")
			seq, err := strconv.ParseUint(last, 10, 64)
			if err != nil {
				return nil, nil, errInvalidResponse
			}
			records = append(records, store.Record{Subject: m.Header.Get("Nats-Subject"), Seq: seq, Sealed: m.Data})
		case "204":
			return records, m.Header, nil
		case "404":
			return nil, nil, errNoRecords
		default:
			return nil, nil, fmt.Errorf("NATS responds with status %s", status)
		}
	}
}
