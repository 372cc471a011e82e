package load

import (
	"context"
	"errors"
	"fmt"

	"carstate/internal/nodeprocess"
)

// Refused tells a node that did not start because it was killed, which is nil, from
// one that refused to, which is wrong. after is what it should have got over.
func (l *Load) Refused(err error, after string) error {
	if e, ok := errors.AsType[*nodeprocess.EndedError](err); ok && e.Code >= 0 {
		l.wrong("it does not start after %s: %s", after, e.Last)
		return err
	}
	return nil
}

// Hold waits until the node must know all that was acknowledged, and looks at what
// it knows. That it never does, or ends, is a finding.
func (l *Load) Hold(ctx context.Context, n *nodeprocess.Node, look func(context.Context, *nodeprocess.Node) error) error {
	err := l.Settle(ctx, n)
	settled := err == nil
	if settled {
		err = look(ctx, n)
	}
	switch {
	case err == nil || ctx.Err() != nil:
	case n.HasEnded():
		l.wrong("it ended by itself: %s", n.LastLine())
	case settled: // it could not be looked at
	case errors.Is(err, errNotSeen):
		l.report(Finding{Text: err.Error(), Lost: true})
	default:
		l.wrong("%v", err)
	}
	return err
}

// End tells what the journal holds, looks whether enough has happened for the row to
// say something, and stops the last node.
func (l *Load) End(n *nodeprocess.Node) {
	vehicles, tokens, revoked, sources, removed, forgotten := l.journal.counts()
	l.a.Figure("vehicles in the journal", float64(vehicles), "")
	l.a.Figure(fmt.Sprintf("tokens issued, %d of them revoked", revoked), float64(tokens), "")
	l.a.Figure(fmt.Sprintf("sources added, %d of them removed", removed), float64(sources), "")
	l.a.Figure("vehicles forgotten", float64(forgotten), "")
	l.MustHaveHappened()
	if err := n.Stop(); err != nil {
		l.wrong("it does not stop as it should: %v", err)
	}
}
