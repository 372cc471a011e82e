package cluster

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/vehicle"
)

// follower asks the owner of a partition for all answers, and again after a gap in the numbers of
// new ones or a change of owner.
type follower struct {
	e     *Engine
	p     int
	put   func(vehicle.ID, *store.Answer)
	ready func()

	generation, number uint64 // of the newest message received in order
	// compare is set while a received answer may be older than the one that this node shows:
	// because a new owner did not know the latter, or because number is at most loaded.
	compare  bool
	loaded   uint64 // Until of the reply with all answers
	complete bool   // no message after number is known to be lost
	live     bool
	heard    time.Time
}

func (e *Engine) FollowAnswers(ctx context.Context, put func(vehicle.ID, *store.Answer), caughtUp func()) error {
	run, stop := context.WithCancel(ctx)
	var following sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(e.partitions))
	ready := func() {
		if left.Add(-1) == 0 {
			caughtUp()
		}
	}
	// The cursors come first: a reply of an older generation than theirs is ignored.
	err := e.FollowCursors(run, e.config.Patience.Markers/2, func() {
		for p := range e.partitions {
			f := &follower{e: e, p: p, put: put, ready: ready}
			following.Go(func() { f.run(run) })
		}
	})
	stop()
	following.Wait()
	return err
}

func (f *follower) run(ctx context.Context) {
	sub, err := f.e.nc.SubscribeSync(answersSubject(f.p))
	if err != nil {
		return // the connection was closed for good, which ends the node
	}
	defer sub.Unsubscribe()
	defer f.lacksNothing()
	for ask := true; ctx.Err() == nil; {
		if ask || !f.complete {
			if err := f.load(ctx); err != nil && !f.complete {
				_ = periodic.Pause(ctx, 250*time.Millisecond)
				continue
			}
		}
		try, cancel := context.WithTimeout(ctx, stallBeats*f.e.config.Timeouts.Beat)
		m, err := sub.NextMsgWithContext(try) // if it has dropped messages, the next number shows that
		ask = try.Err() != nil                // there may be no owner, or nothing arrives from it
		cancel()
		if err == nil {
			f.receive(m)
		} else if !sub.IsValid() {
			return
		}
	}
}

// receive ignores an unreadable message. If the owner sent it, the next number shows the gap.
func (f *follower) receive(m *nats.Msg) {
	b, err := codec.UnsealMessage(m.Subject, m.Data)
	f.e.config.Newer.Note(codec.States, err)
	r := codec.Reader{Rest: b}
	generation, number := r.Uvarint(), r.Uvarint()
	f.compare = number <= f.loaded
	switch {
	case err != nil || r.Short || generation < f.oldest():
	case generation == f.generation && number <= f.number:
	case generation == f.generation && number == f.number+1 && store.DecodeAnswers(r.Rest, f.show) == nil:
		f.number, f.heard = number, time.Now()
	default:
		if f.complete = false; generation > f.generation {
			f.heard = time.Now() // the new owner has just begun, so nothing older is missing
		}
		if f.e.views[f.p].lackSince.CompareAndSwap(nil, new(f.heard)) {
			f.e.lacking.Add(1)
		}
	}
}

func (f *follower) lacksNothing() {
	if f.e.views[f.p].lackSince.Swap(nil) != nil {
		f.e.lacking.Add(-1)
	}
}

func (f *follower) oldest() uint64 {
	if c := f.e.views[f.p].cursor.Load(); c != nil {
		return max(f.generation, c.Generation)
	}
	return f.generation
}

func (f *follower) load(ctx context.Context) error {
	q := &store.Question{Kind: store.AskAnswers}
	var first reply
	for more := true; more; more = q.From != 0 {
		r, err := f.e.ask(ctx, f.p, q)
		if f.e.config.Newer.Note(codec.States, err) {
			// The vehicles keep the answers that this node knows.
			if !f.live {
				f.e.config.Newer.LacksStates()
			}
			break
		}
		if q.From == 0 {
			first = r
		}
		switch {
		case err != nil:
			return err
		case r.Generation < f.oldest() || r.Generation != first.Generation:
			return store.ErrNoOwner
		}
		f.compare = r.Generation > f.generation
		if err := store.DecodeAnswers(r.Answers, f.show); err != nil {
			return err
		}
		q.From, f.loaded = r.Next, r.Until
	}
	f.lacksNothing()
	f.generation, f.number = max(f.generation, first.Generation), first.Number
	f.complete, f.heard = true, time.Now()
	if !f.live {
		f.live = true
		f.ready()
	}
	return nil
}

// show replaces a known answer from the future even by an older one: a clock was wrong.
func (f *follower) show(id vehicle.ID, a *store.Answer) {
	switch none := (store.Answer{}); {
	case f.e.forgotten.Covers(id):
		a = &none
	case f.compare && *a != none && f.e.config.Known != nil:
		driving, throttle := f.e.config.Known(id)
		older := a.Driving.Time < driving || a.Throttle.Time < throttle
		if older && max(driving, throttle) <= signal.At(f.e.config.Now().Add(vehicle.MaxAhead)) {
			return
		}
	}
	f.put(id, a)
}
