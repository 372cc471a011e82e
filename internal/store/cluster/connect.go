package cluster

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"carstate/internal/lograte"
)

// conn is the connection to the cluster. After a failure it stays unusable until the node
// starts again.
type conn struct {
	config Config
	log    *slog.Logger
	nc     *nats.Conn
	js     jetstream.JetStream
	legacy nats.JetStreamContext // only this one has ordered push consumers

	batches chan struct{} // holds a token for each atomic batch under way
	newest  atomic.Uint64 // sequence in STATES of the newest record that was acknowledged to this process
	warned  warned

	newerLease atomic.Int64 // when the lease of a node of a newer version came, Unix ns; 0: never

	// needed is set from start until Close or Cut: a connection that is closed
	// meanwhile was not closed by us.
	needed atomic.Bool

	// denied ends the opening of the engine for what the cluster forbids.
	denied atomic.Pointer[context.CancelCauseFunc]

	failed  chan error
	failure atomic.Pointer[error]
}

// warned is what lasts as long as an outage does, for all partitions together.
type warned struct{ fold, commit, backlog, limits lograte.Warning }

// connect connects to the cluster.
func (c *conn) connect() (err error) {
	opts := append(c.login(),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250*time.Millisecond),
		nats.Timeout(5*time.Second),
		nats.PingInterval(2*time.Second),
		nats.MaxPingsOutstanding(2),
		// Servers tell one another's IP addresses, for which their certificates need not be, and
		// whose error would take the place of that of an address that somebody wrote.
		nats.IgnoreDiscoveredServers(),
		// Otherwise the second refusal by one server ends the connection for
		// ever: also where the others would take the login, or this one will.
		nats.IgnoreAuthErrorAbort(),
		nats.ClosedHandler(c.onClosed),
		c.onAsyncError(), c.watchVersions(),
	)
	if c.nc, err = nats.Connect(c.config.URLs, opts...); err != nil {
		return unreachable(err)
	}
	if c.js, err = jetstream.New(c.nc); err == nil {
		c.legacy, err = c.nc.JetStream()
	}
	if err != nil {
		c.nc.Close()
	}
	return err
}

