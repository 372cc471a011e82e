package ingest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestHTTPConnectionsThatWaitMakeRoom: whoever opens as many connections as there
// may be keeps nobody out, and nobody whose request is in work is closed for it.
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
	dial := func(text string) net.Conn {
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
	head := "POST " + telemetryPath + " HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + f.key + "\r\nContent-Type: application/json\r\nContent-Length: "
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
			t.Fatal("connections that wait stay, however many there are")
		}
	}
	wrong := dial("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if resp, err := http.ReadResponse(bufio.NewReader(wrong), nil); err != nil || resp.StatusCode != http.StatusNotFound {
		t.Errorf("a newer one gets %v, %v", resp, err)
	}
	close(proceed)
	if resp, err := http.ReadResponse(bufio.NewReader(busy), nil); err != nil || resp.StatusCode != http.StatusAccepted {
		t.Errorf("one in work gets %v, %v", resp, err)
	}
	f.wantMetric(t, 98, "carstate_ingest_connections_dropped_total")
}

// pickText is what a connection says before it falls silent.
func pickText(i int) string {
	return []string{"", "POST", "POST " + telemetryPath + " HTTP/1.1\r\nHost: a\r\n"}[i%3]
}

// TestHTTPConnectionsAllAtWork: where none waits, the newest is closed.
func TestHTTPConnectionsAllAtWork(t *testing.T) {
	f := newFixture(t)
	l := newLobby(newIntake(f.Config, "test"))
	l.max = 1
	a, b := net.Pipe()
	c, d := net.Pipe()
	defer b.Close()
	defer d.Close()
	l.follow(a, http.StateNew)
	l.work(remember(t.Context(), a), true)
	l.follow(c, http.StateNew)
	if _, err := d.Read(make([]byte, 1)); err == nil {
		t.Error("the newest stays")
	}
	l.follow(c, http.StateClosed)
	l.work(remember(t.Context(), a), false)
	l.follow(a, http.StateClosed)
	l.work(remember(t.Context(), a), true)
	if len(l.open) != 0 {
		t.Errorf("%d are open", len(l.open))
	}
}
