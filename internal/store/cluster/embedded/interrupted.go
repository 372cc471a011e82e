package embedded

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"carstate/internal/store/codec"
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

// Interrupted is a batch that may have been under way at a crash.
type Interrupted struct {
	Stream  string
	ID      string
	Records []Record
}

// Record is one record of it, sealed.
type Record struct {
	Subject string
	Payload []byte
	Time    int64  // when it was sent, Unix ns
	Expect  uint64 // the sequence of the subject's last record, if the record depends on it
	Depends bool
}

func (b *Interrupted) last() *Record { return &b.Records[len(b.Records)-1] }

// blocks is in how many blocks before the newest it may have begun.
func (b *Interrupted) blocks() int {
	const more = 300 // bytes of a record beside its text: the server's, and the headers of a batch
	size := 0
	for _, r := range b.Records {
		size += len(r.Subject) + len(r.Payload) + more
	}
	return (size + MaxBlockBytes - 1) / MaxBlockBytes
}

// interruptedFile keeps, in the data directory, what is to be stored once more
// until it is: the server throws the batches away when it starts.
const interruptedFile = "interrupted.json"

// findInterrupted returns each stream's newest batch that was complete. Commits of
// a stream follow each other, so no other can have been under way.
func findInterrupted(dir string) (found []*Interrupted, err error) {
	for _, stream := range codec.Streams {
		batches := filepath.Join(StreamDir(dir, stream), "batches")
		entries, err := os.ReadDir(batches)
		if err != nil && !absent(err) {
			return nil, unusableDir(dir, "read", "the batches of stream "+stream, err)
		}
		var newest *Interrupted
		for _, e := range entries {
			b, err := readBatch(filepath.Join(batches, e.Name()), e.Name(), stream)
			if err != nil {
				return nil, unusableDir(dir, "read", "a batch of stream "+stream, err)
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
// was never begun to be committed then. One that is done with, or was refused,
// loses its description before its records. What it returns shares nothing.
func readBatch(dir, name, stream string) (*Interrupted, error) {
	if _, err := os.Stat(filepath.Join(dir, server.JetStreamMetaFile)); err != nil {
		if absent(err) {
			err = nil
		}
		return nil, err
	}
	blocks, _, err := ListBlocks(filepath.Join(dir, "msgs"))
	if err != nil {
		if absent(err) {
			err = nil
		}
		return nil, err
	}
	b := &Interrupted{Stream: stream}
	committed := false
	for _, n := range slices.Sorted(maps.Keys(blocks)) {
		content, err := os.ReadFile(blocks[n])
		if err != nil {
			return nil, err
		}
		if _, ok := newBlock(name, n, content).firstBad(func(r storedRecord) {
			header, _ := nats.DecodeHeadersMsg(r.headers) // what makes no sense says nothing
			expect, err := strconv.ParseUint(header.Get(jetstream.ExpectedLastSubjSeqHeader), 10, 64)
			b.Records = append(b.Records, Record{string(r.subject), slices.Clone(r.payload), r.time, expect, err == nil})
			b.ID, committed = header.Get("Nats-Batch-Id"), header.Get("Nats-Batch-Commit") == "1"
		}); !ok {
			return nil, nil
		}
	}
	if !committed || b.ID == "" {
		return nil, nil
	}
	return b, nil
}

// KeepInterrupted puts what was under way at a crash out of the server's reach,
// durably, with what a start before this one did not get to store.
func KeepInterrupted(dir string) (all []*Interrupted, err error) {
	file := filepath.Join(dir, interruptedFile)
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &all)
		if err != nil || slices.ContainsFunc(all, func(b *Interrupted) bool { return b == nil || len(b.Records) == 0 }) {
			return nil, DamagedDir(dir, interruptedFile+" makes no sense")
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, unusableDir(dir, "read", interruptedFile, err)
	}
	found, err := findInterrupted(dir)
	known := len(all)
	for _, b := range found {
		// A start that failed has put it aside, and the server did not get to
		// throw it away.
		if !slices.ContainsFunc(all, func(a *Interrupted) bool { return a.Stream == b.Stream && a.ID == b.ID }) {
			all = append(all, b)
		}
	}
	if err != nil || len(all) == known {
		return all, err
	}
	slices.SortStableFunc(all, func(a, b *Interrupted) int { return cmp.Compare(a.last().Time, b.last().Time) })
	if text, err = json.Marshal(all); err != nil {
		return nil, err
	}
	if err := writeFileSynced(file, text); err != nil {
		return nil, unusableDir(dir, "written", "", err)
	}
	return all, nil
}

// arrived reports whether what is present of a subject is the batch's own record,
// or what a start that was cut off stored of it.
func (b *Interrupted) arrived(i int, m *nats.RawStreamMsg) bool {
	return m != nil && (m.Header.Get("Nats-Batch-Id") == b.ID || bytes.Equal(m.Data, b.Records[i].Payload))
}

// UnderWay tells a batch that may have been torn from one that was refused, or
// committed long ago and not yet tidied away: all on which its records depend is
// still there, or is gone, or it is the batch's own. The server looks at that only
// when the whole batch is on disk.
func (b *Interrupted) UnderWay(present []*nats.RawStreamMsg) bool {
	for i, r := range b.Records {
		if m := present[i]; r.Depends && m != nil && m.Sequence != r.Expect && !b.arrived(i, m) {
			return false
		}
	}
	end := len(present) - 1
	m := present[end]
	return b.last().Depends || m == nil || b.arrived(end, m) || m.Time.Before(time.Unix(0, b.last().Time))
}

// Missing returns which records of a batch that was under way did not arrive. No
// clock decides if the last record depends on the one before, as those of folds
// and grants do: whoever is not the batch, and writes what it writes, replaces
// that one too.
func (b *Interrupted) Missing(present []*nats.RawStreamMsg) (missing []int) {
	end := len(present) - 1
	unsure := false
	for i, m := range present {
		switch {
		case b.arrived(i, m):
			continue
		case m == nil, b.Records[i].Depends:
		case b.arrived(end, present[end]):
			if m.Sequence > present[end].Sequence {
				continue // it was replaced after that
			}
		case b.last().Depends:
		case !m.Time.Before(time.Unix(0, b.Records[i].Time)):
			unsure = true // newer, if the clock was right
			continue
		}
		// The last one says that all the others are there.
		if i < end || !unsure {
			missing = append(missing, i)
		}
	}
	return missing
}

// DropInterrupted removes what [keepInterrupted] keeps: all of it is stored.
func DropInterrupted(dir string) error {
	return removeFileSynced(filepath.Join(dir, interruptedFile))
}
