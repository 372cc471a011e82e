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
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"example.org/carstate/internal/lograte"
	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/store/engine"
)

// After fail, conn is unusable until the node restarts.
type conn struct {
	config Config
	log    *slog.Logger
	nc     *nats.Conn
	js     jetstream.JetStream
	legacy nats.JetStreamContext // only this API has ordered push consumers

	batches chan struct{}
	warned  warned
	beats   map[string]*heartbeat

	// when a node of a newer version last renewed its lease, Unix ns; 0: none
	newerLease atomic.Int64

	// If needed, a closed connection means that the client library has given up, and the engine
	// fails.
	needed atomic.Bool

	// denied cancels the requests of Open when NATS denies a permission; nil after Open.
	denied atomic.Pointer[context.CancelCauseFunc]

	*engine.Failure
}

// All partitions share one limit for each kind.
type warned struct{ fold, commit, backlog, limits lograte.Warning }

// The client library tries to reconnect until the connection is closed.
func (c *conn) connect() (err error) {
	opts := append(c.login(),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250*time.Millisecond),
		nats.Timeout(5*time.Second),
		nats.PingInterval(2*time.Second),
		nats.MaxPingsOutstanding(2),
		// Certificates need not be valid for the IP addresses that servers report of each other.
		nats.IgnoreDiscoveredServers(),
		// By default, the second authorization error of one server closes the connection for good.
		nats.IgnoreAuthErrorAbort(),
		nats.ClosedHandler(c.onClosed),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			if err := checkVersion(nc); err != nil {
				c.log.Error("the NATS connection has moved to a server that is too old", "error", err)
			}
		}),
		c.onAsyncError(),
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

func (c *conn) login() []nats.Option {
	opts := []nats.Option{nats.Name("carstate")}
	if c.config.CredsFile != "" {
		opts = append(opts, nats.UserCredentials(c.config.CredsFile)) // read again for each login
	}
	return opts
}

// For a file that the configuration names, the error is a [store.ErrConfig].
func unreachable(err error) error {
	// The addresses may contain a password, so the error must not repeat them.
	malformed, isMalformed := errors.AsType[*url.Error](err)
	_, isUnknown := errors.AsType[x509.UnknownAuthorityError](err)
	_, isOther := errors.AsType[x509.HostnameError](err)
	what, wrongFile := "do its servers run, and listen where --nats says?", false
	switch {
	case isMalformed:
		what, err = "check --nats, which lists addresses such as tls://host:4222", malformed.Err
	case isUnknown:
		what = "set SSL_CERT_FILE to the certificate of the authority that issued the servers'"
		if file := os.Getenv("SSL_CERT_FILE"); file != "" {
			what = "is SSL_CERT_FILE the certificate of the authority that issued the servers'?"
			if _, ferr := os.ReadFile(file); ferr != nil {
				what, wrongFile = "the file that SSL_CERT_FILE names cannot be read", true
			}
		}
	case isOther:
		what = "a server's certificate is not for the host that --nats names"
	case errors.Is(err, nats.ErrSecureConnWanted):
		what = "--nats names a server with tls://, but the server offers no TLS"
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission),
		strings.Contains(err.Error(), "signing nonce"):
		// The client library has no error type for a malformed file of credentials.
		what, wrongFile = "--nats-creds must name a file of credentials, with a JWT and a seed, that can be read", true
	case isRefusal(err):
		what = "it refuses the login: check the name and password in --nats, or --nats-creds"
	}
	err = fmt.Errorf("the NATS cluster cannot be reached: %s: %w", what, err)
	if wrongFile {
		return store.ConfigError(err)
	}
	return err
}

const greetTimeout = 2 * time.Second

