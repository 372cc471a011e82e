package ops

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"example.org/carstate/internal/access"
)

// storeTimeout limits each call of a [Store] method, except Backup, Restore and Bury.
const storeTimeout = 30 * time.Second

// within does not cancel f if the client disconnects, so that no operation stops halfway.
func within(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	return f(ctx)
}

// operatorRate limits the audited operations of each operator, so that none can fill the audit.
var operatorRate = access.Rate{Calls: 600, Window: 10 * time.Minute}

// Audited is auditedAtLength with storeTimeout for do.
func (p *Operations) Audited(
	ctx context.Context, by access.Actor, e access.Event, do func(context.Context) error,
) error {
	return p.auditedAtLength(ctx, by, e, func(ctx context.Context) error { return within(ctx, do) })
}

func (p *Operations) auditedAtLength(
	ctx context.Context, by access.Actor, e access.Event, do func(context.Context) error,
) error {
	if by.ReadOnly {
		return ErrReadOnly
	}
	if o, known := p.cfg.Tables.Operators.Get(by.Name); known && !by.Admin {
		if _, next, ok := o.Budget.Take(operatorRate, 1, p.cfg.Now()); !ok {
			return Refusalf(http.StatusTooManyRequests, "too many changes by this operator: wait %d s", access.WaitSeconds(next))
		}
	}
	write := func(outcome string) error {
		e.Time, e.Actor, e.Admin, e.Outcome = wireTime(p.cfg.Now()), by.Name, by.Admin, outcome
		return within(ctx, func(ctx context.Context) error { return p.cfg.Store.Audit(ctx, e) })
	}
	log := p.cfg.Log.With("action", e.Action, "object", e.Object)

	if err := write("intended"); err != nil {
		log.Error("the audit cannot be written, so nothing is done", "error", access.OneLine(err))
		return Refusalf(http.StatusServiceUnavailable,
			"the audit cannot be written, so nothing was done; the service's log says why")
	}
	err := do(context.WithoutCancel(ctx))
	if err == nil {
		log.Info("done", "actor", by.Name, "admin", by.Admin)
		return nil
	}
	if err := write("failed"); err != nil {
		log.Error("cannot write the failure of an operation to the audit", "error", access.OneLine(err))
	}
	return p.Explain(e.Action, err)
}

var Actions = []string{
	"token.issue", "token.grant", "token.change", "token.rotate", "token.revoke", "source.add", "source.change",
	"source.rotate", "source.remove",
	"operator.add", "operator.rotate", "operator.remove", "admin-key.rotate",
	"vehicle.forget", "vehicle.allow", "vehicle.relearn", "backup.take", "backup-key.show", "backup.restore", "node.change",
	"road.forget",
}

// Refusal is one line that may be shown to the caller.
type Refusal struct {
	Status int // of HTTP
	text   string
}

func (r *Refusal) Error() string { return r.text }

func Refusalf(status int, format string, args ...any) *Refusal {
	return &Refusal{status, fmt.Sprintf(format, args...)}
}

var ErrReadOnly = Refusalf(http.StatusForbidden,
	"this key only reads: a change or a backup needs the key of an operator that is not read-only")

func noRecord(action string) *Refusal {
	noun, _, _ := strings.Cut(action, ".")
	if noun == "vehicle" {
		return Refusalf(http.StatusNotFound, "this vehicle is not forgotten")
	}
	return Refusalf(http.StatusNotFound, "there is no such %s: see `carstate %[1]s list`", noun)
}

// Explain returns err as a refusal, and logs it unless it only says what the caller did wrong.
func (p *Operations) Explain(action string, err error) *Refusal {
	if errors.Is(err, access.ErrDamaged) { // the store has logged it
		return Refusalf(http.StatusServiceUnavailable,
			"the part of the stored data that this needs is damaged: see When the store is damaged in docs/operations.md")
	}
	if r, ok := errors.AsType[*Refusal](err); ok {
		if err != error(r) {
			p.cfg.Log.Error("an operation failed", "action", action, "error", access.OneLine(err))
		}
		return r
	}
	switch {
	case errors.Is(err, access.ErrNotFound):
		return noRecord(action)
	case errors.Is(err, access.ErrNotErased), errors.Is(err, access.ErrBusy), errors.Is(err, access.ErrNotEmpty),
		errors.Is(err, access.ErrExists) && action == "backup.restore": // it says of what kind
		return Refusalf(http.StatusConflict, "%v", err)
	case errors.Is(err, access.ErrExists):
		noun, _, _ := strings.Cut(action, ".")
		return Refusalf(http.StatusConflict, "the name of this %s is taken: choose another, or remove that %[1]s first", noun)
	}
	p.cfg.Log.Error("an operation failed", "action", action, "error", access.OneLine(err))
	return Refusalf(http.StatusServiceUnavailable,
		"it could not be confirmed that this was stored: look at the record before a retry; the service's log says why")
}
