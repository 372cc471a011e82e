// Package natsconn connects to a NATS cluster, or says in words why that fails. It knows no stream of
// carstate.
package natsconn

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"example.org/carstate/internal/lograte"
	"example.org/carstate/internal/netaddr"
	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/store"
)

type Config struct {
	URLs      string
	CredsFile string
	Log       *slog.Logger
	// Denied receives each right that the account lacks. If it returns false, the denial is logged.
	Denied func(Denial) bool
}

// ValidURLs also checks the schemes: the client library of NATS accepts any.
func ValidURLs(urls string) bool {
	all, err := parseURLs(urls)
	return err == nil && !slices.ContainsFunc(all, func(u *url.URL) bool {
		return u.Hostname() == "" || !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme)
	})
}

// Only tls:// and wss:// exclude a login in clear: with other schemes, an attacker in the network
// could pretend that the server has no TLS.
func LoginInClear(urls, credsFile string) bool {
	all, _ := parseURLs(urls)
	return ValidURLs(urls) && slices.ContainsFunc(all, func(u *url.URL) bool {
		return (u.User != nil || credsFile != "") && u.Scheme != "tls" && u.Scheme != "wss" &&
			!netaddr.IsLoopback(net.JoinHostPort(u.Hostname(), "0"))
	})
}

func parseURLs(list string) (all []*url.URL, err error) {
	for text := range strings.SplitSeq(list, ",") {
		if text = strings.TrimSpace(text); !strings.Contains(text, "://") {
			text = "nats://" + text
		}
		u, err := url.Parse(text)
		if err != nil {
			return nil, err
		}
		all = append(all, u)
	}
	return all, nil
}

func Connect(c Config) (*nats.Conn, error) {
	nc, err := nats.Connect(c.URLs, append(c.login(),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250*time.Millisecond),
		nats.Timeout(5*time.Second),
		nats.PingInterval(2*time.Second),
		nats.MaxPingsOutstanding(2),
		// Certificates need not be valid for the IP addresses that servers report of each other.
		nats.IgnoreDiscoveredServers(),
		// By default, the second authorization error of one server closes the connection for good.
		nats.IgnoreAuthErrorAbort(),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			if err := checkVersion(nc); err != nil {
				c.Log.Error("the NATS connection has moved to a server that is too old", "error", err)
			}
		}),
		c.onAsyncError(),
	)...)
	if err != nil {
		return nil, unreachable(err)
	}
	return nc, nil
}

func (c Config) login() []nats.Option {
	opts := []nats.Option{nats.Name("carstate")}
	if c.CredsFile != "" {
		opts = append(opts, nats.UserCredentials(c.CredsFile)) // read again for each login
	}
	return opts
}

// unreachable explains err. If a configured file is wrong, it returns a [store.ErrConfig].
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

func (c Config) checkVersions() error {
	for u := range strings.SplitSeq(c.URLs, ",") {
		nc, err := nats.Connect(u, append(c.login(), nats.NoReconnect(), nats.IgnoreDiscoveredServers(),
			nats.Timeout(2*time.Second))...)
		if err != nil {
			continue
		}
		err = checkVersion(nc)
		nc.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func checkVersion(nc *nats.Conn) error {
	if !older(nc.ConnectedServerVersion(), leastServer) {
		return nil
	}
	return fmt.Errorf("the NATS server %q is older than %s and may lose what it acknowledged: "+
		"update all servers of the cluster", nc.ConnectedServerName(), leastServer)
}

func (c Config) onAsyncError() nats.Option {
	var refused, other lograte.Warning // the client library reports many errors per second
	return nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if d, ok := AsDenial(err); ok {
			if c.Denied(d) {
				return
			}
			err = d.withoutNames()
		}
		if isRefusal(err) {
			refused.Log(c.Log, "the NATS cluster refuses the login; will retry", "error", err)
			return
		}
		other.Log(c.Log, "error of the connection to NATS", "error", err)
	})
}

func isRefusal(err error) bool {
	return slices.ContainsFunc([]error{
		nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired,
	}, func(refusal error) bool { return errors.Is(err, refusal) })
}

