//go:build !race

package main_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/test/testkit"
)

// The code is 2 (serve: 78), with one line that says what to do, before anything is opened.
func TestUsage_WrongArguments(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, c := range []struct{ command, flags string }{
		{"", "frobnicate | help frobnicate | completion tcsh | vehicles --limit 5 --format ndjson --json |" +
			" token grant cstidX | source change gateway | token revoke | source remove | demo --fleet=-1 |" +
			" query speed x --token cst_x | token issue | token rotate | source rotate | replay | check |" +
			" query car-driving-state"},
		{"audit", "--limit=-1 | --limit 5 --format csv"},
		{"serve", "--no-such-flag | stray | --query-addr nonsense | --query-addr 0.0.0.0:0 | --ingest-addr :0 |" +
			" --admin-addr [::]:0 | --mqtt-addr 0.0.0.0:0 | --mqtt-addr 0.0.0.0:0 --tls-cert a --tls-key b |" +
			" --mqtt-tls-addr 127.0.0.1:0 | --tls-cert a | --tls-key a | --max-age 0s | --max-age yesterday |" +
			" --retention=-1h | --trusted-proxies proxy | --admin-hosts cars.example.org:8082 |" +
			" --trusted-proxies 10.0.0.0/33 | --trusted-proxies ::ffff:10.0.0.1 | --retention 1ns | --drain=-1s |" +
			" --checkpoint 1ms | --query-addr 127.0.0.1:99999 | --query-connections 15 | --ingest-connections=-1 |" +
			" --mqtt-connections 1000001 | --admin-connections many | --partitions=-1 | --partitions 5000 |" +
			" --sync-interval sometimes | --sync-interval 1ns | --roles query | --roles cook | --replicas 3 |" +
			" --nats nats://a --replicas 6 | --nats nats://a --replicas=-1 | --nats-creds file | --nats-fresh |" +
			" --nats nats://127.0.0.1:1 --sync-interval 1s | --log-level loud | --log-format xml |" +
			" --access-log log --roles ingest --nats nats://127.0.0.1:1"},
		{"token issue", "--developer Ada | --developer Ada --operations fly | --developer Ada --vehicles a-b |" +
			" --developer Ada --vehicles , | --developer Ada --expires soon | --developer Ada --expires=-1d |" +
			" --developer Ada --expires 0d | --developer Ada --rate fast |" +
			" --developer Ada --sandbox --vehicles Car1 | --developer Ada --sandbox --vehicles all"},
		{"token rotate", "cstidX --overlap soon | cstidX --overlap=-1h | cstidX --overlap 91d | cstidX --overlap 1ms"},
		{"source rotate", "gateway --overlap never"},
		{"token change", "cstidX | cstidX --rate fast | cstidX --expires soon | cstidX --vehicles a-b"},
		{"source add", "gateway | --vehicles all"},
		{"replay", "drive.csv.gz | drive.csv.gz --vid not-a-vid | drive.csv.gz --vid x --source s |" +
			" drive.csv.gz --vid x --source s --key k --ingest-url http://a --mqtt-url mqtt://b |" +
			" drive.csv.gz --vid x --source s --key k --mqtt-url http://127.0.0.1:1 |" +
			" drive.csv.gz --vid x --source s --key k --ingest-url nonsense | --vid x |" +
			" drive.csv.gz --vid x --ago 24h | drive.csv.gz --vid x --prefix A | drive.csv.gz --fleet fcd.csv |" +
			" --fleet fcd.csv --vid x | --fleet fcd.csv --live | --fleet fcd.csv --ago=-1s |" +
			" --fleet fcd.csv --ago 9000h | --fleet fcd.csv --prefix a-b | --fleet fcd.csv --source s"},
		{"simulate", "--vehicles 0 | --vehicles 100001 | --rate 0 | --rate NaN | --faults=-1 | --backdate 25h |" +
			" --duration=-1s | --prefix a-b | --source s | --query-url nonsense |" +
			" --ingest-url http://a --mqtt-url mqtt://b | SIM00001"},
		{"query car-driving-state", "x"},
		{"query throttle-system", "--token cst_x | x y --token cst_x | x --token cst_x --url nonsense |" +
			" x --token cst_x --url https://cars.example/?access_token=cst_x | x --token cst_x --query-addr :8080"},
	} {
		for flags := range strings.SplitSeq(c.flags, "|") {
			args := strings.TrimSpace(c.command + " " + flags)
			t.Run(args, func(t *testing.T) {
				fields, want := strings.Fields(args), exitUsage
				if fields[0] == "serve" {
					fields, want = append(fields, "--data-dir", dir+"/never"), exitConfig
				}
				var stdout, stderr bytes.Buffer
				code := run(t.Context(), fields, &stdout, &stderr)
				if code != want || stdout.Len() != 0 {
					t.Errorf("got exit code %d, stdout %q; want %d and nothing", code, &stdout, want)
				}
				lines := strings.Split(strings.TrimSuffix(stderr.String(), "\n"), "\n")
				if len(lines) > 2 || len(lines) == 2 && !strings.HasPrefix(lines[1], "Try: carstate") || len(lines[0]) < 20 {
					t.Errorf("got %q, want one clear line", &stderr)
				}
				t.Log(lines[0])
			})
		}
	}
}

