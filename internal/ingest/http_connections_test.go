package ingest

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
	"sync/atomic"
	"testing"
	"time"

	"example.org/carstate/internal/netguard"
	"example.org/carstate/internal/testkit"
)

// TestHTTPConnectionsThatWaitMakeRoom checks that a client that opens the maximum number of
// connections locks out no other client. No connection with a request in progress may be evicted.
func TestHTTPConnectionsThatWaitMakeRoom(t *testing.T) {
	f := newFixture(t)
	f.MaxHTTPConnections = 4
	entered, proceed := make(chan struct{}, 1), make(chan struct{})
	f.store.append = until(proceed, entered)
	_, url := startHTTP(t, f)
	busy := dialHTTP(t, url, posting(f.key, sampleLine("V1", 1, 50)))
	<-entered
	ended := make(chan error, 100)
	for i := range cap(ended) {
		c := dialHTTP(t, url, pickText(i))
		go func() {
			_, err := io.Copy(io.Discard, c)
			ended <- err
		}()
	}
	for range cap(ended) - 3 {
		if err := <-ended; errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("waiting connections beyond the limit are not closed")
		}
	}
	wantStatus(t, dialHTTP(t, url, "GET /x HTTP/1.1\r\nHost: a\r\n\r\n"), http.StatusNotFound)
	close(proceed)
	wantStatus(t, busy, http.StatusAccepted)
	f.wantMetric(t, 98, "carstate_ingest_connections_dropped_total")
}

// pickText returns the text that connection i sends before it stops sending.
func pickText(i int) string {
	return []string{"", "POST", "POST " + telemetryPath + " HTTP/1.1\r\nHost: a\r\n"}[i%3]
}

// TestHTTPStrangersMakeRoom checks that connections that send nothing (under TLS not even a
// handshake) are evicted to admit newer ones, and that an idle connection of a sender is not
// evicted.
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
			for range strangers {
				dialHTTP(t, url, "")
			}
			testkit.Await(t, "the strangers are there", func() bool { return h.Guard.Count(netguard.Silent) == strangers })
			for range strangers {
				post(dial(url))
			}
			post(honest)
		})
	}
}

// TestHTTPUnreadAnswersOfOneSource checks that a source whose clients do not read their answers
// holds at most half of the connections, so that requests of another source are served. The clients
// use HTTP/2 with a window of 0 bytes, in which no body of an answer can be sent.
func TestHTTPUnreadAnswersOfOneSource(t *testing.T) {
	f := newFixture(t)
	f.MaxHTTPConnections = 8
	config := f.useTLS(t)
	h, url := startHTTP(t, f)
	_, key := f.add(t, "gateway", f.source.Vehicles)
	http2 := config.Clone()
	http2.NextProtos = []string{"h2"}
	line := sampleLine("V1", 1, 50)
	unread := "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + http2Frame(4, 0, 0, "\x00\x04\x00\x00\x00\x00") +
		http2Frame(1, 4, 1, http2Headers(":method", "POST", ":scheme", "https", ":path", telemetryPath, ":authority", "a",
			"authorization", "Bearer "+f.key, "content-type", "application/json")) + http2Frame(0, 1, 1, line)
	for range 2 * f.MaxHTTPConnections {
		// The server may evict the connection at any time.
		_, _ = io.WriteString(tls.Client(dialHTTP(t, url, ""), http2), unread)
	}
	testkit.Await(t, "the source's share is used up", func() bool {
		return h.slots.inUse() == 4 && f.metric(t, "carstate_samples_refused_total", "reason", "no_room") > 0
	})
	http1 := config.Clone()
	http1.NextProtos = []string{"http/1.1"}
	for range 20 {
		c := tls.Client(dialHTTP(t, url, ""), http1)
		send(t, c, posting(key, sampleLine("V1", 2, 1)))
		wantStatus(t, c, http.StatusAccepted)
		_ = c.Close()
	}
}

// http2Frame returns a frame of HTTP/2.
func http2Frame(kind, flags, stream byte, payload string) string {
	n := len(payload)
	return string([]byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags, 0, 0, 0, stream}) + payload
}

// http2Headers encodes names and values, each shorter than 127 bytes, without compression (RFC
// 7541, 6.2.2).
func http2Headers(texts ...string) (encoded string) {
	for i, text := range texts {
		if i%2 == 0 {
			encoded += "\x00"
		}
		encoded += string([]byte{byte(len(text))}) + text
	}
	return encoded
}

