package store

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"carstate/internal/access"
	"carstate/internal/store/codec"
	"carstate/internal/vehicle"
)

// memory is an engine that keeps records in memory, for tests of the internals of the record store.
// It has one partition, which no node folds. The behavior of real engines is tested by package
// storetest.
type memory struct {
	Engine // nil, so that calls of methods that are not defined below panic

	forgotten access.Forgotten

	mu            sync.Mutex // guards the fields below
	changed       chan struct{}
	records       map[string][]Record // by stream: the last record of each subject, in order of Seq
	seq           uint64              // last sequence, of all streams together
	tombstoneFeed *memoryFeed         // feed of SOURCES
	dead          error
}

func newMemory(t testing.TB) *memory {
	t.Helper()
	m := &memory{changed: make(chan struct{}), records: make(map[string][]Record)}
	if err := LoadVIDKeys(t.Context(), m, &m.forgotten); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *memory) Partitions() int                                           { return 1 }
func (m *memory) NodeID() string                                            { return "NODE" }
func (m *memory) Forgotten() *access.Forgotten                              { return &m.forgotten }
func (m *memory) AwaitState(context.Context, uint64) error                  { return nil }
func (m *memory) Erased(context.Context) error                              { return nil }
func (m *memory) TrimTo(context.Context, uint64) (bool, error)              { return true, nil }
func (m *memory) Fence(context.Context, int, uint64) error                  { return nil }
func (m *memory) ErasedWithin(context.Context) (time.Duration, bool, error) { return 0, false, nil }

func (m *memory) Alive() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dead
}

func (m *memory) AwaitTombstones(ctx context.Context) error {
	end, err := m.End(ctx, codec.Sources)
	if err != nil {
		return err
	}
	return m.tombstoneFeed.Wait(ctx, end.Last)
}

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
		m.records[stream] = append(m.records[stream], Record{Subject: w.Subject, Body: body, Seq: m.seq, Sealed: w.Record})
	}
	m.wake()
	return m.seq, nil
}

// wake wakes all waiting goroutines. The caller must hold m.mu.
func (m *memory) wake() {
	close(m.changed)
	m.changed = make(chan struct{})
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

func (m *memory) End(_ context.Context, stream string) (e End, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if all := m.records[stream]; len(all) > 0 {
		e.Last = all[len(all)-1].Seq
	}
	return e, nil
}

func (m *memory) Feed(stream string, apply func(Record) error) Feed {
	f := &memoryFeed{m: m, stream: stream, apply: apply}
	if stream == codec.Sources {
		m.tombstoneFeed = f
	}
	return f
}

type memoryFeed struct {
	m       *memory
	stream  string
	apply   func(Record) error
	applied uint64 // guarded by m.mu
}

func (f *memoryFeed) Run(ctx context.Context, caughtUp func()) error {
	for caught := false; ; {
		f.m.mu.Lock()
		changed := f.m.changed
		records := slices.DeleteFunc(slices.Clone(f.m.records[f.stream]), func(r Record) bool { return r.Seq <= f.applied })
		f.m.mu.Unlock()
		for _, r := range records {
			if err := f.apply(r); err != nil {
				return err
			}
			f.m.mu.Lock()
			f.applied = r.Seq
			f.m.wake()
			f.m.mu.Unlock()
		}
		if len(records) > 0 {
			continue
		}
		if !caught {
			caught = true
			caughtUp()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

func (f *memoryFeed) Wait(ctx context.Context, seq uint64) error {
	for {
		f.m.mu.Lock()
		applied, changed := f.applied, f.m.changed
		f.m.mu.Unlock()
		if applied >= seq {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// runRecordStore runs a record store until the test ends or stop is called.
func runRecordStore(t testing.TB, e Engine, c Config) (k *RecordStore, stop func()) {
	t.Helper()
	k = NewRecordStore(e, c, new(access.Tables))
	ctx, cancel := context.WithCancel(context.Background())
	var running, ready sync.WaitGroup
	ready.Add(2)
	for _, run := range []func(context.Context, func()) error{k.RunTokens, k.RunSources} {
		running.Go(func() {
			if err := run(ctx, ready.Done); err != nil {
				t.Error(err)
			}
		})
	}
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	ready.Wait()
	return k, stop
}

// speed returns a state of a moving vehicle.
func speed(id vehicle.ID, at int64) vehicle.State {
	x := vehicle.Sample{Vehicle: id, Time: vehicle.UnixMilli(at)}
	if err := x.Set(vehicle.Speed, 50); err != nil {
		panic(err)
	}
	return vehicle.Observe(vehicle.State{}, x)
}

// putState stores a state, as a fold does.
func (m *memory) putState(t testing.TB, id vehicle.ID, at int64) Record {
	t.Helper()
	subject, s := codec.StateSubject(0, id), speed(id, at)
	w := Write{Subject: subject, Record: codec.Seal(subject, codec.AppendState([]byte{0}, &s))}
	if _, err := m.Store(t.Context(), codec.States, []Write{w}); err != nil {
		t.Fatal(err)
	}
	return m.last(codec.States, subject)
}

// stateOf returns the stored state of a vehicle.
func (m *memory) stateOf(t testing.TB, id vehicle.ID) (vehicle.State, bool) {
	t.Helper()
	s, ok, err := State(t.Context(), m, id)
	if err != nil {
		t.Fatal(err)
	}
	return s, ok
}

// Settle implements [Engine].
func (m *memory) Settle(context.Context) {}

// Unstored implements [Engine].
func (m *memory) Unstored(context.Context, vehicle.ID) (vehicle.State, bool) {
	return vehicle.State{}, false
}
