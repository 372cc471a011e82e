package stream

import (
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/nats-io/nats.go"
)

func (e *Engine) openExternal() (err error) {
	opts := []nats.Option{
		nats.Name("carstate"),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.Timeout(5 * time.Second),
		nats.PingInterval(2 * time.Second),
		nats.MaxPingsOutstanding(2),
		// Otherwise the second refusal by one server ends the connection for
		// ever: also where the others would take the login, or this one will.
		nats.IgnoreAuthErrorAbort(),
		nats.ClosedHandler(e.onClosed),
		e.onAsyncError(), e.watchVersions(),
	}
	if e.config.CredsFile != "" {
		opts = append(opts, nats.UserCredentials(e.config.CredsFile)) // read again for each login
	}
	// The addresses may carry a password, so the error must not repeat them.
	if e.nc, err = nats.Connect(e.config.URLs, opts...); err != nil {
		if malformed, ok := errors.AsType[*url.Error](err); ok {
			err = malformed.Err
		}
		return fmt.Errorf("the NATS cluster cannot be reached: check --nats and --nats-creds: %w", err)
	}
	return nil
}

// onClosed ends an engine whose connection the client library has given up: it
// never comes back, and everything that asked over it fails from now on.
func (e *Engine) onClosed(nc *nats.Conn) {
	if !e.needed.Load() {
		return
	}
	err := nc.LastError()
	if err == nil {
		err = nats.ErrConnectionClosed
	}
	e.fail(fmt.Errorf("the connection to the NATS cluster was closed for good: %w", err))
}

func (e *Engine) onAsyncError() nats.Option {
	var refusals refusals
	return nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if d, ok := asDenial(err); ok {
			if deny := e.denied.Load(); deny != nil {
				(*deny)(d) // whoever opens the engine reports it
				return
			}
		}
		if isRefusal(err) {
			if n := refusals.count(time.Now()); n > 0 {
				e.log.Warn("the NATS cluster refuses the login: trying on", "error", err, "times", n)
			}
			return
		}
		e.log.Warn("engine connection", "error", err)
	})
}

// isRefusal reports whether a server did not let us in, or no longer does.
func isRefusal(err error) bool {
	for _, refusal := range []error{nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}

// refusals are logins refused since the last line about them. There are many a
// second, and the client library reports them one by one.
type refusals struct {
	n    int
	last time.Time
}

// refusalsEvery is how often a line says that logins are refused.
const refusalsEvery = time.Minute

// count adds one, and returns how many a line is due for, 0 if none is.
func (r *refusals) count(now time.Time) (n int) {
	r.n++
	if !r.last.IsZero() && now.Sub(r.last) < refusalsEvery {
		return 0
	}
	n, r.n, r.last = r.n, 0, now
	return n
}
