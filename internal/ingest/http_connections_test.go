package ingest_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"example.org/carstate/internal/listen"
	"example.org/carstate/internal/test/testkit"
)

// A sender's idle connection is not evicted.
func TestHTTPStrangersMakeRoom(t *testing.T) {
	for name, useTLS := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			const strangers = 7
			f.MaxHTTPConnections = 1 + strangers
			dial := func(url string) net.Conn { return dialHTTP(t, url, "") }
			if useTLS {
				config := f.useTLS(t)
				dial = func(url string) net.Conn { return tls.Client(dialHTTP(t, url, ""), config) }
			}
			h, url := startHTTP(t, f)
			second := 0
			post := func(c net.Conn) {
				t.Helper()
				second++
				send(t, c, posting(f.key, sampleLine("V1", second, 50)))
				wantStatus(t, c, http.StatusAccepted)
			}
			honest := dial(url)
			post(honest)
			for i := range strangers {
				text := []string{"", "POST", "POST /v1/telemetry HTTP/1.1\r\nHost: a\r\n"}[i%3]
				if useTLS {
					text = ""
				}
				dialHTTP(t, url, text)
			}
			testkit.Await(t, "the strangers are there", func() bool { return h.Guard.Count(listen.Silent) == strangers })
			for range strangers {
				post(dial(url))
			}
			post(honest)
		})
	}
}

func wantCut(t *testing.T, url string) {
	t.Helper()
	c := dialHTTP(t, url, "")
	if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("a connection beyond the limit: got no end in time, want one")
	}
}

func dialHTTP(t testing.TB, url, text string) net.Conn {
	t.Helper()
	c := testkit.Dial(t, strings.TrimSuffix(strings.TrimPrefix(url, "http://"), telemetryPath))
	send(t, c, text)
	return c
}

func send(t testing.TB, c net.Conn, text string) {
	t.Helper()
	_, err := io.WriteString(c, text)
	testkit.NoError(t, err)
}

func wantStatus(t testing.TB, c net.Conn, status int) *http.Response {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	testkit.NoError(t, err)
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != status {
		t.Fatalf("got status %d, %v; want %d", resp.StatusCode, err, status)
	}
	return resp
}

func posting(key, line string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", telemetryPath, key, len(line), line)
}

// A connection beyond the limit evicts no open one, because its requests would be rejected.
func TestHTTPOverload_KeepsOpenConnections(t *testing.T) {
	f := newFixture(t)
	f.MaxHTTPConnections = 1
	overload := f.limit(t)
	_, url := startHTTP(t, f)
	older := dialHTTP(t, url, posting(f.key, sampleLine("V1", 1, 50)))
	wantStatus(t, older, http.StatusAccepted)
	overload()
	for range 20 {
		wantCut(t, url)
	}
	send(t, older, posting(f.key, sampleLine("V1", 2, 51)))
	wantStatus(t, older, http.StatusAccepted)
	f.wantMetric(t, 20, "carstate_ingest_connections_dropped_total")
}

// held blocks the first connection's writes until release is closed.
type held struct {
	net.Listener
	writes  chan struct{} // receives a value at the first write
	release chan struct{}
	once    sync.Once
}

func (h *held) Accept() (net.Conn, error) {
	c, err := h.Listener.Accept()
	if err == nil {
		h.once.Do(func() { c = &heldConn{Conn: c, of: h} })
	}
	return c, err
}

type heldConn struct {
	net.Conn
	of   *held
	once sync.Once
}

func (c *heldConn) Write(b []byte) (int, error) {
	c.once.Do(func() { c.of.writes <- struct{}{} })
	<-c.of.release
	return c.Conn.Write(b)
}

// A client without a key can be evicted before its answer was sent; a sender cannot.
func TestHTTPEviction_AfterAcknowledgement(t *testing.T) {
	for status, stays := range map[int]bool{http.StatusAccepted: true, http.StatusUnauthorized: false} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			f := newFixture(t)
			f.MaxHTTPConnections = 1
			l := &held{Listener: testkit.Listen(t), writes: make(chan struct{}, 1), release: make(chan struct{})}
			_, url := startHTTPOn(t, f, l)
			key := f.key
			if !stays {
				key = mistyped(key)
			}
			first := dialHTTP(t, url, posting(key, sampleLine("V1", 1, 50)))
			<-l.writes
			if stays {
				wantCut(t, url)
				close(l.release)
				wantStatus(t, first, status)
			} else {
				wantStatus(t, dialHTTP(t, url, posting(f.key, sampleLine("V1", 1, 50))), http.StatusAccepted)
				close(l.release)
			}
		})
	}
}