func TestServe_UnusableFiles(t *testing.T) {
	cert, key, _ := testkit.Certificate(t)
	_, otherKey, _ := testkit.Certificate(t)
	dir := t.TempDir()
	garbage := filepath.Join(dir, "garbage")
	testkit.NoError(t, os.WriteFile(garbage, []byte("nothing"), 0o600))
	for args, want := range map[string]string{
		"--tls-cert /no/file --tls-key " + key:                    "check --tls-cert and --tls-key",
		"--tls-cert " + cert + " --tls-key /no/file":              "check --tls-cert and --tls-key",
		"--tls-cert " + garbage + " --tls-key " + key:             "check --tls-cert and --tls-key",
		"--tls-cert " + cert + " --tls-key " + dir:                "check --tls-cert and --tls-key",
		"--access-log /no/file":                                   "check --access-log",
		"--access-log " + dir:                                     "check --access-log",
		"--nats nats://127.0.0.1:1 --nats-creds /no/file":         "check --nats-creds",
		"--nats nats://127.0.0.1:1 --nats-creds " + dir:           "check --nats-creds",
		"--nats nats://127.0.0.1:1 --nats-creds /no/file --check": "check --nats-creds",
		"--tls-cert /no/file --tls-key /no/file --check":          "check --tls-cert and --tls-key",
		// A renewal may have written only one of the two so far.
		"--tls-cert " + cert + " --tls-key " + otherKey: "private key does not match public key",
	} {
		wantCode := exitConfig
		if strings.Contains(want, "does not match") {
			wantCode = exitError
		}
		fields := append(strings.Fields("serve --query-addr 127.0.0.1:0 --ingest-addr 127.0.0.1:0 "+
			"--mqtt-addr 127.0.0.1:0 --admin-addr 127.0.0.1:0 --data-dir "+dir+"/never"), strings.Fields(args)...)
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), fields, &stdout, &stderr)
		if code != wantCode || !strings.Contains(stderr.String(), want) || strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("%s: got exit code %d, %q, want %d, one line with %q", args, code, &stderr, wantCode, want)
		}
	}
}

