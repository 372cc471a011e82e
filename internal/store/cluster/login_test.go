package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"example.org/carstate/internal/store"
	"example.org/carstate/internal/test/clustertest"
	"example.org/carstate/internal/test/storetest"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

func withPassword(password string) string {
	return fmt.Sprintf(`jetstream { sync_interval: always, max_file_store: 1PB }
accounts { A { jetstream: enabled, users: [ { user: a, password: %q } ] } }
`, password)
}

func TestRefusedLogins(t *testing.T) {
	testkit.Slow(t, "it waits for refused logins twice")
	t.Parallel()
	server := clustertest.StartProcess(t, withPassword("right"))
	log := new(testkit.Buffer)
	e := open(t, Config{Partitions: 1, Log: slog.New(slog.NewTextHandler(log, nil)),
		URLs: "nats://a:right@" + server.Addr, Timeouts: impatient})
	follow(t, e)
	storetest.RunKeeper(t, e, store.Config{})
	part := take(t, e, 0)
	testkit.Await(t, "the engine is healthy", func() bool { return healthy(e) })
	for round := range int64(2) {
		server.Stop()
		server.Configure(withPassword("other"))
		refused := server.Said("authentication error")
		server.Start()
		testkit.Await(t, "the server has refused several logins",
			func() bool { return server.Said("authentication error") >= refused+5 })
		testkit.Await(t, "the engine says that it is out of touch", func() bool { return !healthy(e) })
		server.Stop()
		server.Configure(withPassword("right"))
		server.Start()
		testkit.Await(t, "the engine is healthy again", func() bool {
			select {
			case err := <-e.Failed():
				t.Fatalf("the engine: got the failure %v, want none", err)
			default:
			}
			return healthy(e)
		})
		storeSample(t, e, round+1)
		if _, samples := next(t, part); int64(samples[0].Time) != round+1 {
			t.Fatalf("round %d: got %+v, want the sample of %d", round, samples, round+1)
		}
	}
	// The engine logs more than one line if the test takes more than a minute.
	if lines := log.Count("refuses the login"); lines == 0 || lines >= server.Said("authentication error") {
		t.Errorf("%d refusals: got %d lines, want at least 1 and fewer:\n%s", server.Said("authentication error"),
			lines, log)
	}
}

// An engine must fail when the client library closes its connection for good, but not when it does
// so itself.
func TestClosedForGood(t *testing.T) {
	t.Parallel()
	wire := newWire(t, clustertest.Account(t))
	c := Config{Partitions: 1, URLs: wire.url, Timeouts: impatient}
	e := open(t, c)
	wire.say("-ERR 'nobody knows this error'\r\n")
	select {
	case err := <-e.Failed():
		if !strings.Contains(err.Error(), "closed for good: nats: nobody knows this error") {
			t.Errorf(`the failure: got %v, want "closed for good: nats: nobody knows this error"`, err)
		}
	case <-time.After(testkit.Patience):
		t.Fatalf("the failure: got none in %s, want one", testkit.Patience)
	}
	if e.Writable() == nil || e.Alive() == nil {
		t.Errorf("Writable, Alive without a connection: got %v, %v; want errors", e.Writable(), e.Alive())
	}
	for _, end := range []func(e *Engine){func(*Engine) {}, (*Engine).Cut} {
		e, err := Open(context.Background(), c)
		testkit.NoError(t, err)
		end(e)
		if err := e.Close(); err != nil {
			t.Errorf("Close: got %v, want no error", err)
		}
		select {
		case err := <-e.Failed():
			t.Errorf("a closed engine: got the failure %v, want none", err)
		default:
		}
	}
}

// authority is an operator of NATS with one account, whose users have keys instead of passwords.
type authority struct {
	t                 *testing.T
	operator, account nkeys.KeyPair
	system            nkeys.KeyPair
	revoked           []string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key := func(create func() (nkeys.KeyPair, error)) nkeys.KeyPair {
		k, err := create()
		testkit.NoError(t, err)
		return k
	}
	return &authority{t: t, operator: key(nkeys.CreateOperator), account: key(nkeys.CreateAccount),
		system: key(nkeys.CreateAccount)}
}

