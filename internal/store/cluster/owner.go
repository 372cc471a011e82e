package cluster

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/vehicle"
)

// No stream stores messages with these prefixes. An owner replies only to replyPrefix: otherwise
// the asker could choose a subject that a stream stores.
const (
	ownerPrefix   = "carstate.owner."
	replyPrefix   = "carstate.reply."
	answersPrefix = "carstate.answers."
	foldedPrefix  = "carstate.folded."
	roadsPrefix   = "carstate.roads."
)

func ownerSubject(p int) string   { return ownerPrefix + strconv.Itoa(p) }
func answersSubject(p int) string { return answersPrefix + strconv.Itoa(p) }

// outgoing numbers messages: a gap in a generation shows a follower that one is lost.
type outgoing struct {
	number     atomic.Uint64 // of the last message
	sync.Mutex               // guards the fields below, and orders the messages
	live       bool
	packed     []byte
}

const (
	sendEvery    = 25 * time.Millisecond
	answersBytes = 256 << 10 // the size from which answers are sent at once
)

// Live sends an empty message: followers hear of the new owner and ask it for all answers.
func (t *Partition) Live(_ context.Context, _ func(func(vehicle.ID, *store.Answer))) {
	sub, err := t.e.nc.SubscribeSync(ownerSubject(t.number))
	if err == nil {
		err = sub.SetPendingLimits(waitingQuestions, waitingQuestionBytes)
	}
	if err != nil { // the connection is closed for good
		t.e.config.Log.Warn("cannot receive questions", "partition", t.number, "error", err)
		return
	}
	t.answers.Lock()
	t.answers.live = true
	t.answers.Unlock()
	for range openQuestions {
		t.answering.Go(func() { t.answer(sub) })
	}
	t.send(true)
}

func (t *Partition) Publish(id vehicle.ID, a *store.Answer) {
	t.answers.Lock()
	t.answers.packed = store.AppendAnswer(t.answers.packed, id, a)
	full := len(t.answers.packed) >= answersBytes
	t.answers.Unlock()
	if full {
		t.send(false)
	}
}

// With empty, send sends a message even without answers. It drops messages while the connection is
// lost; followers notice the gap.
func (t *Partition) send(empty bool) {
	o := &t.answers
	o.Lock()
	defer o.Unlock()
	if !o.live || t.owned.Err() != nil || len(o.packed) == 0 && !empty {
		return
	}
	b := binary.AppendUvarint([]byte{0}, t.took.Generation)
	b = append(binary.AppendUvarint(b, o.number.Add(1)), o.packed...)
	o.packed = o.packed[:0]
	t.e.tell(answersSubject(t.number), b)
}

func (e *Engine) tell(subject string, record []byte) {
	if e.nc.IsConnected() {
		_ = e.nc.Publish(subject, codec.SealMessage(subject, record)) // fails if the connection is closed
	}
}

// Every Timeouts.Beat, sendAnswers sends a message even if there is nothing new.
func (e *Engine) sendAnswers(ctx context.Context) {
	beaten := time.Now()
	for range periodic.Every(ctx, sendEvery) {
		beat := time.Since(beaten) >= e.config.Timeouts.Beat
		if beat {
			beaten = time.Now()
		}
		positions := []byte{0}
		for p := range e.views {
			t := e.views[p].taken.Load()
			if t == nil || t.owned.Err() != nil {
				continue
			}
			t.send(beat)
			if at := t.folded.Load(); at != t.told || beat {
				t.told = at
				positions = binary.AppendUvarint(binary.AppendUvarint(positions, uint64(p)), at)
			}
		}
		if len(positions) > 1 {
			e.tell(foldedPrefix+e.name, positions)
		}
	}
}

func (e *Engine) followFolded() (stop func()) {
	return e.listen(foldedPrefix, func(m *nats.Msg) {
		b, err := codec.UnsealMessage(m.Subject, m.Data)
		for r := (codec.Reader{Rest: b}); err == nil && len(r.Rest) > 0; {
			p, seq := r.Uvarint(), r.Uvarint()
			if r.Short || p >= uint64(e.partitions) {
				return
			}
			v := &e.views[p]
			v.folded.Store(seq)
			v.heard.Store(new(time.Now()))
			e.unfolded.Fold(int(p), seq)
		}
	})
}

func (e *Engine) listen(prefix string, take nats.MsgHandler) (stop func()) {
	sub, err := e.nc.Subscribe(prefix+"*", take)
	if err != nil { // the connection is closed for good
		return func() {}
	}
	return func() { _ = sub.Unsubscribe() }
}

const (
	longestQuestion      = 10 * time.Minute
	openQuestions        = 4 // Further questions wait.
	waitingQuestions     = 64
	waitingQuestionBytes = 8 << 20
)

type question struct {
	store.Question
	WithinMillis int64 `json:"within_ms"` // the asker waits no longer
	Schema       byte  `json:"schema"`    // schema version of the asker's states
}