func TestUsageSaysWhatIsWanted(t *testing.T) {
	secret, _ := access.NewSecret(access.TokenKind)
	for args, want := range map[string]string{
		"serve --max-age 5":                          "--max-age: expected a duration such as 30s, 5m or 1h30m\n",
		"serve --query-connections many":             "--query-connections: expected a whole number such as 200\n",
		"simulate --rate all":                        "--rate: expected a number such as 0.5\n",
		"serve --drain -1s":                          "--drain: expected a duration such as 30s, 5m or 1h30m\n",
		"serve --partitions -1":                      "--partitions: expected a whole number such as 200\n",
		"simulate --rate -1":                         "--rate: expected a number such as 0.5\n",
		"token issue --developer":                    "--developer: expected a value, as in --developer=NAME\n",
		"check --data-dir X":                         "unknown flag --data-dir (example: carstate check /var/lib/carstate)\n",
		"query car-driving-state":                    "(example: CARSTATE_TOKEN=cst_… carstate query car-driving-state NHeN",
		"help token frobnicate":                      "unexpected argument frobnicate\nTry: carstate token --help\n",
		"forget":                                     `expected "<vid>" (example: carstate forget NHeN4UqVsohGS55I7LBdh --json`,
		"vehicles --limit 0":                         "--limit must be a number from 1 to 1000\n",
		"vehicles --limit 1001":                      "--limit must be a number from 1 to 1000\n",
		"vehicles --driving fast":                    "--driving must be one of normal, slow, jam\n",
		"vehicles --prefix a-b":                      "--prefix must be the beginning of a vid",
		"log-level loud":                             `must be one of "debug","info","warn","error"`,
		"read-only maybe":                            `must be one of "on","off"`,
		"source add s --vehicles all --expires soon": "--expires must be never, a number of days such as 90d",
		"serve --data-dir /dev/null":                 "/dev/null",
		"audit --since yesterday": "--since must be a day such as 2026-11-20, a time such as 2026-11-20T12:00:00Z, or an " +
			"age such as 24h or 7d\n",
		"audit --until 7":        "--until must be a day",
		"audit --since=-7d":      "--since must be a day",
		"token show " + secret:   "this looks like the secret of a token: give its ID",
		"token revoke " + secret: "this looks like the secret of a token: give its ID",
	} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), strings.Fields(args), &stdout, &stderr)
		wantCode := exitUsage
		if strings.HasPrefix(args, "serve ") {
			wantCode = exitConfig
		}
		if code != wantCode || !strings.Contains(stderr.String(), want) || strings.Contains(stderr.String(), secret) {
			t.Errorf("%.20s: got exit code %d, %q, want %d, %q, no secret", args, code, &stderr, wantCode, want)
		}
	}
}

func TestHelpWithoutACommand(t *testing.T) {
	for args, want := range map[string]string{
		"":                 "Run the service.",
		"help":             "Run the service.",
		"token":            "Revoke",
		"help token":       "Revoke",
		"query --":         "throttle-system",
		"-- help token":    "carstate help",
		"help token issue": "--developer",
		"demo --help":      "--max-age=24h ",
		"help demo":        "debug, info, warn or error (warn)",
		"serve --help":     "--max-age=5m ",
	} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), strings.Fields(args), &stdout, &stderr); code != exitOK ||
			!strings.Contains(stdout.String(), want) || stderr.Len() > 0 {
			t.Errorf("%q: got exit code %d, %q, stdout %s, want %d, %q", args, code, &stderr, &stdout, exitOK, want)
		}
	}
}

func TestDefaults_ListenOnLoopback(t *testing.T) {
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"serve", "--check", "--data-dir", t.TempDir(),
		"--trusted-proxies", "10.1.2.3/8,fd00::/8,192.0.2.7,2001:db8::1"}, &stdout, &stderr)
	listening := regexp.MustCompile(`(?m)^\w+-addr: 127\.0\.0\.1:\d+, without TLS, on this machine only$`)
	if got := listening.FindAllString(stdout.String(), -1); code != exitOK || len(got) != 4 {
		t.Errorf("got exit code %d, %q, %s; want 4 listeners on this machine", code, got, &stderr)
	}
}

func TestQuery_SaysThatItWaits(t *testing.T) {
	t.Parallel()
	busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "9")
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer busy.Close()
	ctx, interrupt := context.WithCancel(t.Context())
	var stdout, stderr testkit.Buffer
	ended := make(chan int)
	go func() {
		ended <- run(ctx, []string{"query", "car-driving-state", "X", "--token", "T", "--url", busy.URL}, &stdout, &stderr)
	}()
	testkit.Await(t, "a line says that the command waits", func() bool { return stderr.Count("waiting for the service") > 0 })
	interrupt()
	if code := <-ended; code != exitStopped {
		t.Errorf("the interrupted query: got exit code %d, want %d; stderr: %s", code, exitStopped, &stderr)
	}
}

type closedPipe struct{}

func (closedPipe) Write([]byte) (int, error) {
	return 0, &os.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.EPIPE}
}

func TestClosedOutput_NoMessage(t *testing.T) {
	for _, args := range [][]string{{"help"}, {"token", "issue", "--help"}, {"version"}} {
		var stderr bytes.Buffer
		if code := run(t.Context(), args, closedPipe{}, &stderr); code != exitPipe || stderr.Len() > 0 {
			t.Errorf("%q: got code %d, %q; want %d and no message", args, code, &stderr, exitPipe)
		}
	}
}
