package cluster

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"carstate/internal/seldom"

	"github.com/nats-io/nats.go"
)

// connect connects to the cluster.
func (e *Engine) connect() (err error) {
	opts := append(e.login(),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250*time.Millisecond),
		nats.Timeout(5*time.Second),
		nats.PingInterval(2*time.Second),
		nats.MaxPingsOutstanding(2),
		// Otherwise the second refusal by one server ends the connection for
		// ever: also where the others would take the login, or this one will.
		nats.IgnoreAuthErrorAbort(),
		nats.ClosedHandler(e.onClosed),
		e.onAsyncError(), e.watchVersions(),
	)
	if e.nc, err = nats.Connect(e.config.URLs, opts...); err != nil {
		return unreachable(err)
	}
	return nil
}

// login is how every connection says who it is.
func (e *Engine) login() []nats.Option {
	opts := []nats.Option{nats.Name("carstate")}
	if e.config.CredsFile != "" {
		opts = append(opts, nats.UserCredentials(e.config.CredsFile)) // read again for each login
	}
	return opts
}

// unreachable says what to do about a connection that was not made.
func unreachable(err error) error {
	// The addresses may carry a password, so the error must not repeat them.
	malformed, isMalformed := errors.AsType[*url.Error](err)
	_, isUnknown := errors.AsType[x509.UnknownAuthorityError](err)
	_, isOther := errors.AsType[x509.HostnameError](err)
	what := "do its servers run, and listen where --nats says?"
	switch {
	case isMalformed:
		what, err = "check --nats, which lists addresses such as tls://host:4222", malformed.Err
	case isUnknown:
		what = "set SSL_CERT_FILE to the certificate of the authority that issued the servers'"
		if file := os.Getenv("SSL_CERT_FILE"); file != "" {
			what = "is SSL_CERT_FILE the certificate of the authority that issued the servers'?"
			if f, ferr := os.Open(file); ferr != nil {
				what = "the file that SSL_CERT_FILE names cannot be read"
			} else {
				_ = f.Close() // it was only read
			}
		}
	case isOther:
		what = "a server's certificate is not for the host that --nats names"
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission), strings.Contains(err.Error(), "signing nonce"):
		// The client library has no error of its own for a file that is broken.
		what = "--nats-creds must name a file of credentials, with a JWT and a seed, that can be read"
	case isRefusal(err):
		what = "it refuses the login: check the name and password in --nats, or --nats-creds"
	}
	return fmt.Errorf("the NATS cluster cannot be reached: %s: %w", what, err)
}

// greetTimeout is how long a server may take to say which version it is.
const greetTimeout = 2 * time.Second

// checkVersions refuses a cluster of which any server that --nats names is too old.
// Those that do not answer are looked at when the connection moves to them.
func (e *Engine) checkVersions() error {
	urls := strings.Split(e.config.URLs, ",")
	old := make([]error, len(urls))
	var asking sync.WaitGroup
	for i, u := range urls {
		asking.Go(func() {
			nc, err := nats.Connect(u, append(e.login(), nats.NoReconnect(), nats.IgnoreDiscoveredServers(), nats.Timeout(greetTimeout))...)
			if err != nil {
				return
			}
			defer nc.Close()
			old[i] = checkVersion(nc)
		})
	}
	asking.Wait()
	return cmp.Or(old...)
}

// checkVersion refuses the server that a connection is to.
func checkVersion(nc *nats.Conn) error {
	if !older(nc.ConnectedServerVersion(), leastServer) {
		return nil
	}
	return fmt.Errorf("the NATS server %q is older than %s and may lose what it acknowledged: update all servers of the cluster", nc.ConnectedServerName(), leastServer)
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
	var refused seldom.Warning // the client library reports many a second, one by one
	return nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if d, ok := asDenial(err); ok {
			if deny := e.denied.Load(); deny != nil {
				(*deny)(d) // whoever opens the engine reports it
				return
			}
			err = d.withoutNames()
		}
		if isRefusal(err) {
			refused.Log(e.log, "the NATS cluster refuses the login: trying on", "error", err)
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