const leastServer = "2.15.2" // Older servers could omit a sync when they compacted a file.

const greatestServer = "2.15.2" // the newest that the tests ran against

// A version that cannot be parsed is older than any other; a suffix is ignored.
func older(version, than string) bool {
	var a, b [3]int
	_, err := fmt.Sscanf(strings.TrimPrefix(version, "v"), "%d.%d.%d", &a[0], &a[1], &a[2])
	_, _ = fmt.Sscanf(strings.TrimPrefix(than, "v"), "%d.%d.%d", &b[0], &b[1], &b[2])
	return err != nil || slices.Compare(a[:], b[:]) < 0
}

func Check(ctx context.Context, c Config, nc *nats.Conn, js jetstream.JetStream) error {
	if err := cmp.Or(checkVersion(nc), c.checkVersions()); err != nil {
		return err
	}
	if v := nc.ConnectedServerVersion(); older(greatestServer, v) {
		c.Log.Warn("connected to a NATS server that is newer than the tested ones: "+
			"read its release notes, and update carstate once a version is tested with it",
			"server", nc.ConnectedServerName(), "version", v, "tested_up_to", greatestServer)
	}
	err := Patiently(ctx, func(ctx context.Context) error {
		_, err := js.AccountInfo(ctx)
		return err
	})
	switch {
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled):
		return errors.New("JetStream is off on the NATS cluster: " +
			"give its servers a jetstream section, such as in deploy/nats/nats.conf")
	case errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return errors.New("JetStream is off for the NATS account: " +
			"set jetstream: enabled in the account, such as in deploy/nats/nats.conf")
	case errors.Is(err, ErrNoLeader):
		return err
	case err != nil:
		return fmt.Errorf("the NATS cluster does not say whether JetStream is on: %w", err)
	}
	return nil
}

var ErrNoLeader = errors.New("the NATS cluster does not answer: have most of its servers started and elected a leader?")

func isNoLeader(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrNoResponders) || Code(err) == unavailable
}

const SetupTimeout = 30 * time.Second

// Patiently repeats ask, which must be idempotent, for SetupTimeout, and then returns [ErrNoLeader]:
// servers refuse or drop requests while they elect a leader, also of a stream that is new or changes
// its replicas.
func Patiently(ctx context.Context, ask func(ctx context.Context) error) error {
	const try, rest = 2 * time.Second, 100 * time.Millisecond
	patient, cancel := context.WithTimeout(ctx, SetupTimeout)
	defer cancel()
	for {
		once, cancel := context.WithTimeout(patient, try)
		err := ask(once)
		cancel()
		if !isNoLeader(err) {
			return err
		}
		if periodic.Pause(patient, rest) != nil {
			return cmp.Or(ctx.Err(), ErrNoLeader)
		}
	}
}

type Denial struct{ what string }

func (d Denial) Error() string {
	return fmt.Sprintf("the NATS account lacks a right: %s: grant what deploy/nats/nats.conf does", d.what)
}

// withoutNames removes what may name a vehicle or place, for the log.
func (d Denial) withoutNames() Denial {
	what, subject, ok := strings.Cut(d.what, " to ")
	if !ok || strings.HasPrefix(subject, "$") {
		return d
	}
	kind, _, _ := strings.Cut(subject, ".")
	return Denial{what + " to " + kind + ".…"}
}

func AsDenial(err error) (Denial, bool) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return Denial{}, false
	}
	_, what, _ := strings.Cut(err.Error(), "permissions violation: ")
	if parts := strings.SplitN(what, `"`, 3); len(parts) == 3 {
		return Denial{strings.TrimPrefix(parts[0], "Permissions Violation for ") + parts[1]}, true
	}
	return Denial{"see the log of the NATS server"}, true
}

const unavailable = 10008 // JetStream is unavailable, as while the cluster elects a leader

// Code returns 0 for an error that is not of JetStream.
func Code(err error) jetstream.ErrorCode {
	if js, ok := errors.AsType[jetstream.JetStreamError](err); ok && js.APIError() != nil {
		return js.APIError().ErrorCode
	}
	return 0
}
