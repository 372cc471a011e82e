package store_test

import (
	"cmp"
	"context"
	"testing"
	"time"

	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
)

type lossy struct {
	store.Records
	stored store.Record
	late   []store.Write // on their way
	script string        // what happens to each call of Store
}

func (l *lossy) Last(context.Context, string, string) (store.Record, error) { return l.stored, nil }

func (l *lossy) Store(_ context.Context, _ string, writes []store.Write) (uint64, error) {
	put := func(writes []store.Write) error {
		if writes[0].Expect != l.stored.Seq {
			return store.ErrConflict
		}
		l.stored = store.Record{Seq: l.stored.Seq + 1, Body: writes[0].Record, Sealed: writes[0].Record}
		return nil
	}
	step := l.script[0]
	l.script = l.script[1:]
	switch step {
	case 's': // stored, and no response
		return 0, cmp.Or(put(writes), context.DeadlineExceeded)
	case 'f': // in flight
		l.late = writes
		return 0, context.DeadlineExceeded
	case 'a': // arrives after what was in flight
		_ = put(l.late)
	case 'o': // in flight, and another writer is faster
		_ = put([]store.Write{{Record: []byte("other,"), Expect: l.stored.Seq}})
		return 0, context.DeadlineExceeded
	}
	err := put(writes)
	return l.stored.Seq, err
}

// A change whose response is lost is made once.
func TestChange_ResponseLost(t *testing.T) {
	for script, want := range map[string]string{
		"k": "x", "s": "x", "fk": "x", "fa": "x", "ffa": "x", "ok": "other,x", "fok": "other,x", "sk": "x",
	} {
		r := &lossy{script: script}
		_, err := store.Change(t.Context(), r, time.Minute, codec.Tokens, "token.1", func(is store.Record) ([]store.Write, error) {
			return []store.Write{{Subject: "token.1", Record: append(append([]byte{}, is.Body...), 'x')}}, nil
		})
		if got := string(r.stored.Body); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", script, got, err, want)
		}
	}
}
