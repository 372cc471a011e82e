package admin

import (
	"context"
	"crypto/subtle"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"carstate/internal/access"
	"carstate/internal/vehicle"
)

// Deeds are what an operator can do. The API and the console do the same ones, by
// the same rules, and leave the same traces in the audit. An error that a deed
// returns is one line that may be shown, and has a Status of HTTP.
type Deeds struct {
	cfg      Config
	adminKey atomic.Pointer[access.Hash] // replaced by RotateAdminKey
	rotating sync.Mutex                  // held while the key's file is replaced
}

func newDeeds(cfg Config) *Deeds {
	d := &Deeds{cfg: cfg}
	d.adminKey.Store(&cfg.AdminKey)
	return d
}

// Identify finds out whose key it is: an operator's, or the admin key, whose
// holder goes by [access.AdminName].
func (d *Deeds) Identify(key string) (who string, hash access.Hash, ok bool) {
	hash = access.HashOf(key)
	if d.isAdminKey(hash) {
		return access.AdminName, hash, true
	}
	o, err := d.cfg.Operators.Verify([]byte(key))
	return o.Name, hash, err == nil
}

// Counts reports whether a key that was identified still counts.
func (d *Deeds) Counts(who string, hash access.Hash) bool {
	if who == access.AdminName {
		return d.isAdminKey(hash)
	}
	o, ok := d.cfg.Operators.Get(who)
	return ok && o.Removed.IsZero() && o.Hash == hash
}

// isAdminKey compares hashes in constant time.
func (d *Deeds) isAdminKey(hash access.Hash) bool {
	return subtle.ConstantTimeCompare(hash[:], d.adminKey.Load()[:]) == 1
}

// storeTimeout bounds every call of the Keeper: the audit's event, the deed, and
// the event of its failure each have as much. A deed goes on when its caller hangs up: half of it would help nobody.
const storeTimeout = 30 * time.Second

// do writes the intention into the audit and then does it. If the intention
// cannot be written, nothing is done. If the deed fails, or may have failed, a
// second event says so.
func (d *Deeds) do(ctx context.Context, by string, e access.Event, deed func(context.Context) error) error {
	within := func(f func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
		defer cancel()
		return f(ctx)
	}
	write := func(outcome string) error {
		e.Time, e.Actor, e.Outcome = wireTime(d.cfg.Now()), by, outcome
		return within(func(ctx context.Context) error { return d.cfg.Keeper.Audit(ctx, e) })
	}
	log := d.cfg.Log.With("action", e.Action, "object", e.Object)

	if err := write("intended"); err != nil {
		log.Error("the audit cannot be written, so nothing is done", "error", oneLine(err))
		return refuse(http.StatusServiceUnavailable, "the audit cannot be written, so nothing was done; the service's log says why")
	}
	err := within(deed)
	if err == nil {
		log.Info("done", "actor", by)
		return nil
	}
	if err := write("failed"); err != nil {
		log.Error("the audit has the intention but not that it failed", "error", oneLine(err))
	}
	return d.explain(e.Action, err)
}

// explain turns any error into one that may be shown. What is not known to be
// fit for that is logged here, once, and shown without its text.
func (d *Deeds) explain(name string, err error) *refusal {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r
	}
	switch {
	case errors.Is(err, access.ErrNotFound):
		return errNoRecord
	case errors.Is(err, access.ErrExists) && name == "operator.add":
		return refuse(http.StatusConflict, "an operator of this name exists: choose another name, or remove that one first")
	case errors.Is(err, access.ErrExists):
		return refuse(http.StatusConflict, "a source of this name exists: choose another name, or remove that source first")
	}
	d.cfg.Log.Error("a call of the admin API failed", "call", name, "error", oneLine(err))
	return refuse(http.StatusServiceUnavailable,
		"it could not be confirmed that this was stored: look at the record before trying again; the service's log says why")
}

// checkGrantable refuses to write the name of a forgotten vehicle down again.
func (d *Deeds) checkGrantable(ids ...vehicle.ID) error {
	for i, id := range ids {
		if d.cfg.Forgotten != nil && d.cfg.Forgotten(id) {
			return refuse(http.StatusConflict, "vehicle %d of the list was forgotten: allow it first (carstate forget VID --allow)", i+1)
		}
	}
	return nil
}

var errNoRecord = refuse(http.StatusNotFound, "there is no such record: list them to see the names")

// wireTime is a time as records keep it.
func wireTime(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }
