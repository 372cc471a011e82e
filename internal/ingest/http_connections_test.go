package ingest

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"carstate/internal/netguard"
	"carstate/internal/testkit"
)

// TestHTTPConnectionsThatWaitMakeRoom checks that a client that opens the maximum number of
// connections locks out no other client. No connection with a request in progress may be evicted.
func TestHTTPConnectionsThatWaitMakeRoom(t *testing.T) {
	f := newFixture(t)
	f.MaxHTTPConnections = 4
	entered, proceed := make(chan struct{}, 1), make(chan struct{})
	f.store.append = func(ctx context.Context) error {
		entered <- struct{}{}
		select {
		case <-proceed:
		case <-ctx.Done():
		}
		return nil
	}
	_, url := startHTTP(t, f)
	address := strings.TrimSuffix(strings.TrimPrefix(url, "http://"), telemetryPath)
	dial := func(text string) net.Conn { return dialHTTP(t, address, text) }
	head := "POST " + telemetryPath + " HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + f.key +
		"\r\nContent-Type: application/json\r\nContent-Length: "
	line := sampleLine("V1", 1, 50)
	busy := dial(head + "99\r\n\r\n" + line + strings.Repeat(" ", 99-len(line)))
	<-entered
	ended := make(chan error, 100)
	for i := range cap(ended) {
		c := dial(pickText(i))
		go func() {
			_, err := io.Copy(io.Discard, c)
			ended <- err
		}()
	}
	for range cap(ended) - 3 {
		var timeout net.Error
		if err := <-ended; errors.As(err, &timeout) && timeout.Timeout() {
			t.Fatal("waiting connections beyond the limit are not closed")
		}
	}
	wrong := dial("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if resp, err := http.ReadResponse(bufio.NewReader(wrong), nil); err != nil || resp.StatusCode != http.StatusNotFound {
		t.Errorf("a newer connection: got %v, %v; want 404", resp, err)
	}
	close(proceed)
	if resp, err := http.ReadResponse(bufio.NewReader(busy), nil); err != nil || resp.StatusCode != http.StatusAccepted {
		t.Errorf("the request in progress: got %v, %v; want 202", resp, err)
	}
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
			dial := func(address string) net.Conn { return dialHTTP(t, address, "") }
			if useTLS {
				var config *tls.Config
				f.TLS, config = testTLS(t)
				dial = func(address string) net.Conn { return tls.Client(dialHTTP(t, address, ""), config) }
			}
			h, url := startHTTP(t, f)
			address := strings.TrimSuffix(strings.TrimPrefix(url, "http://"), telemetryPath)
			second := 0
			send := func(c net.Conn) {
				t.Helper()
				second++
				if _, err := io.WriteString(c, posting(f.key, sampleLine("V1", second, 50))); err != nil {
					t.Fatal(err)
				}
				wantStatus(t, c, http.StatusAccepted)
			}
			honest := dial(address)
			send(honest)
			for range strangers {
				dialHTTP(t, address, "")
			}
			testkit.Await(t, "the strangers are there", func() bool { return h.guard.Count(netguard.Silent) == strangers })
			for range strangers {
				send(dial(address))
			}
			send(honest)
		})
	}
}

// TestHTTPUnreadAnswersOfOneSource checks that a source whose clients do not read their answers holds
// at most half of the connections, so that requests of another source are served. The clients use
// HTTP/2 with a window of 0 bytes, in which no body of an answer can be sent.
func TestHTTPUnreadAnswersOfOneSource(t *testing.T) {
	f := newFixture(t)
	f.MaxHTTPConnections = 8
	var config *tls.Config
	f.TLS, config = testTLS(t)
	h, url := startHTTP(t, f)
	_, key := f.add(t, "gateway", f.source.Vehicles)
	address := strings.TrimSuffix(strings.TrimPrefix(url, "http://"), telemetryPath)
	http2 := config.Clone()
	http2.NextProtos = []string{"h2"}
	line := sampleLine("V1", 1, 50)
	unread := "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + http2Frame(4, 0, 0, "\x00\x04\x00\x00\x00\x00") +
		http2Frame(1, 4, 1, http2Headers(":method", "POST", ":scheme", "https", ":path", telemetryPath, ":authority", "a",
			"authorization", "Bearer "+f.key, "content-type", "application/json")) + http2Frame(0, 1, 1, line)
	for range 2 * f.MaxHTTPConnections {
		// The server may evict the connection at any time.
		_, _ = io.WriteString(tls.Client(dialHTTP(t, address, ""), http2), unread)
	}
	testkit.Await(t, "the source's share is used up", func() bool {
		return h.slots.inUse() == 4 && f.metric(t, "carstate_samples_refused_total", "reason", "no_room") > 0
	})
	http1 := config.Clone()
	http1.NextProtos = []string{"http/1.1"}
	for range 20 {
		c := tls.Client(dialHTTP(t, address, ""), http1)
		if _, err := io.WriteString(c, posting(key, sampleLine("V1", 2, 1))); err != nil {
			t.Fatal(err)
		}
		wantStatus(t, c, http.StatusAccepted)
		_ = c.Close()
	}
}

