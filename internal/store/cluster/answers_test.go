package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/clustertest"
	"example.org/carstate/internal/test/storetest"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

type shown struct {
	mu   sync.Mutex // guards the fields below
	all  map[vehicle.ID]store.Answer
	puts []signal.UnixMilli // times of all answers that were shown of the vehicle b
}

func (s *shown) put(id vehicle.ID, a *store.Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = make(map[vehicle.ID]store.Answer)
	}
	if s.all[id] = *a; *a == (store.Answer{}) {
		delete(s.all, id)
	}
	if id == "b" {
		s.puts = append(s.puts, a.Driving.Time)
	}
}

func (s *shown) time(id vehicle.ID) signal.UnixMilli {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[id].Driving.Time
}

func (s *shown) known(id vehicle.ID) (driving, throttle signal.UnixMilli) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[id].Driving.Time, s.all[id].Throttle.Time
}

type testOwner struct {
	mu      sync.Mutex
	answers map[vehicle.ID]store.Answer
	hold    chan struct{}
	err     error
}

func (o *testOwner) reply(ctx context.Context, q *store.Question) (r store.Reply, err error) {
	o.mu.Lock()
	hold := o.hold
	o.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return r, ctx.Err()
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	ids := slices.Sorted(maps.Keys(o.answers))
	if r.Next = q.From + 1; r.Next >= len(ids) {
		r.Next = 0
	}
	if q.Kind == store.AskAnswers && q.From < len(ids) {
		a := o.answers[ids[q.From]]
		r.Answers = store.AppendAnswer(nil, ids[q.From], &a)
	}
	r.Restored = len(q.Entries)
	return r, o.err
}

type one struct {
	id vehicle.ID
	store.Answer
}

func answer(id vehicle.ID, at signal.UnixMilli) one {
	return one{id, store.Answer{Driving: vehicle.DrivingVerdict{State: driving.Normal, Time: at}}}
}

func live(t *testing.T, e *Engine, p int, answers ...one) (*Partition, *testOwner) {
	t.Helper()
	o := &testOwner{answers: make(map[vehicle.ID]store.Answer)}
	for _, a := range answers {
		o.answers[a.id] = a.Answer
	}
	part, err := e.Take(t.Context(), p, "owner", o.reply, store.Anyone)
	testkit.NoError(t, err)
	t.Cleanup(part.Close)
	part.Live(t.Context(), nil)
	return part.(*Partition), o
}

func (o *testOwner) change(p *Partition, a one, lost bool) {
	o.mu.Lock()
	o.answers[a.id] = a.Answer
	o.mu.Unlock()
	if !lost {
		p.Publish(a.id, &a.Answer)
	}
}

func followAnswers(t *testing.T, e *Engine) *shown {
	t.Helper()
	s, ready := new(shown), make(chan struct{})
	e.config.Known = s.known
	background(t, func(ctx context.Context) error {
		return e.FollowAnswers(ctx, s.put, func() { close(ready) })
	})
	select {
	case <-ready:
	case <-testkit.Context(t).Done():
		t.Fatal("the answers: got no complete ones until the deadline, want them")
	}
	return s
}

func (s *shown) await(t *testing.T, id vehicle.ID, at signal.UnixMilli) {
	t.Helper()
	testkit.Await(t, fmt.Sprintf("%s is shown at %d", id, at), func() bool { return s.time(id) == at })
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	url := clustertest.Account(t)
	first := open(t, Config{Partitions: 2, URLs: url, Timeouts: impatient})
	part, owner := live(t, first, 0, answer("a", 1), answer("b", 2), answer("c", 3))
	live(t, first, 1)
	e := open(t, Config{Partitions: 2, URLs: url, Timeouts: impatient})
	storetest.RunKeeper(t, e, store.Config{})
	s := followAnswers(t, e)
	for id, want := range map[vehicle.ID]signal.UnixMilli{"a": 1, "b": 2, "c": 3} {
		if got := s.time(id); got != want {
			t.Errorf("at the start, %s is shown at %d, want %d", id, got, want)
		}
	}
	for at := range signal.UnixMilli(100) {
		owner.change(part, answer("a", 10+at), false)
	}
	s.await(t, "a", 109)
	owner.change(part, answer("a", 90), false) // as after "ignition off"
	owner.change(part, one{id: "b"}, false)
	s.await(t, "a", 90)
	s.await(t, "b", 0)
	testkit.Await(t, "the node is current", func() bool { return healthy(e) })

	part.Close()
	second := open(t, Config{Partitions: 2, URLs: url, Timeouts: impatient})
	live(t, second, 0, answer("a", 50), answer("c", 4))
	s.await(t, "c", 4)
	if got := s.time("a"); got != 90 {
		t.Errorf("a after the takeover: got the time %d, want 90", got)
	}
	ahead := signal.At(time.Now().Add(time.Hour))
	part, owner = live(t, second, 0, answer("c", ahead))
	s.await(t, "c", ahead)
	owner.change(part, answer("c", 5), false)
	s.await(t, "c", 5)
}

