package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/testkit"
	"example.org/carstate/internal/vehicle"
)

// busy is an engine in memory in which the state of one vehicle changes before each batch that
// contains it is stored, so that the batch has a conflict. The states that come between are older
// than those of the backup.
type busy struct {
	*memory
	t         *testing.T
	subject   string
	conflicts int    // how many more batches have a conflict
	conflict  func() // called for each
}

func (e *busy) Store(ctx context.Context, stream string, writes []Write) (uint64, error) {
	if e.conflicts > 0 && slices.ContainsFunc(writes, func(w Write) bool { return w.Subject == e.subject }) {
		e.conflicts--
		e.conflict()
		e.putState(e.t, "car3", 1000)
	}
	return e.memory.Store(ctx, stream, writes)
}

// TestRestoreBatch_Conflicts checks a batch with the state of one vehicle that reports readings
// older than the backup, again and again between the comparison and the write. All other states of
// the batch must be stored and counted even if the conflicts do not end, and the restore must end
// with its context. If the conflicts end, the state of that vehicle must be stored too.
func TestRestoreBatch_Conflicts(t *testing.T) {
	t.Parallel()
	const states = 8
	for _, c := range []struct {
		name      string
		conflicts int
		restored  int
		err       error
	}{
		{"a few", 20, states, nil},
		{"until the restore is canceled", 1000, states - 1, context.Canceled},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			e := &busy{memory: newMemory(t), t: t, subject: codec.StateSubject(0, "car3"), conflicts: c.conflicts}
			e.conflict = func() {
				if e.conflicts == 900 {
					cancel()
				}
			}
			r := &restore{k: runRecordStore(t, e, Config{}), counts: make(map[string]access.RestoreCount)}
			var batch []Record
			for i := range states {
				w := stateWrite(vehicle.ID(fmt.Sprintf("car%d", i)), 2000)
				batch = append(batch, Record{Subject: w.Subject, Body: bodyOf(w), Sealed: w.Record})
			}
			if err := r.restoreBatch(ctx, "state", batch); !errors.Is(err, c.err) {
				t.Errorf("got error %v, want %v", err, c.err)
			}
			if n := r.counts["state"]; n != (access.RestoreCount{Restored: c.restored}) {
				t.Errorf("got %+v, want %d restored", n, c.restored)
			}
			stored := 0
			for i := range states {
				if s, _ := e.stateOf(t, vehicle.ID(fmt.Sprintf("car%d", i))); s.Time == 2000 {
					stored++
				}
			}
			if stored != c.restored {
				t.Errorf("%d states are stored, want %d", stored, c.restored)
			}
		})
	}
}

// TestRestoreBatch_Existing checks a batch with one record that the service has already. The
// service's own record must be kept, and all others must be stored.
func TestRestoreBatch_Existing(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"road", "tokenuse"} {
		e := newMemory(t)
		k := NewRecordStore(e, Config{}, new(access.Tables)) // its feeds do not run
		r := &restore{k: k, counts: make(map[string]access.RestoreCount)}
		var batch []Record
		for i := range 5 {
			w := write(t, fmt.Sprintf("%s.%d", kind, i), "of the backup")
			batch = append(batch, Record{Subject: w.Subject, Body: bodyOf(w), Sealed: w.Record})
		}
		own := write(t, batch[2].Subject, "own")
		e.put(t, inBatches[kind], own)
		testkit.NoError(t, r.restoreBatch(t.Context(), kind, batch))
		if n := r.counts[kind]; n != (access.RestoreCount{Restored: 4, Kept: 1}) {
			t.Errorf("%s: got %+v, want 4 restored, 1 kept", kind, n)
		}
		batch[2].Sealed = own.Record
		for _, want := range batch {
			if got := e.last(inBatches[kind], want.Subject); !bytes.Equal(got.Sealed, want.Sealed) {
				t.Errorf("%s: stored %q, want %q", want.Subject, got.Sealed, want.Sealed)
			}
		}
	}
}

// counted is a reader that counts the bytes that were read.
type counted struct {
	*bytes.Reader
	n atomic.Int64
}

func (r *counted) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.n.Add(int64(n))
	return n, err
}

// slow is an engine in memory that calls storing before it stores a batch of roads.
type slow struct {
	*memory
	storing func(writes []Write)
}

func (e *slow) Store(ctx context.Context, stream string, writes []Write) (uint64, error) {
	if stream == codec.Roads {
		e.storing(writes)
	}
	return e.memory.Store(ctx, stream, writes)
}

// TestRestore_BoundsRoads checks that a restore does not read a backup with large records faster
// than it stores them, because it would then hold the whole backup in memory.
func TestRestore_BoundsRoads(t *testing.T) {
	t.Parallel()
	const records, size = 42, 1<<20 - 1024                  // the last batch is incomplete
	const most = (batchWriters+1)*(batchBytes+size) + 1<<20 // 1 MiB for the buffers of the reader
	var writes []Write
	for i := range records {
		subject := fmt.Sprintf("road.%d", i)
		writes = append(writes, Write{Subject: subject, Record: codec.Seal(subject, make([]byte, size))})
	}
	file := &counted{Reader: bytes.NewReader(backupWith(t, "key", writes...))}
	e := &slow{memory: newMemory(t)}
	r := &restore{k: runRecordStore(t, e, Config{}), counts: make(map[string]access.RestoreCount)}
	var stored atomic.Int64
	e.storing = func(writes []Write) {
		time.Sleep(50 * time.Millisecond) // the restore could read on in this time
		// The first pass over the file, which restores tombstones, reads all of it.
		if held := file.n.Load() - file.Size() - stored.Load(); held > most {
			t.Errorf("the restore holds %d bytes, want at most %d", held, most)
		}
		stored.Add(int64(len(writes)) * size)
	}
	testkit.NoError(t, r.run(t.Context(), file, func(int, int) {}))
	if n := r.counts["road"]; n != (access.RestoreCount{Restored: records}) {
		t.Errorf("got %+v, want %d restored", n, records)
	}
}