func (c *conn) checkVersions() error {
	urls := strings.Split(c.config.URLs, ",")
	old := make([]error, len(urls))
	var asking sync.WaitGroup
	for i, u := range urls {
		asking.Go(func() {
			nc, err := nats.Connect(u, append(c.login(), nats.NoReconnect(), nats.IgnoreDiscoveredServers(),
				nats.Timeout(greetTimeout))...)
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

func checkVersion(nc *nats.Conn) error {
	if !older(nc.ConnectedServerVersion(), leastServer) {
		return nil
	}
	return fmt.Errorf("the NATS server %q is older than %s and may lose what it acknowledged: "+
		"update all servers of the cluster", nc.ConnectedServerName(), leastServer)
}

// Every later request over the connection would fail.
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
	var refused, other lograte.Warning // the client library reports many errors per second
	return nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if d, ok := asDenial(err); ok {
			if deny := c.denied.Load(); deny != nil {
				(*deny)(d)
				return
			}
			err = d.withoutNames()
		}
		if isRefusal(err) {
			refused.Log(c.log, "the NATS cluster refuses the login; will retry", "error", err)
			return
		}
		other.Log(c.log, "error of the connection to NATS", "error", err)
	})
}

// A server may have accepted the login, and revoked it later.
func isRefusal(err error) bool {
	return slices.ContainsFunc([]error{
		nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired,
	}, func(refusal error) bool { return errors.Is(err, refusal) })
}

const leastServer = "2.15.2" // Older servers could omit a sync when they compacted a file.

const greatestServer = "2.15.2" // the newest that the tests ran against

// A version that cannot be parsed is older than any other; a suffix is ignored.
func older(version, than string) bool {
	number := func(v string) ([]int, error) {
		n := make([]int, 3)
		_, err := fmt.Sscanf(strings.TrimPrefix(v, "v"), "%d.%d.%d", &n[0], &n[1], &n[2])
		return n, err
	}
	a, err := number(version)
	b, _ := number(than)
	return err != nil || slices.Compare(a, b) < 0
}

func (c *conn) checkServer(ctx context.Context) error {
	if err := cmp.Or(checkVersion(c.nc), c.checkVersions()); err != nil {
		return err
	}
	v := c.nc.ConnectedServerVersion()
	log := c.log.With("server", c.nc.ConnectedServerName(), "version", v,
		"tested_from", leastServer, "tested_up_to", greatestServer)
	if older(greatestServer, v) {
		log.Warn("connected to a NATS server that is newer than the tested ones: " +
			"read its release notes, and update carstate once a version is tested with it")
	} else {
		log.Info("connected to a NATS server of a tested version")
	}
	err := patiently(ctx, func(ctx context.Context) error {
		_, err := c.js.AccountInfo(ctx)
		return err
	})
	switch {
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, nats.ErrNoResponders):
		return errors.New("JetStream is off on the NATS cluster: " +
			"give its servers a jetstream section, such as in deploy/nats/nats.conf")
	case errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return errors.New("JetStream is off for the NATS account: " +
			"set jetstream: enabled in the account, such as in deploy/nats/nats.conf")
	case isNoLeader(err):
		return errNoLeader
	case err != nil:
		return fmt.Errorf("the NATS cluster does not say whether JetStream is on: %w", err)
	}
	return nil
}

var errNoLeader = errors.New("the NATS cluster does not answer: have most of its servers started and elected a leader?")

func isNoLeader(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrNoResponders) || hasCode(err, unavailable)
}

const setupTimeout = 30 * time.Second

// patiently repeats ask, which must be idempotent, for setupTimeout: servers refuse or drop
// requests while they elect a leader, also of a stream that is new or changes its replicas.
func patiently(ctx context.Context, ask func(ctx context.Context) error) error {
	const try, rest = 2 * time.Second, 100 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, setupTimeout)
	defer cancel()
	for {
		once, cancel := context.WithTimeout(ctx, try)
		err := ask(once)
		cancel()
		if !isNoLeader(err) {
			return err
		}
		if periodic.Pause(ctx, rest) != nil {
			return err
		}
	}
}

type denial struct{ what string }

func (d denial) Error() string {
	return fmt.Sprintf("the NATS account lacks a right: %s: grant what deploy/nats/nats.conf does", d.what)
}

// withoutNames removes what may name a vehicle or place, for the log.
func (d denial) withoutNames() denial {
	what, subject, ok := strings.Cut(d.what, " to ")
	if !ok || strings.HasPrefix(subject, "$") {
		return d
	}
	kind, _, _ := strings.Cut(subject, ".")
	return denial{what + " to " + kind + ".…"}
}

func asDenial(err error) (denial, bool) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return denial{}, false
	}
	_, what, _ := strings.Cut(err.Error(), "permissions violation: ")
	if parts := strings.SplitN(what, `"`, 3); len(parts) == 3 {
		return denial{strings.TrimPrefix(parts[0], "Permissions Violation for ") + parts[1]}, true
	}
	return denial{"see the log of the NATS server"}, true
}

func (c *conn) Cut() {
	c.needed.Store(false)
	c.nc.Close()
}

func (c *conn) fail(err error) { c.Fail(c.log, "the engine failed", err) }

// isFinal reports whether reading again would result in the same err. The engine then fails, except
// for a record of a newer version.
func (c *conn) isFinal(err error) bool {
	switch {
	case codec.IsNewer(err):
		return true
	case errors.Is(err, codec.ErrDamaged), errors.Is(err, codec.ErrNewer), errors.Is(err, store.ErrReplaced):
		c.fail(err)
		return true
	}
	return false
}

func full(err error) bool {
	api, ok := asAPIError(err)
	return ok && api.ErrorCode == storeFailed && strings.Contains(api.Description, "maximum bytes")
}

const (
	// too few servers with JetStream for the replicas of a stream
	noPeers, noCluster = 10005, 10074
	unavailable        = 10008 // JetStream is unavailable, as while the cluster elects a leader
	notCreated         = 10049 // presumably, the server is still removing a stream of the same name
	// the last record of a subject does not have the sequence that the write expects
	wrongLastSequence  = 10071
	storeFailed        = 10077
	duplicateInProcess = 10158 // an earlier write with the same message id is still being processed
	writeInProgress    = 10164 // the stream's leader is still processing another write of the subject
)

func hasCode(err error, codes ...jetstream.ErrorCode) bool {
	api, ok := asAPIError(err)
	return ok && slices.Contains(codes, api.ErrorCode)
}

func asAPIError(err error) (*jetstream.APIError, bool) {
	js, ok := errors.AsType[jetstream.JetStreamError](err)
	if !ok {
		return nil, false
	}
	return js.APIError(), js.APIError() != nil
}
