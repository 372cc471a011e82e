package cluster

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/clustertest"
	"example.org/carstate/internal/test/testkit"
)

func refused(t *testing.T, c Config, want string) error {
	t.Helper()
	e, err := Open(t.Context(), c)
	if err == nil {
		e.Close()
		t.Fatalf("Open: got no error, want one with %q", want)
	}
	if text := err.Error(); strings.Contains(text, "\n") || !strings.Contains(text, want) {
		t.Fatalf("the error is %q; want one line with %q", text, want)
	}
	return err
}

func TestUnfitCluster(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config, user, want string
		replicas           int
	}{
		"JetStream is off": {config: `max_payload: 1MB`, want: "JetStream is off on the NATS cluster"},
		"JetStream is off for the account": {
			config: `jetstream {}
				accounts {
					A { jetstream: enabled, users: [{user: a, password: p}] }
					B { users: [{user: b, password: p}] }
				}`,
			user: "b:p@", want: "jetstream: enabled in the account",
		},
		"one server for three copies": {config: `jetstream {}`, replicas: 3,
			want: "too few servers with JetStream for 3 copies"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := "nats://" + c.user + clustertest.StartProcess(t, c.config).Addr
			refused(t, Config{URLs: url, Replicas: c.replicas}, c.want)
		})
	}
}

// A real old server would need a Go module of its own, so a fake one reports the version.
func TestOldServer(t *testing.T) {
	t.Parallel()
	for version, old := range map[string]bool{
		"2.15.1": true, "2.9.25": true, "1.4.1": true, "2.15.2-beta.1": false, "2.15.2": false, "v2.16.0": false,
		"3.0.0": false, "": true, "new": true,
	} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			addr := pretend(t, version)
			ctx := testkit.Context(t)
			if !old { // Open ends only with ctx, because the fake server does not answer
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 5*time.Second)
				defer cancel()
			}
			var log testkit.Buffer
			e, err := Open(ctx, Config{Log: slog.New(slog.NewTextHandler(&log, nil)), URLs: "nats://" + addr})
			if err == nil {
				e.Close()
				t.Fatalf("Open with the server %s: got no error, want one", version)
			}
			said := fmt.Sprintf("server=pretender version=%s tested_up_to=2.15.2", version)
			newer := strings.HasPrefix(version, "v2.16") || strings.HasPrefix(version, "3.")
			if all, n := log.Count("level=WARN"), log.Count(said); all != n || n == 1 != newer {
				t.Errorf("version %s: got %d warnings, %d with it, want one: %t:\n%s", version, all, n, newer, &log)
			}
			if got := strings.Contains(err.Error(), "older than 2.15.2"); got != old {
				t.Errorf("version %s: got %v, want refused: %t", version, err, old)
			}
		})
	}
}

func TestOldServerAmongOthers(t *testing.T) {
	t.Parallel()
	good := clustertest.Account(t)
	old := "nats://" + pretend(t, "2.15.1")
	for range 5 {
		refused(t, Config{URLs: good + "," + old}, `"pretender" is older than 2.15.2`)
	}
	// A server that does not run any more does not prevent a start.
	open(t, Config{URLs: good + ",nats://" + deadAddr(t), Replicas: 1})
}

func deadAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.NoError(t, err)
	l.Close()
	return l.Addr().String()
}

func pretend(t *testing.T, version string) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.NoError(t, err)
	var running sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		running.Wait()
	})
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer c.Close()
				fmt.Fprintf(c, `INFO {"server_id":"x","server_name":"pretender","version":%q,`+
					`"max_payload":1048576,"headers":true}`+"\r\n", version)
				for lines := bufio.NewScanner(c); lines.Scan(); {
					switch strings.Fields(lines.Text() + " .")[0] {
					case "PING":
						fmt.Fprint(c, "PONG\r\n")
					case "PUB", "HPUB":
						return
					}
				}
			})
		}
	})
	return l.Addr().String()
}

func TestLast_ErrorNamesNoVehicle(t *testing.T) {
	t.Parallel()
	e := open(t, Config{})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := e.Last(ended, codec.Tokens, "tokenset.SECRETVID.1")
	if err == nil || strings.Contains(err.Error(), "SECRETVID") || !strings.Contains(err.Error(), codec.Tokens) {
		t.Errorf("got the error %q, want one that names TOKENS and no vehicle", err)
	}
}