// While messages are known to be lost, the answers count as old. Those that the owner sends in the
// meantime change no answer to an older one.
func TestAnswers_Lost(t *testing.T) {
	t.Parallel()
	url := clustertest.Account(t)
	part, owner := live(t, open(t, Config{URLs: url, Timeouts: impatient}), 0, answer("a", 1))
	e := open(t, Config{URLs: url, Timeouts: impatient})
	storetest.RunKeeper(t, e, store.Config{})
	s := followAnswers(t, e)
	testkit.Await(t, "the node is current", func() bool { return healthy(e) })
	hold := make(chan struct{})
	owner.mu.Lock()
	owner.hold = hold
	owner.mu.Unlock()
	owner.change(part, answer("a", 2), true)
	part.answers.number.Add(1)
	testkit.Await(t, "the answers are old", func() bool {
		_, at, ok := e.Fed()
		return ok && time.Since(at) > time.Second
	})
	owner.change(part, answer("b", 3), false)
	owner.change(part, answer("b", 4), false)
	close(hold)
	s.await(t, "a", 2)
	s.await(t, "b", 4)
	testkit.Await(t, "the node is current again", func() bool { return healthy(e) })
	owner.change(part, answer("a", 5), false)
	s.await(t, "a", 5)
	if !slices.IsSorted(s.puts) {
		t.Errorf("b: got the times %d, want none that goes back", s.puts)
	}
}

func TestAnswers_Foreign(t *testing.T) {
	t.Parallel()
	e := open(t, Config{Timeouts: impatient})
	live(t, e, 0)
	part, owner := live(t, e, 0, answer("a", 1)) // has the generation 2
	s := followAnswers(t, e)
	message := func(generation, number uint64, body string) []byte {
		b := binary.AppendUvarint([]byte{0}, generation)
		b = append(binary.AppendUvarint(b, number), body...)
		return codec.SealMessage(answersSubject(0), b)
	}
	later := answer("a", 9)
	packed := string(store.AppendAnswer(nil, "a", &later.Answer))
	for name, m := range map[string][]byte{
		"no message":             nil,
		"not sealed":             []byte("anything"),
		"an empty record":        codec.SealMessage(answersSubject(0), []byte{0}),
		"of a former owner":      message(1, 1_000_000, packed),
		"seen before":            message(2, 1, packed),
		"a number in the future": message(2, 1_000_000, packed),
		"no answers":             message(2, 1_000_001, "\xff\xff"),
	} {
		testkit.NoError(t, e.nc.Publish(answersSubject(0), m))
		testkit.NoError(t, e.nc.Publish(foldedPrefix+"other", m))
		owner.change(part, answer("b", s.time("b")+1), false)
		s.await(t, "b", s.time("b"))
		if got := s.time("a"); got != 1 {
			t.Errorf("%s: a is shown at %d, want 1", name, got)
		}
	}
	testkit.NoError(t, e.Alive())
}

