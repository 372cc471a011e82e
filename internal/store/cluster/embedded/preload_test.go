package embedded

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"

	"carstate/internal/road/roadtest"
	"carstate/internal/store/codec"
	"carstate/internal/vehicle"
)

// known is a table of answers that only knows of which vehicles there is one.
type known map[vehicle.ID]struct{}

func (k known) Put(id vehicle.ID, _ vehicle.DrivingVerdict, _ vehicle.ThrottleVerdict) {
	k[id] = struct{}{}
}
func (k known) Delete(id vehicle.ID) { delete(k, id) }
func (k known) Len() int             { return len(k) }
func (k known) Clear()               { clear(k) }

// A stream that cannot be judged from the blocks alone is left to the feed.
func TestPreloadIsUnsure(t *testing.T) {
	t.Parallel()
	state := roadtest.State(t)
	sealed := func(subject string, version byte) storedRecord {
		record := codec.AppendState([]byte{0}, &state)
		record = codec.Seal(subject, record)
		if version != codec.SchemaVersion {
			record[0] = version
			sum := codec.Checksum(subject, record[:len(record)-4])
			record = append(record[:len(record)-4], byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24))
		}
		return storedRecord{subject: []byte(subject), payload: record}
	}
	at := func(seq uint64, r storedRecord) storedRecord { r.seq = seq; return r }
	good, other := sealed("state.0.carA", codec.SchemaVersion), sealed("state.0.carB", codec.SchemaVersion)
	marker := storedRecord{subject: good.subject, payload: codec.SealMarker(string(good.subject))}
	for name, c := range map[string]struct {
		blocks [][]storedRecord
		unsure bool
		known  int
	}{
		"in order":              {[][]storedRecord{{at(1, good), at(2, other)}, {}, {at(3, good)}}, false, 2},
		"a cursor":              {[][]storedRecord{{at(1, good), at(2, storedRecord{subject: []byte("cursor.0")})}}, false, 1},
		"forgotten":             {[][]storedRecord{{at(1, good), at(2, other)}, {at(3, marker)}}, false, 1},
		"allowed again":         {[][]storedRecord{{at(1, good), at(2, marker)}, {at(3, good)}}, false, 1},
		"a note of a removal":   {[][]storedRecord{{at(2, good), at(1, storedRecord{erased: true})}}, false, 1},
		"backwards in a block":  {[][]storedRecord{{at(2, good), at(1, other)}}, true, 2},
		"backwards":             {[][]storedRecord{{at(2, good)}, {at(1, other)}}, true, 2},
		"of a newer carstate":   {[][]storedRecord{{at(1, good), at(2, sealed("state.0.carB", codec.SchemaVersion+1))}}, true, 1},
		"not what a state is":   {[][]storedRecord{{at(1, storedRecord{subject: []byte("state.0.carA"), payload: codec.Seal("state.0.carA", []byte{0, 1})})}}, true, 0},
		"under another subject": {[][]storedRecord{{at(1, storedRecord{subject: []byte("state.0.carB"), payload: good.payload})}}, true, 0},
	} {
		a := make(known)
		p := NewPreload(a)
		for _, b := range c.blocks {
			var f found
			for _, r := range b {
				f.add(r)
			}
			p.take(f)
		}
		if forgotten := name == "forgotten"; p.unsure != c.unsure || a.Len() != c.known || (len(p.forgotten) > 0) != forgotten {
			t.Errorf("%s: unsure %t, %d answers, %d forgotten", name, p.unsure, a.Len(), len(p.forgotten))
		}
	}
}

func TestInOrder(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	for _, n := range []int{0, 1, 3, 500} {
		for _, bad := range []int{-1, 0, n / 2} {
			var under, most atomic.Int64
			next := 0
			err := inOrder(t.Context(), n, func(i int) (int, error) {
				for now := under.Add(1); now > most.Load(); {
					most.Store(now)
				}
				if i == bad {
					return 0, failed
				}
				return i, nil
			}, func(i int) {
				under.Add(-1)
				if i != next {
					t.Errorf("%d came instead of %d", i, next)
				}
				next++
			})
			if bad >= 0 && bad < n {
				if !errors.Is(err, failed) || next != bad {
					t.Errorf("%d of %d failed: %v after %d", bad, n, err, next)
				}
			} else if err != nil || next != n {
				t.Errorf("%d of %d: %v", next, n, err)
			}
			if limit := int64(runtime.GOMAXPROCS(0) + 2); most.Load() > limit {
				t.Errorf("%d waited to be used, more than %d", most.Load(), limit)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := inOrder(ctx, 100, func(i int) (int, error) { cancel(); return i, nil }, func(int) { <-ctx.Done() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("ended early: %v", err)
	}
}
