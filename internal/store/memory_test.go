package store

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/testkit"
)

type memory struct {
	Engine // nil, so that calls of methods that are not defined below panic

	forgotten access.Forgotten

	dead error

	mu      sync.Mutex
	records map[string][]Record // by stream: the last record of each subject, in order of Seq
	seq     uint64              // of all streams together
	feeds   []*memoryFeed       // those that run
}

func newMemory(t testing.TB) *memory {
	t.Helper()
	m := &memory{records: make(map[string][]Record)}
	testkit.NoError(t, LoadVIDKeys(t.Context(), m, &m.forgotten))
	return m
}

func (m *memory) Alive() error                 { return m.dead }
func (m *memory) Partitions() int              { return 1 }
func (m *memory) Scarce() bool                 { return false }
func (m *memory) Unfolded() *Unfolded          { return nil }
func (m *memory) Forgotten() *access.Forgotten { return &m.forgotten }

func (m *memory) Ask(context.Context, int, *Question) (Reply, error) { return Reply{}, nil }

func (m *memory) Last(_ context.Context, stream, subject string) (Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last(stream, subject), nil
}

func (m *memory) last(stream, subject string) Record {
	for _, r := range m.records[stream] {
		if r.Subject == subject {
			return r
		}
	}
	return Record{}
}

func (m *memory) Store(_ context.Context, stream string, writes []Write) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range writes {
		if w.Expected && m.last(stream, w.Subject).Seq != w.Expect {
			return 0, ErrConflict
		}
	}
	for _, w := range writes {
		body, err := codec.Unseal(w.Subject, w.Record)
		if err != nil {
			return 0, err
		}
		m.seq++
		m.remove(stream, w.Subject)
		r := Record{Subject: w.Subject, Body: body, Seq: m.seq, Sealed: w.Record}
		m.records[stream] = append(m.records[stream], r)
		for _, f := range m.feeds {
			if f.stream != stream {
				continue
			}
			if err := f.apply(r); err != nil {
				return 0, err
			}
		}
	}
	return m.seq, nil
}

func (m *memory) remove(stream, subject string) {
	m.records[stream] = slices.DeleteFunc(m.records[stream], func(r Record) bool { return r.Subject == subject })
}

func (m *memory) Remove(_ context.Context, stream string, records []Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range records {
		if m.last(stream, r.Subject).Seq == r.Seq {
			m.remove(stream, r.Subject)
		}
	}
	return nil
}

func (m *memory) Scan(_ context.Context, stream string, patterns []string, do func(Record) error) error {
	m.mu.Lock()
	records := slices.Clone(m.records[stream])
	m.mu.Unlock()
	for _, r := range records {
		if slices.ContainsFunc(patterns, func(p string) bool { return codec.Matches(p, r.Subject) }) {
			if err := do(r); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *memory) ScanFrom(
	ctx context.Context, stream string, from uint64, do func(Record) error,
) (next uint64, damaged int, err error) {
	next = from
	err = m.Scan(ctx, stream, []string{"*.*"}, func(r Record) error {
		if r.Seq >= from {
			next = r.Seq + 1
			if do(r) != nil {
				damaged++
			}
		}
		return nil
	})
	return next, damaged, err
}

func (m *memory) Ends(_ context.Context, stream string) ([]uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if all := m.records[stream]; len(all) > 0 {
		return []uint64{all[len(all)-1].Seq}, nil
	}
	return []uint64{0}, nil
}

func (m *memory) Feed(stream string, apply func(Record) error) Feed {
	return &memoryFeed{m, stream, apply, make(chan struct{})}
}

type memoryFeed struct {
	m       *memory
	stream  string
	apply   func(Record) error
	running chan struct{} // closed once the feed has delivered the records that were stored before
}

func (f *memoryFeed) Run(ctx context.Context, caughtUp func()) error {
	f.m.mu.Lock()
	var errs error
	for _, r := range f.m.records[f.stream] {
		errs = errors.Join(errs, f.apply(r))
	}
	f.m.feeds = append(f.m.feeds, f)
	f.m.mu.Unlock()
	close(f.running)
	caughtUp()
	<-ctx.Done()
	return errs
}

func (f *memoryFeed) Wait(ctx context.Context, _ uint64) error {
	select {
	case <-f.running:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func runRecordStore(t testing.TB, e Engine, c Config) *RecordStore {
	t.Helper()
	k := NewRecordStore(e, c, new(access.Tables))
	ctx, cancel := context.WithCancel(context.Background())
	var running, ready sync.WaitGroup
	ready.Add(2)
	for _, run := range []func(context.Context, func()) error{k.Tokens.Run, k.Sources.Run} {
		running.Go(func() {
			if err := run(ctx, ready.Done); err != nil {
				t.Errorf("Run: got %v, want no error", err)
			}
		})
	}
	t.Cleanup(func() { cancel(); running.Wait() })
	ready.Wait()
	return k
}

func (m *memory) put(t testing.TB, stream string, writes ...Write) (seq uint64) {
	t.Helper()
	seq, err := m.Store(t.Context(), stream, writes)
	testkit.NoError(t, err)
	return seq
}

func write(t testing.TB, subject string, v any) Write {
	t.Helper()
	writes, err := AppendJSON(nil, subject, v)
	testkit.NoError(t, err)
	return writes[0]
}

func create(t testing.TB, k *RecordStore, r access.Credential) access.Credential {
	t.Helper()
	c, _, err := access.New(r, time.Now())
	testkit.NoError(t, err)
	testkit.NoError(t, k.Create(t.Context(), c))
	return c
}

func tokenFor(v access.Vehicles) access.Credential {
	return access.Credential{
		Kind: access.TokenKind, Developer: "Ada", Operations: access.AllOperations, Vehicles: v,
	}
}
