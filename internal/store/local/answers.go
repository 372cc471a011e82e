package local

import (
	"context"
	"time"

	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/vehicle"
)

func (t *Partition) Live(ctx context.Context, answers func(put func(vehicle.ID, *store.Answer))) {
	select {
	case <-t.s.e.following:
		answers(t.s.e.put)
		t.s.live.Store(true)
	case <-ctx.Done():
	case <-t.owned.Done():
	case <-t.s.e.halted.Done():
	}
}

func (t *Partition) Publish(id vehicle.ID, a *store.Answer) {
	select {
	case <-t.s.e.following:
		t.s.e.put(id, a)
	default:
	}
}

// FollowAnswers may be called only once.
func (e *Engine) FollowAnswers(ctx context.Context, put func(vehicle.ID, *store.Answer), caughtUp func()) error {
	e.put = put
	close(e.following)
	for live := 0; live < len(e.partitions); {
		if periodic.Pause(ctx, livePoll) != nil {
			return nil
		}
		live = 0
		for _, s := range e.partitions {
			if s.live.Load() {
				live++
			}
		}
	}
	caughtUp()
	<-ctx.Done()
	return nil
}

const livePoll = 5 * time.Millisecond

// Progress counts the groups that were not folded at Open.
func (e *Engine) Progress() (folded, groups uint64) {
	for _, s := range e.partitions {
		s.mu.Lock()
		groups += s.atOpen - s.cursorAtOpen
		folded += min(max(s.answered, s.cursorAtOpen), s.atOpen) - s.cursorAtOpen
		s.mu.Unlock()
	}
	return folded, groups
}