func (a *authority) public(k nkeys.KeyPair) string {
	a.t.Helper()
	p, err := k.PublicKey()
	testkit.NoError(a.t, err)
	return p
}

func (a *authority) signed(c jwt.Claims, by nkeys.KeyPair) string {
	a.t.Helper()
	token, err := c.Encode(by)
	testkit.NoError(a.t, err)
	return token
}

func (a *authority) config() string {
	operator := jwt.NewOperatorClaims(a.public(a.operator))
	account := jwt.NewAccountClaims(a.public(a.account))
	account.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1}
	for _, user := range a.revoked {
		account.Revoke(user)
	}
	system := jwt.NewAccountClaims(a.public(a.system))
	return fmt.Sprintf(`jetstream { sync_interval: always, max_file_store: 1PB }
operator: %s
system_account: %s
resolver: MEMORY
resolver_preload: { %s: %s, %s: %s }
`, a.signed(operator, a.operator), system.Subject, system.Subject, a.signed(system, a.operator),
		account.Subject, a.signed(account, a.operator))
}

func (a *authority) user() (public string, creds []byte) {
	a.t.Helper()
	key, err := nkeys.CreateUser()
	testkit.NoError(a.t, err)
	seed, err := key.Seed()
	testkit.NoError(a.t, err)
	claims := jwt.NewUserClaims(a.public(key))
	creds, err = jwt.FormatUserConfig(a.signed(claims, a.account), seed)
	testkit.NoError(a.t, err)
	return claims.Subject, creds
}

func TestCredentialsFile(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	server := clustertest.StartProcess(t, a.config())
	file := filepath.Join(t.TempDir(), "nats.creds")
	renew := func() (user string) {
		t.Helper()
		user, creds := a.user()
		testkit.NoError(t, os.WriteFile(file, creds, 0o600))
		return user
	}
	first := renew()
	c := Config{Partitions: 1, URLs: "nats://" + server.Addr, CredsFile: file, Timeouts: impatient}
	e := open(t, c)
	storeSample(t, e, 1)

	server.Stop()
	a.revoked = append(a.revoked, first)
	server.Configure(a.config())
	refused := server.Said("authentication error")
	server.Start()
	testkit.Await(t, "the server has refused several logins",
		func() bool { return server.Said("authentication error") >= refused+3 })
	renew()
	testkit.Await(t, "the new credentials count", func() bool {
		return e.Append(testkit.Context(t), []vehicle.Sample{sample("car", 2)}) == nil
	})
}

func TestBadLogins(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	server := clustertest.StartProcess(t, a.config())
	_, creds := a.user()
	lines := strings.SplitAfter(string(creds), "\n")
	_, stranger := newAuthority(t).user()
	for name, c := range map[string]struct{ file, want string }{
		"nobody knows the issuer": {string(stranger), "refuses the login"},
		"no JWT":                  {"# nothing\n", "--nats-creds must name a file of credentials"},
		"no seed":                 {strings.Join(lines[:4], ""), "--nats-creds must name a file of credentials"},
		"a damaged seed": {strings.Replace(string(creds), "\nSU", "\nSUA", 1),
			"--nats-creds must name a file of credentials"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "nats.creds")
			testkit.NoError(t, os.WriteFile(file, []byte(c.file), 0o600))
			err := refused(t, Config{URLs: "nats://" + server.Addr, CredsFile: file}, c.want)
			if got, want := errors.Is(err, store.ErrConfig), name != "nobody knows the issuer"; got != want {
				t.Errorf("got %t that the file cannot be used, want %t", got, want)
			}
		})
	}
	refused(t, Config{URLs: "nats://" + server.Addr, CredsFile: filepath.Join(t.TempDir(), "none")},
		"--nats-creds must name a file of credentials")
	refused(t, Config{URLs: "nats://" + server.Addr}, "refuses the login")
}