// wantCut opens one connection beyond the limit and waits until the server has closed it.
func wantCut(t *testing.T, url string) {
	t.Helper()
	c := dialHTTP(t, url, "")
	if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("a connection beyond the limit is not closed")
	}
}

// dialHTTP connects to the server of url and sends text.
func dialHTTP(t testing.TB, url, text string) net.Conn {
	t.Helper()
	c := testkit.Dial(t, strings.TrimSuffix(strings.TrimPrefix(url, "http://"), telemetryPath))
	send(t, c, text)
	return c
}

func send(t testing.TB, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

// wantStatus reads one response and checks its status.
func wantStatus(t testing.TB, c net.Conn, status int) *http.Response {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != status {
		t.Fatalf("got status %d, %v; want %d", resp.StatusCode, err, status)
	}
	return resp
}

// posting returns a request as sent over the connection.
func posting(key, line string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", telemetryPath, key, len(line), line)
}

// TestHTTPOverload_KeepsOpenConnections checks that during an overload a connection beyond the
// limit does not evict an open one, because its requests would be rejected anyway.
func TestHTTPOverload_KeepsOpenConnections(t *testing.T) {
	f := newFixture(t)
	f.MaxHTTPConnections = 1
	var over atomic.Bool
	f.Overloaded = over.Load
	_, url := startHTTP(t, f)
	older := dialHTTP(t, url, posting(f.key, sampleLine("V1", 1, 50)))
	wantStatus(t, older, http.StatusAccepted)
	over.Store(true)
	for range 20 {
		wantCut(t, url)
	}
	send(t, older, posting(f.key, sampleLine("V1", 2, 51)))
	wantStatus(t, older, http.StatusAccepted)
	f.wantMetric(t, 20, "carstate_ingest_connections_dropped_total")
}

// TestHTTPOverload_EndsForWaitingConnections checks a connection that is accepted during an
// overload and sends its first request after the overload. No request on it may be rejected, even
// in a later overload.
func TestHTTPOverload_EndsForWaitingConnections(t *testing.T) {
	f := newFixture(t)
	var over atomic.Bool
	over.Store(true)
	asked := make(chan struct{}, 10)
	f.Overloaded = func() bool {
		asked <- struct{}{}
		return over.Load()
	}
	_, url := startHTTP(t, f)
	c := dialHTTP(t, url, "")
	<-asked
	over.Store(false)
	for _, now := range []bool{false, true} {
		over.Store(now)
		send(t, c, posting(f.key, sampleLine("V1", 1, 50)))
		wantStatus(t, c, http.StatusAccepted)
	}
}

// TestHTTP2_KeepsConnectionWithRequests checks that the response to one request of a connection
// does not make the connection evictable while another of its requests is in progress.
func TestHTTP2_KeepsConnectionWithRequests(t *testing.T) {
	f := newFixture(t)
	f.MaxHTTPConnections = 1
	config := f.useTLS(t)
	entered, proceed := make(chan struct{}, 1), make(chan struct{})
	f.store.append = until(proceed, entered)
	_, url := startHTTP(t, f)
	client := &http.Client{Timeout: 20 * time.Second,
		Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	send := func(method string) (int, error) {
		req, err := http.NewRequest(method, strings.Replace(url, "http:", "https:", 1), strings.NewReader(sampleLine("V1", 1, 1)))
		if err != nil {
			return 0, err
		}
		req.Header.Set("Authorization", "Bearer "+f.key)
		req.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(req)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		if resp.ProtoMajor != 2 {
			return 0, errors.New(resp.Proto)
		}
		_, err = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, err
	}
	first := make(chan error, 1)
	go func() {
		status, err := send(http.MethodPost)
		if err == nil && status != http.StatusAccepted {
			err = fmt.Errorf("status %d", status)
		}
		first <- err
	}()
	<-entered
	if status, err := send(http.MethodPut); err != nil || status != http.StatusMethodNotAllowed {
		t.Fatalf("PUT: got status %d, %v; want 405", status, err)
	}
	wantCut(t, url)
	close(proceed)
	if err := <-first; err != nil {
		t.Error(err)
	}
}

// held is a listener. Writes to its first connection block until release is closed.
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

// TestHTTPEviction_AfterAcknowledgement checks that a connection is not evicted before the sender
// has received the acknowledgement of stored samples. A connection whose request was refused must
// be evictable, because its client may have no key.
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