func TestAsk(t *testing.T) {
	t.Parallel()
	url := clustertest.Account(t)
	e := open(t, Config{URLs: url})
	other := open(t, Config{URLs: url})
	ask := func(e *Engine, q store.Question) (store.Reply, error) { return e.Ask(testkit.Context(t), 0, &q) }
	for _, x := range []*Engine{e, other} {
		if _, err := ask(x, store.Question{Kind: store.AskState}); !errors.Is(err, store.ErrNoOwner) {
			t.Errorf("without an owner: got %v, want %v", err, store.ErrNoOwner)
		}
	}
	part, owner := live(t, e, 0, answer("a", 1))
	large := store.Question{Kind: store.AskRestore, Entries: make([]byte, 512<<10)}
	for name, x := range map[string]*Engine{"its node": e, "another node": other} {
		if r, err := ask(x, large); err != nil || r.Restored != len(large.Entries) {
			t.Errorf("%s: got %d, %v; want %d", name, r.Restored, err, len(large.Entries))
		}
	}
	for _, want := range []error{store.ErrNoOwner, codec.ErrNewer, codec.ErrDamaged, access.ErrBusy, errors.New("other")} {
		owner.err = fmt.Errorf("why: %w", want)
		_, err := ask(other, store.Question{Kind: store.AskState})
		if err == nil || err.Error() != owner.err.Error() || !errors.Is(err, want) && want.Error() != "other" {
			t.Errorf("got %v, want %v", err, owner.err)
		}
	}
	owner.err = nil
	// A former owner that may not know it yet must not confirm that it has dropped a state.
	_, err := e.changeCursor(t.Context(), 0, func(c *cursor) (bool, error) { c.Generation++; return true, nil })
	testkit.NoError(t, err)
	if _, err := ask(other, store.Question{Kind: store.AskDrop, Vehicle: "a"}); !errors.Is(err, store.ErrNoOwner) {
		t.Errorf("of a former owner: got %v, want %v", err, store.ErrNoOwner)
	}
	if _, err := part.Next(testkit.Context(t)); !errors.Is(err, store.ErrFenced) {
		t.Errorf("a former owner reads: got %v, want %v", err, store.ErrFenced)
	}
}

// The holder of a node's login could otherwise make an owner store a reply as a record.
func TestAsk_ReplyElsewhere(t *testing.T) {
	t.Parallel()
	e := open(t, Config{})
	live(t, e, 0)
	question := codec.SealMessage(ownerSubject(0), []byte("\x00{}"))
	testkit.NoError(t, e.nc.PublishRequest(ownerSubject(0), "token.x", question))
	testkit.NoError(t, e.nc.PublishRequest(ownerSubject(0), "road.x", []byte(strings.Repeat("x", 100))))
	sub, err := e.nc.SubscribeSync(replyPrefix + "x")
	testkit.NoError(t, err)
	defer sub.Unsubscribe()
	testkit.NoError(t, e.nc.PublishRequest(ownerSubject(0), replyPrefix+"x", question))
	if _, err := sub.NextMsgWithContext(testkit.Context(t)); err != nil {
		t.Fatalf("the answer: got %v, want a message", err)
	}
	for subject, name := range map[string]string{"token.x": codec.Tokens, "road.x": codec.Roads} {
		if r, _ := e.Last(t.Context(), name, subject); r.Seq != 0 {
			t.Errorf("%s: got a stored reply, want none", subject)
		}
	}
}

// An owner gives no states that a newer version has packed.
func TestAsk_StatesOfNewer(t *testing.T) {
	t.Parallel()
	e := open(t, Config{})
	live(t, e, 0)
	sub, err := e.nc.SubscribeSync(replyPrefix + "x")
	testkit.NoError(t, err)
	defer sub.Unsubscribe()
	for schema, want := range map[byte]string{
		codec.SchemaVersion: `"restored":1`, codec.SchemaVersion + 1: codec.ErrNewer.Error(),
	} {
		question := fmt.Appendf([]byte{0}, `{"kind":%q,"entries":"eA==","schema":%d,"within_ms":60000}`,
			store.AskRestore, schema)
		m := codec.SealMessage(ownerSubject(0), question)
		testkit.NoError(t, e.nc.PublishRequest(ownerSubject(0), replyPrefix+"x", m))
		if m, err := sub.NextMsgWithContext(testkit.Context(t)); err != nil || !strings.Contains(string(m.Data), want) {
			t.Errorf("schema version %d: got %s, %v, want %s", schema, m.Data, err, want)
		}
	}
}