// login is how every connection says who it is.
func (c *conn) login() []nats.Option {
	opts := []nats.Option{nats.Name("carstate")}
	if c.config.CredsFile != "" {
		opts = append(opts, nats.UserCredentials(c.config.CredsFile)) // read again for each login
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
func (c *conn) checkVersions() error {
	urls := strings.Split(c.config.URLs, ",")
	old := make([]error, len(urls))
	var asking sync.WaitGroup
	for i, u := range urls {
		asking.Go(func() {
			nc, err := nats.Connect(u, append(c.login(), nats.NoReconnect(), nats.IgnoreDiscoveredServers(), nats.Timeout(greetTimeout))...)
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
func (c *conn) onClosed(nc *nats.Conn) {
	if !c.needed.Load() {
		return
	}
	err := nc.LastError()
	if err == nil {
		err = nats.ErrConnectionClosed
	}
	c.fail(fmt.Errorf("the connection to the NATS cluster was closed for good: %w", err))
}

func (c *conn) onAsyncError() nats.Option {
	var refused, other lograte.Warning // the client library reports many a second, one by one
	return nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if d, ok := asDenial(err); ok {
			if deny := c.denied.Load(); deny != nil {
				(*deny)(d) // whoever opens the engine reports it
				return
			}
			err = d.withoutNames()
		}
		if isRefusal(err) {
			refused.Log(c.log, "the NATS cluster refuses the login: trying on", "error", err)
			return
		}
		other.Log(c.log, "engine connection", "error", err)
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

// leastServer is the oldest nats-server that keeps what it acknowledges: before,
// it could leave out a sync when it compacted a file.
const leastServer = "2.15.2"

// greatestServer is the newest nats-server that the tests ran against.
const greatestServer = "2.15.2"

// older reports whether a server's version is below another. What comes after a
// hyphen does not count.
func older(version, than string) bool {
	number := func(v string) (n [3]int, ok bool) {
		v, _, _ = strings.Cut(strings.TrimPrefix(v, "v"), "-")
		parts := strings.Split(v, ".")
		if len(parts) != len(n) {
			return n, false
		}
		for i, p := range parts {
			var err error
			if n[i], err = strconv.Atoi(p); err != nil || n[i] < 0 {
				return n, false
			}
		}
		return n, true
	}
	a, ok := number(version)
	b, _ := number(than)
	for i := range a {
		if a[i] != b[i] {
			return !ok || a[i] < b[i]
		}
	}
	return !ok
}

// checkServer refuses a server that cannot do what is needed of it.
func (c *conn) checkServer(ctx context.Context) error {
	if err := cmp.Or(checkVersion(c.nc), c.checkVersions()); err != nil {
		return err
	}
	v := c.nc.ConnectedServerVersion()
	log := c.log.With("server", c.nc.ConnectedServerName(), "version", v, "tested_from", leastServer, "tested_up_to", greatestServer)
	if older(greatestServer, v) {
		log.Warn("connected to a NATS server that is newer than those that carstate was tested with: read its release notes, and update carstate when a version says that it was tested with this one")
	} else {
		log.Info("connected to a NATS server that carstate was tested with")
	}
	err := patiently(ctx, func(ctx context.Context) error {
		_, err := c.js.AccountInfo(ctx)
		return err
	})
	switch {
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, nats.ErrNoResponders):
		return errors.New("JetStream is off on the NATS cluster: give its servers a jetstream section, such as in deploy/nats/nats.conf")
	case errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return errors.New("JetStream is off for the NATS account: set jetstream: enabled in the account, such as in deploy/nats/nats.conf")
	case unled(err):
		return errUnled
	case err != nil:
		return fmt.Errorf("the NATS cluster cannot be asked about JetStream: %w", err)
	}
	return nil
}

var errUnled = errors.New("the NATS cluster does not answer: have most of its servers started, and chosen a leader?")

// unled reports whether nobody answered who may decide: the cluster, or the
// stream, has no leader at present.
func unled(err error) bool {
	const unavailable = 10008
	api, ok := asAPIError(err)
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrNoResponders) || ok && api.ErrorCode == unavailable
}

// remade reports whether a stream could not be made because the server is still
// busy with the removal of the one before, which it says no better.
func remade(err error) bool {
	const notCreated = 10049
	api, ok := asAPIError(err)
	return ok && api.ErrorCode == notCreated
}

// setupTimeout bounds how long one question may go unanswered at the start.
const setupTimeout = 30 * time.Second

// patiently asks until there is an answer: while a leader is chosen, for the
// cluster or a stream that was just made or gets other copies, questions are
// refused or dropped. They are such that they can be asked twice.
func patiently(ctx context.Context, ask func(ctx context.Context) error) error {
	const try, rest = 2 * time.Second, 100 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, setupTimeout)
	defer cancel()
	for {
		once, cancel := context.WithTimeout(ctx, try)
		err := ask(once)
		cancel()
		if !unled(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(rest):
		}
	}
}

// tooFewPeers reports whether a stream could not be made or changed because the
// cluster has too few servers for its copies.
func tooFewPeers(err error) bool {
	const noPeers, noCluster = 10005, 10074
	api, ok := asAPIError(err)
	return ok && (api.ErrorCode == noPeers || api.ErrorCode == noCluster)
}

// denial is what the cluster says of something that the account may not do.
type denial struct{ what string }

func (d denial) Error() string {
	return fmt.Sprintf("the NATS account lacks a right: %s: grant what deploy/nats/nats.conf does", d.what)
}

// withoutNames is the denial as it may be logged: in our subjects the kind is followed by
// names of vehicles and places.
func (d denial) withoutNames() denial {
	what, subject, ok := strings.Cut(d.what, " to ")
	if !ok || strings.HasPrefix(subject, "$") {
		return d
	}
	kind, _, _ := strings.Cut(subject, ".")
	return denial{what + " to " + kind + ".…"}
}

// asDenial finds a denial in what the connection reports by the way.
func asDenial(err error) (denial, bool) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return denial{}, false
	}
	_, what, _ := strings.Cut(err.Error(), "permissions violation: ")
	// Up to the subject, which is one of ours; nothing beyond that.
	if parts := strings.SplitN(what, `"`, 3); len(parts) == 3 {
		return denial{strings.TrimPrefix(parts[0], "Permissions Violation for ") + parts[1]}, true
	}
	return denial{"see the log of the NATS server"}, true
}

// watchVersions reports servers that are too old when the connection moves to
// them: a cluster may have been put together of several versions.
func (c *conn) watchVersions() nats.Option {
	return nats.ReconnectHandler(func(nc *nats.Conn) {
		if v := nc.ConnectedServerVersion(); older(v, leastServer) {
			c.log.Error("a NATS server is too old and may lose what it acknowledged: update it", "server", nc.ConnectedServerName(), "least", leastServer)
		}
	})
}

// Cut ends the connection to the engine, so that whatever still waits for an
// answer fails now. Only Close may follow.
func (c *conn) Cut() {
	c.needed.Store(false)
	c.nc.Close()
}

// Failed yields one error when the engine can no longer store anything and
// only a restart helps.
func (c *conn) Failed() <-chan error { return c.failed }

// fail reports the first failure of which only a restart is the cure.
func (c *conn) fail(err error) {
	if c.failure.CompareAndSwap(nil, &err) {
		c.log.Error("the engine failed", "error", err)
		c.failed <- err
	}
}

// Alive says why only a restart helps, nil while there is hope.
func (c *conn) Alive() error {
	if err := c.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// full reports whether a write was refused because its stream has no room.
func full(err error) bool {
	const storeFailed = 10077
	api, ok := asAPIError(err)
	return ok && api.ErrorCode == storeFailed && strings.Contains(api.Description, "maximum bytes")
}

// stillInProcess reports whether a write was refused because the engine is at
// work on an earlier one with the same id.
func stillInProcess(err error) bool {
	const duplicateInProcess = 10158
	api, ok := asAPIError(err)
	return ok && api.ErrorCode == duplicateInProcess
}

// refused reports whether the engine itself said no, as opposed to not
// answering.
func refused(err error) bool {
	_, ok := asAPIError(err)
	return ok
}

func asAPIError(err error) (*jetstream.APIError, bool) {
	var js jetstream.JetStreamError
	if errors.As(err, &js) && js.APIError() != nil {
		return js.APIError(), true
	}
	return nil, false
}
