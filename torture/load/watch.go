package load

import (
	"context"
	"net/http"
	"time"

	"carstate/internal/nodeprocess"
)

// watchedCars is how many vehicles are asked for all the time.
const watchedCars = 200

// askLimit is how long a query may take that must be answered.
const askLimit = 5 * time.Second

// watch asks for the same vehicles again and again, in this life of the node and
// the next: none may go back in event time, or be unknown once it was known.
func (l *Load) watch(ctx context.Context, n *nodeprocess.Node, number int) {
	for ctx.Err() == nil {
		cars := l.journal.watched(watchedCars)
		if len(cars) == 0 && !rest(ctx) {
			return
		}
		for i, vid := range cars {
			if i%watchers != number {
				continue
			}
			if answered := l.ask(ctx, n, vid, l.journal.before(vid), false); !answered && !rest(ctx) {
				return
			}
		}
	}
}

// ask asks for a vehicle and judges the answer by what was known before. It reports
// whether there was one.
func (l *Load) ask(ctx context.Context, n *nodeprocess.Node, vid string, was car, settled bool) bool {
	must, asking := l.MustAnswer.Load(), ctx
	if must {
		// It has a time of its own, whatever becomes of the load meanwhile.
		var cancel context.CancelFunc
		asking, cancel = context.WithTimeout(context.WithoutCancel(ctx), askLimit)
		defer cancel()
	}
	a, err := n.Ask(asking, nodeprocess.DrivingPath, l.token, vid)
	if ctx.Err() != nil && !must {
		return false
	}
	l.Stats.Asked.Add(1)
	if err != nil || a.HTTP == http.StatusServiceUnavailable {
		l.Stats.Unanswered.Add(1)
		if must {
			l.wrong("a query was not answered within %s while the node was up: HTTP %d, %v", askLimit, a.HTTP, err)
		}
		return false
	}
	l.Stats.LastAsk.Store(time.Now().UnixNano())
	if f := l.journal.judge(vid, was, a, settled); f.Text != "" {
		l.report(f)
	}
	return true
}
