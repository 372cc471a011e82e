package cluster

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"carstate/internal/seldom"
	"carstate/internal/store/codec"
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
func (e *Engine) checkServer(ctx context.Context) error {
	if err := cmp.Or(checkVersion(e.nc), e.checkVersions()); err != nil {
		return err
	}
	v := e.nc.ConnectedServerVersion()
	log := e.log.With("server", e.nc.ConnectedServerName(), "version", v, "tested_from", leastServer, "tested_up_to", greatestServer)
	if older(greatestServer, v) {
		log.Warn("connected to a NATS server that is newer than those that carstate was tested with: read its release notes, and update carstate when a version says that it was tested with this one")
	} else {
		log.Info("connected to a NATS server that carstate was tested with")
	}
	err := patiently(ctx, func(ctx context.Context) error {
		_, err := e.js.AccountInfo(ctx)
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

// flowProbe is where to the pace of a consumer that is not there would be answered.
const flowProbe = "$JS.FC.probe"

// sharedProbe is what a node tells of roads that tells nothing.
var sharedProbe = codec.Seal(sharedSubject("probe"), []byte{0})

// probeRights finds out whether the account may do all that is needed later, by
// requests that change nothing: records for a stream of another name, the removal
// of what is not there. What only makes or changes streams is not among them: who
// wants to may take that away once they are made.
func (e *Engine) probeRights(ctx context.Context, configs []jetstream.StreamConfig) error {
	var asking sync.WaitGroup
	var failed error
	var mu sync.Mutex
	fail := func(subject string, err error) {
		mu.Lock()
		defer mu.Unlock()
		failed = fmt.Errorf("the NATS cluster cannot be asked for %s: %w", subject, err)
		if unled(err) {
			failed = fmt.Errorf("nobody answers for %s: has its stream a leader? (nats stream report)", subject)
		}
	}
	ask := func(m *nats.Msg) {
		asking.Go(func() {
			err := patiently(ctx, func(ctx context.Context) error {
				_, err := e.nc.RequestMsgWithContext(ctx, m)
				return err
			})
			if err != nil {
				fail(m.Subject, err)
			}
		})
	}
	question := func(subject string, body any) {
		text, err := json.Marshal(body)
		if err != nil {
			panic(err) // a map of a string or a number
		}
		m := nats.NewMsg(subject)
		m.Data = text
		ask(m)
	}
	for _, c := range configs {
		for _, s := range c.Subjects {
			m := nats.NewMsg(strings.ReplaceAll(s, "*", "probe"))
			m.Header.Set(jetstream.ExpectedStreamHeader, "no-such-stream")
			ask(m)
		}
	}
	for _, name := range []string{codec.Telemetry, codec.States, codec.Tokens} {
		question("$JS.API.STREAM.PURGE."+name, map[string]any{"filter": codec.HeartbeatSubject("probe")}) // nobody's
	}
	for _, name := range append([]string{codec.Audit, codec.Roads}, fedStreams...) {
		question("$JS.API.DIRECT.GET."+name, map[string]any{"seq": uint64(1) << 62})
	}
	question("$JS.API.STREAM.MSG.DELETE."+codec.States, map[string]any{"seq": uint64(1) << 62})
	for _, name := range append([]string{codec.Telemetry}, fedStreams...) {
		question("$JS.API.STREAM.MSG.GET."+name, map[string]any{"seq": uint64(1) << 62})
		question("$JS.API.CONSUMER.CREATE."+name+".probe", map[string]any{}) // of no stream
		question("$JS.API.CONSUMER.DELETE."+name+".probe", map[string]any{})
	}
	// To these nobody answers, but a refusal comes before the next answer.
	for subject, do := range map[string]func() error{
		flowProbe:              func() error { return e.nc.Publish(flowProbe, nil) },
		sharedSubject("probe"): func() error { return e.nc.Publish(sharedSubject("probe"), sharedProbe) },
		sharedSubject("*"): func() error {
			sub, err := e.nc.SubscribeSync(sharedSubject("*"))
			if err != nil {
				return err
			}
			return sub.Unsubscribe()
		},
	} {
		asking.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, setupTimeout)
			defer cancel()
			err := cmp.Or(do(), e.nc.FlushWithContext(ctx))
			if d, ok := asDenial(e.nc.LastError()); ok {
				err = d
			}
			if err != nil {
				fail(subject, err)
			}
		})
	}
	asking.Wait()
	return failed
}

// watchVersions reports servers that are too old when the connection moves to
// them: a cluster may have been put together of several versions.
func (e *Engine) watchVersions() nats.Option {
	return nats.ReconnectHandler(func(nc *nats.Conn) {
		if v := nc.ConnectedServerVersion(); older(v, leastServer) {
			e.log.Error("a NATS server is too old and may lose what it acknowledged: update it", "server", nc.ConnectedServerName(), "least", leastServer)
		}
	})
}