// http2Frame returns a frame of HTTP/2.
func http2Frame(kind, flags, stream byte, payload string) string {
	n := len(payload)
	return string([]byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags, 0, 0, 0, stream}) + payload
}

// http2Headers encodes names and values, each shorter than 127 bytes, without compression (RFC 7541,
// 6.2.2).
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
func wantCut(t *testing.T, address string) {
	t.Helper()
	c := dialHTTP(t, address, "")
	var timeout net.Error
	if _, err := io.Copy(io.Discard, c); errors.As(err, &timeout) && timeout.Timeout() {
		t.Fatal("a connection beyond the limit is not closed")
	}
}

// dialHTTP connects and sends text.
func dialHTTP(t *testing.T, address, text string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err == nil {
		err = c.SetDeadline(time.Now().Add(20 * time.Second))
	}
	if err == nil {
		_, err = io.WriteString(c, text)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// wantStatus reads one response and checks its status.
func wantStatus(t *testing.T, c net.Conn, status int) {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != status {
		t.Fatalf("got status %d, %v; want %d", resp.StatusCode, err, status)
	}
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
	address := strings.TrimSuffix(strings.TrimPrefix(url, "http://"), telemetryPath)
	older := dialHTTP(t, address, posting(f.key, sampleLine("V1", 1, 50)))
	wantStatus(t, older, http.StatusAccepted)
	over.Store(true)
	for range 20 {
		wantCut(t, address)
	}
	if _, err := io.WriteString(older, posting(f.key, sampleLine("V1", 2, 51))); err != nil {
		t.Fatal(err)
	}
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
	c := dialHTTP(t, strings.TrimSuffix(strings.TrimPrefix(url, "http://"), telemetryPath), "")
	<-asked
	over.Store(false)
	for _, now := range []bool{false, true} {
		over.Store(now)
		if _, err := io.WriteString(c, posting(f.key, sampleLine("V1", 1, 50))); err != nil {
			t.Fatal(err)
		}
		wantStatus(t, c, http.StatusAccepted)
	}
}

// TestHTTP2_KeepsConnectionWithRequests checks that the response to one request of a connection
// does not make the connection evictable while another of its requests is in progress.
func TestHTTP2_KeepsConnectionWithRequests(t *testing.T) {
	f := newFixture(t)
	f.MaxHTTPConnections = 1
	var config *tls.Config
	f.TLS, config = testTLS(t)
	entered, proceed := make(chan struct{}, 1), make(chan struct{})
	f.store.append = until(proceed, entered)
	_, url := startHTTP(t, f)
	address := strings.TrimSuffix(strings.TrimPrefix(url, "http://"), telemetryPath)
	client := &http.Client{Timeout: 20 * time.Second,
		Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	send := func(method string) (int, error) {
		req, err := http.NewRequest(method, "https://"+address+telemetryPath, strings.NewReader(sampleLine("V1", 1, 1)))
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
	wantCut(t, address)
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
			l := &held{Listener: listen(t), writes: make(chan struct{}, 1), release: make(chan struct{})}
			h := NewHTTP(f.Config)
			done := make(chan error, 1)
			go func() { done <- h.Serve(l) }()
			key := f.key
			if !stays {
				key = mistyped(key)
			}
			address := l.Addr().String()
			first := dialHTTP(t, address, posting(key, sampleLine("V1", 1, 50)))
			<-l.writes
			if stays {
				wantCut(t, address)
				close(l.release)
				wantStatus(t, first, status)
			} else {
				wantStatus(t, dialHTTP(t, address, posting(f.key, sampleLine("V1", 1, 50))), http.StatusAccepted)
				close(l.release)
			}
			if err := h.Shutdown(shutdownContext(t)); err != nil {
				t.Error(err)
			}
			<-done
		})
	}
}
