package store

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/testkit"
)

type counted struct {
	*bytes.Reader
	n atomic.Int64
}

func (r *counted) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.n.Add(int64(n))
	return n, err
}

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

// If a restore read large records faster than it stores them, it would hold the whole backup.
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
	r := &restore{k: runRecordStore(t, e, Config{}), progress: func(int, int) {}, counts: make(map[string]access.RestoreCount),
		owners: make(map[int]uint64)}
	var stored atomic.Int64
	e.storing = func(writes []Write) {
		time.Sleep(50 * time.Millisecond) // the restore could read on in this time
		// The first pass, which restores tombstones, reads all of the file.
		if held := file.n.Load() - file.Size() - stored.Load(); held > most {
			t.Errorf("the restore holds %d bytes, want at most %d", held, most)
		}
		stored.Add(int64(len(writes)) * size)
	}
	testkit.NoError(t, r.run(t.Context(), file))
	if n := r.counts["road"]; n != (access.RestoreCount{Restored: records}) {
		t.Errorf("got %+v, want %d restored", n, records)
	}
}
