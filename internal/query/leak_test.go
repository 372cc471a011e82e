package query_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/test/testkit"
)

// With it, this test binary is the child process of TestNothingPrintsTheToken.
const secretForChild = "CARSTATE_TEST_TOKEN"

func TestNothingPrintsTheToken(t *testing.T) {
	if tok := os.Getenv(secretForChild); tok != "" {
		sufferHostility(t, tok)
		return
	}
	tok, _ := access.NewSecret(access.TokenKind)
	child := exec.Command(os.Args[0], "-test.run=^TestNothingPrintsTheToken$", "-test.v")
	child.Env = append(os.Environ(), secretForChild+"="+tok)
	said, err := child.CombinedOutput()
	if bytes.Contains(said, []byte(tok[4:20])) {
		t.Errorf("the output: got the token in it, want it not:\n%s", said)
	}
	if err != nil {
		t.Fatalf("the child: got %v, want no error:\n%s", err, said)
	}
	if !bytes.Contains(said, []byte("carstate_queries_total")) {
		t.Errorf("the output: got no carstate_queries_total, want it:\n%s", said)
	}
}

func sufferHostility(t *testing.T, tok string) {
	f := newFixture(t)
	f.Tokens.Put(access.Credential{
		Kind: access.TokenKind, Name: "hostile", Hash: access.HashOf(tok),
		Operations: access.AllOperations, Vehicles: access.AllVehicles(),
	})
	// So that incomplete requests end soon.
	f.HeadTimeout, f.IdleTimeout = 100*time.Millisecond, 100*time.Millisecond
	f.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug - 4}))
	r := start(t, f.Config)
	for i, request := range hostile(tok) {
		c := r.dial(t)
		go io.WriteString(c, request)
		answer, _ := io.ReadAll(c)
		if bytes.Contains(answer, []byte(tok)) {
			t.Errorf("request %d: got the token in the answer, want it not", i)
		}
		c.Close()
	}
	r.shutdown(t)
	families, err := f.metrics.Gather()
	testkit.NoError(t, err)
	for _, m := range families {
		fmt.Println(m)
	}
}

// An HTTP library might log a part of these requests.
func hostile(tok string) []string {
	target := drivingPath + "?vid=CarJam&access_token=" + tok
	get := "GET " + target + " HTTP/1.1\r\n"
	end := "Connection: close\r\nHost: x\r\n\r\n"
	return []string{
		get + end,
		get,
		get + "Host: x\r\n",
		get + "\r\n",
		get + "Host: x\r\nHost: y\r\n\r\n",
		get + "Nonsense\r\n" + end,
		get + "Content-Length: x\r\n" + end,
		get + "Content-Length: 5\r\n" + end,
		get + "Content-Length: 100000\r\n" + end + "x",
		get + "Transfer-Encoding: chunked\r\n" + end + "zz\r\n" + target,
		get + "Transfer-Encoding: " + tok + "\r\n" + end,
		get + "Expect: 100-continue\r\nContent-Length: 5\r\n" + end,
		get + "X: " + strings.Repeat("a", 30000) + "\r\n" + end,
		get + "X: a\x00b\r\n" + end,
		get + "Cookie: " + tok + "\r\n " + tok + "\r\n" + end,
		get + "Trailer: Content-Length\r\n" + end,
		get + "Host: [" + tok + "\r\n\r\n",
		get + "Host: " + tok + "@:x\r\n\r\n",
		"GET " + target + "\r\n\r\n",
		"GET " + target + " HTTP/9.9\r\n" + end,
		"GET " + target + " HTTP/x\r\n" + end,
		"GET " + target + " " + tok + "\r\n" + end,
		"GET  " + target + " HTTP/1.1\r\n" + end,
		"GET " + target + "\x00 HTTP/1.1\r\n" + end,
		"GET x" + target + " HTTP/1.1\r\n" + end,
		"GET 1://" + target + " HTTP/1.1\r\n" + end,
		"GET http://[" + target + " HTTP/1.1\r\n" + end,
		"GET " + target + "&x=" + strings.Repeat("a", 30000) + " HTTP/1.1\r\n" + end,
		"G(T " + target + " HTTP/1.1\r\n" + end,
		tok + " " + target + " HTTP/1.1\r\n" + end,
		target + "\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + tok,
		"\x16\x03\x01" + tok + "\r\n\r\n",
		tok,
	}
}
