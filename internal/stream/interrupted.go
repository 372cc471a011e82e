package stream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"carstate/internal/broken"
)

// While the server commits an atomic batch it syncs nothing, and makes good for it
// at the end. Until then a power cut may tear the batch. That alone does no harm,
// since nobody was told that it is stored. But the server tidies up meanwhile: what
// a record of the batch replaces is dropped from older blocks, and that is synced.
// So a power cut can take both, the new record and the acknowledged one that it was
// to replace: the states of up to 999 vehicles, or a token that was being rewritten.
// The server itself goes on with a torn batch only if its first records, and not
// its last, are there.
//
// The whole batch is on disk, though: the server syncs it as a store of its own in
// the stream's directory before it begins to commit. After a crash it is read from
// there, before the server starts and throws it away, and what the stream lacks of
// it is stored once more.

// interrupted is a batch that may have been under way at a crash.
type interrupted struct {
	Stream  string
	ID      string
	Expect  uint64 // the sequence on which its last record depends
	Depends bool
	Records []interruptedRecord
}

// interruptedRecord is one record of it, sealed.
type interruptedRecord struct {
	Subject string
	Payload []byte
	Time    int64 // when it was sent, Unix ns
}

func (b *interrupted) last() *interruptedRecord { return &b.Records[len(b.Records)-1] }

// interruptedFile keeps, in the data directory, what is to be stored once more
// until it is: the server throws the batches away when it starts.
const interruptedFile = "interrupted.json"

// findInterrupted returns each stream's newest batch that was complete. Commits of
// a stream follow each other, so no other can have been under way.
func findInterrupted(dir string) (found []*interrupted, err error) {
	for _, stream := range streamNames {
		batches := filepath.Join(streamDir(dir, stream), "batches")
		entries, err := os.ReadDir(batches)
		if err != nil && !absent(err) {
			return nil, unreadableDir(dir, "the batches of stream "+stream, err)
		}
		var newest *interrupted
		for _, e := range entries {
			b, err := readBatch(filepath.Join(batches, e.Name()), e.Name(), stream)
			if err != nil {
				return nil, unreadableDir(dir, "a batch of stream "+stream, err)
			}
			if b != nil && (newest == nil || b.last().Time > newest.last().Time) {
				newest = b
			}
		}
		if newest != nil {
			found = append(found, newest)
		}
	}
	return found, nil
}

// readBatch reads a batch that waits for its commit, nil if it is not complete: it
// was never begun to be committed then. What it returns shares nothing.
func readBatch(dir, name, stream string) (*interrupted, error) {
	blocks, _, err := listBlocks(filepath.Join(dir, "msgs"))
	if err != nil {
		if absent(err) {
			err = nil
		}
		return nil, err
	}
	b := &interrupted{Stream: stream}
	committed := false
	for _, n := range slices.Sorted(maps.Keys(blocks)) {
		content, err := os.ReadFile(blocks[n])
		if err != nil {
			return nil, err
		}
		if _, ok := newBlock(name, n, content).firstBad(func(r storedRecord) {
			header, _ := nats.DecodeHeadersMsg(r.headers) // what makes no sense says nothing
			b.Records = append(b.Records, interruptedRecord{string(r.subject), slices.Clone(r.payload), r.time})
			b.ID, committed = header.Get("Nats-Batch-Id"), header.Get("Nats-Batch-Commit") == "1"
			b.Expect, err = strconv.ParseUint(header.Get("Nats-Expected-Last-Subject-Sequence"), 10, 64)
			b.Depends = err == nil
		}); !ok {
			return nil, nil
		}
	}
	if !committed || b.ID == "" {
		return nil, nil
	}
	return b, nil
}

// keepInterrupted puts what was under way at a crash out of the server's reach,
// durably, with what a start before this one did not get to store.
func keepInterrupted(dir string) (all []*interrupted, err error) {
	file := filepath.Join(dir, interruptedFile)
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &all)
		if err != nil || slices.ContainsFunc(all, func(b *interrupted) bool { return b == nil || len(b.Records) == 0 }) {
			return nil, damagedDir(dir, interruptedFile+" makes no sense")
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, unreadableDir(dir, interruptedFile, err)
	}
	found, err := findInterrupted(dir)
	if err != nil || len(found) == 0 {
		return all, err
	}
	all = append(all, found...)
	slices.SortStableFunc(all, func(a, b *interrupted) int { return cmp.Compare(a.last().Time, b.last().Time) })
	if text, err = json.Marshal(all); err != nil {
		return nil, err
	}
	if err := writeFileSynced(file, text); err != nil {
		return nil, fmt.Errorf("the data directory %s cannot be written: %w", dir, plain(err))
	}
	return all, nil
}

// finishInterrupted stores what the streams lack of the batches that were under way
// at a crash.
func (e *Engine) finishInterrupted(ctx context.Context, all []*interrupted) error {
	if len(all) == 0 || broken.Has(broken.AbandonInterrupted) {
		return nil
	}
	stored := 0
	for _, b := range all {
		n, err := e.finish(ctx, b)
		if err != nil {
			return fmt.Errorf("a write that a crash interrupted cannot be finished: %w", err)
		}
		stored += n
	}
	if stored > 0 {
		e.log.Info("a write that a crash interrupted was finished", "records", stored)
	}
	return removeFileSynced(filepath.Join(e.config.DataDir, interruptedFile))
}

// finish stores the records of a batch that are missing, the last one last.
func (e *Engine) finish(ctx context.Context, b *interrupted) (stored int, err error) {
	goes, err := e.underWay(ctx, b)
	if !goes || err != nil {
		return 0, err
	}
	for _, r := range b.Records {
		if _, err := unseal(r.Subject, r.Payload); err != nil {
			return stored, err
		}
		m, err := e.lastMessage(ctx, b.Stream, r.Subject)
		if err != nil {
			return stored, err
		}
		var seq uint64
		if m != nil {
			if seq = m.Sequence; !m.Time.Before(time.Unix(0, r.Time)) {
				continue // it arrived, or something newer did
			}
		}
		if _, err := e.storeBatch(ctx, b.Stream, []write{{r.Subject, r.Payload, seq, true}}); err != nil {
			return stored, err
		}
		stored++
	}
	return stored, nil
}

// underWay tells a batch that may have been torn from one that was refused, or
// committed long ago and not yet tidied away: on what its last record depends is
// still there, or is gone, or it is the batch's own.
func (e *Engine) underWay(ctx context.Context, b *interrupted) (bool, error) {
	m, err := e.lastMessage(ctx, b.Stream, b.last().Subject)
	switch {
	case err != nil:
		return false, err
	case m == nil, m.Header.Get("Nats-Batch-Id") == b.ID:
		return true, nil
	case b.Depends:
		return m.Sequence == b.Expect, nil
	}
	return m.Time.Before(time.Unix(0, b.last().Time)), nil
}

// lastMessage returns the last message of a subject, nil if there is none.
func (e *Engine) lastMessage(ctx context.Context, stream, subject string) (*nats.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	m, err := e.legacy.GetLastMsg(stream, subject, nats.Context(ctx), nats.DirectGet())
	if errors.Is(err, nats.ErrMsgNotFound) {
		return nil, nil
	}
	return m, err
}
