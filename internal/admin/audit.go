package admin

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"carstate/internal/access"
)

// storeTimeout bounds every call of the Keeper: the audit's event, the deed, and
// the event of its failure each have as much. A deed goes on when its caller hangs up: half of it would help nobody.
const storeTimeout = 30 * time.Second

// deed writes the intention into the audit and then does it. If the intention
// cannot be written, nothing is done. If the deed fails, or may have failed, a
// second event says so.
func (s *Server) deed(r *http.Request, e access.Event, do func(context.Context) error) error {
	within := func(f func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), storeTimeout)
		defer cancel()
		return f(ctx)
	}
	write := func(outcome string) error {
		e.Time, e.Actor, e.Outcome = wireTime(s.cfg.Now()), actor, outcome
		return within(func(ctx context.Context) error { return s.cfg.Keeper.Audit(ctx, e) })
	}
	log := s.cfg.Log.With("action", e.Action, "object", e.Object)

	if err := write("intended"); err != nil {
		log.Error("the audit cannot be written, so nothing is done", "error", oneLine(err))
		return refuse(http.StatusServiceUnavailable, "the audit cannot be written, so nothing was done; the service's log says why")
	}
	err := within(do)
	if err == nil {
		log.Info("done", "actor", actor)
		return nil
	}
	if err := write("failed"); err != nil {
		log.Error("the audit has the intention but not that it failed", "error", oneLine(err))
	}
	return err
}

// How many events GET /v1/audit answers with.
const (
	defaultEvents = 100
	maxEvents     = 1000
)

func (s *Server) listAudit(r *http.Request, _ nothing) (eventList, error) {
	limit := defaultEvents
	if text := r.URL.Query().Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxEvents {
			return eventList{}, refuse(http.StatusBadRequest, "limit is a number from 1 to %d", maxEvents)
		}
		limit = n
	}
	ctx, cancel := context.WithTimeout(r.Context(), storeTimeout)
	defer cancel()
	events, err := s.cfg.Keeper.AuditTail(ctx, limit)
	if err != nil {
		s.cfg.Log.Error("the audit cannot be read", "error", oneLine(err))
		return eventList{}, refuse(http.StatusServiceUnavailable, "the audit cannot be read; the service's log says why")
	}
	return eventList{events}, nil
}