type reply struct {
	store.Reply
	Generation uint64 `json:"generation"` // of the owner's cursor
	Number     uint64 `json:"number"`     // of the owner's last message before Answers were read
	Until      uint64 `json:"until"`      // messages up to this number may have answers older than Answers
	Schema     byte   `json:"schema"`     // schema version of the owner's states
	Error      string `json:"error,omitempty"`
	Kind       string `json:"kind,omitempty"` // the text of one of errorKinds
}

// An asker recognizes these errors.
var errorKinds = []error{store.ErrNoOwner, codec.ErrNewer, codec.ErrDamaged, access.ErrBusy}

func (t *Partition) answer(sub *nats.Subscription) {
	defer sub.Unsubscribe()
	for {
		m, err := sub.NextMsgWithContext(t.owned)
		if t.owned.Err() != nil || !sub.IsValid() {
			return
		}
		if err == nil { // otherwise, there were too many questions
			t.answerMessage(m)
		}
	}
}

func (t *Partition) answerMessage(m *nats.Msg) {
	var q question
	body, err := codec.UnsealMessage(m.Subject, m.Data)
	if !strings.HasPrefix(m.Reply, replyPrefix) {
		return
	}
	if err == nil && json.Unmarshal(body, &q) != nil {
		err = codec.ErrDamaged
	}
	if err == nil && len(q.Entries) > 0 {
		err = codec.CheckVersion(q.Schema)
	}
	var r reply
	if err == nil {
		ctx, cancel := context.WithTimeout(t.owned, time.Duration(q.WithinMillis)*time.Millisecond)
		defer cancel()
		r, err = t.reply(ctx, &q.Question)
	}
	if err != nil {
		r.Error = err.Error()
		for _, kind := range errorKinds {
			if errors.Is(err, kind) {
				r.Kind = kind.Error()
				break
			}
		}
	}
	r.Schema = codec.SchemaVersion
	text, err := json.Marshal(r)
	if err == nil {
		err = t.e.nc.Publish(m.Reply, codec.SealMessage(m.Subject, append([]byte{0}, text...)))
	}
	if err != nil {
		t.e.config.Log.Warn("cannot reply to a question", "partition", t.number, "error", err)
	}
}

// Before a change, reply reads the cursor: another process may have taken the partition unnoticed.
func (t *Partition) reply(ctx context.Context, q *store.Question) (r reply, err error) {
	r.Generation, r.Number = t.took.Generation, t.answers.number.Load()
	if q.Kind != store.AskState && q.Kind != store.AskAnswers {
		_, err = t.check(ctx, nil)
	}
	if err == nil && q.ByTombstones() {
		err = t.e.AwaitTombstones(ctx)
	}
	if err == nil {
		r.Reply, err = t.owner(ctx, q)
	}
	r.Until = t.answers.number.Load() + 1 // includes the next message: answers wait to be sent in it
	if errors.Is(err, store.ErrFenced) || t.owned.Err() != nil {
		err = store.ErrNoOwner
	}
	return r, err
}

func (e *Engine) Ask(ctx context.Context, p int, q *store.Question) (store.Reply, error) {
	r, err := e.ask(ctx, p, q)
	return r.Reply, err
}

func (e *Engine) ask(ctx context.Context, p int, q *store.Question) (r reply, err error) {
	limit := requestTimeout
	if q.Kind == store.AskCheckpoint || q.Kind == store.AskErase {
		limit = longestQuestion
	}
	try, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if t := e.views[p].taken.Load(); t != nil && t.isLive() {
		r, err = t.reply(try, q)
	} else {
		r, err = e.askRemote(try, p, q)
	}
	if err != nil && (errors.Is(try.Err(), context.DeadlineExceeded) || errors.Is(err, nats.ErrNoResponders)) {
		err = fmt.Errorf("%w: %w", store.ErrNoOwner, err)
	}
	return r, err
}

func (t *Partition) isLive() bool {
	t.answers.Lock()
	defer t.answers.Unlock()
	return t.answers.live && t.owned.Err() == nil
}

func (e *Engine) askRemote(ctx context.Context, p int, q *store.Question) (r reply, err error) {
	until, _ := ctx.Deadline()
	text, err := json.Marshal(question{*q, time.Until(until).Milliseconds(), codec.SchemaVersion})
	if err != nil {
		return r, err
	}
	m := nats.NewMsg(ownerSubject(p))
	m.Reply, m.Data = replyPrefix+rand.Text(), codec.SealMessage(m.Subject, append([]byte{0}, text...))
	sub, err := e.nc.SubscribeSync(m.Reply)
	if err != nil {
		return r, err
	}
	defer sub.Unsubscribe()
	if err := e.nc.PublishMsg(m); err != nil {
		return r, err
	}
	answer, err := sub.NextMsgWithContext(ctx)
	if err != nil {
		return r, err
	}
	body, err := codec.UnsealMessage(m.Subject, answer.Data)
	if err == nil && json.Unmarshal(body, &r) != nil {
		err = codec.ErrDamaged
	}
	if err == nil && r.Error != "" {
		err = errors.New(r.Error)
		for _, kind := range errorKinds {
			if kind.Error() == r.Kind {
				err = store.OfKind(err, kind)
			}
		}
	}
	if err == nil && len(r.State)+len(r.Entries) > 0 {
		err = codec.CheckVersion(r.Schema)
	}
	return r, err
}
