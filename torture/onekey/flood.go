package onekey

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"carstate/internal/nodeprocess"
	"carstate/torture/mqtt"
	"carstate/torture/row"
)

// flood is a number of concurrent requests with the stolen key of a source. Only the beginning of
// each request is sent. When the service ends a request, another one replaces it.
type flood struct {
	name   string
	count  int
	within time.Duration // time until all of them have begun
	stall  stall
	held   atomic.Int64 // number of those in progress
}

// stall sends the beginning of one request, calls begun, and waits until the request has ended. i
// is the number of the request in the flood.
type stall func(ctx context.Context, t *target, i int, begun func()) error

const (
	// comeWithin is the time over which the requests of a flood are started. It equals the time
	// for which the service waits for a request that stalls.
	comeWithin = 5 * time.Second
	// pauseBetween is the pause between the end of a request and the start of the request that
	// replaces it.
	pauseBetween = 500 * time.Millisecond
)

// start begins a flood. The function stop ends the flood, and returns the median number of its
// requests in progress.
func (f *flood) start(ctx context.Context, t *target) (stop func() int) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for i := range f.count {
		running.Go(func() {
			// Do not begin all requests at the same time, so that they do not end at
			// the same time.
			row.Pause(ctx, time.Duration(i)*f.within/time.Duration(f.count))
			for ; ctx.Err() == nil; row.Pause(ctx, pauseBetween) {
				here := false
				// The service may refuse or end the request.
				_ = f.stall(ctx, t, i, func() {
					here = true
					f.held.Add(1)
				})
				if here {
					f.held.Add(-1)
				}
			}
		})
	}
	var held []int64
	watched := row.Every(ctx, 50*time.Millisecond, func() { held = append(held, f.held.Load()) })
	return func() int {
		watched()
		cancel()
		running.Wait()
		if slices.Sort(held); len(held) > 0 {
			return int(held[len(held)/2])
		}
		return 0
	}
}

// await waits until three quarters of a flood are in progress.
func (f *flood) await(ctx context.Context) error {
	return nodeprocess.Until(ctx, 30*time.Second, func(context.Context) error {
		if n := f.held.Load(); int(n) < f.count*3/4 {
			return fmt.Errorf("of %d %s only %d are there", f.count, f.name, n)
		}
		return nil
	})
}

// bodyBegins is the part of a body that is sent, and bodyLength is the announced length of the
// whole body.
const (
	bodyBegins = "{"
	bodyLength = 8_000_000
)

const telemetryPath = "/v1/telemetry"

// overHTTP1 sends each request over its own connection.
func overHTTP1(ctx context.Context, t *target, _ int, begun func()) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", t.Address(nodeprocess.Ingest))
	if err != nil {
		return err
	}
	head := "POST " + telemetryPath + " HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + t.key
	return untilClosed(ctx, conn, []byte(head+
		"\r\nContent-Type: application/x-ndjson\r\nContent-Length: "+strconv.Itoa(bodyLength)+"\r\n\r\n"+bodyBegins), begun)
}

// untilClosed sends the parameter what, calls begun, and waits until the service closes the
// connection.
func untilClosed(ctx context.Context, conn net.Conn, what []byte, begun func()) error {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := conn.Write(what); err != nil {
		return err
	}
	begun()
	_, err := io.Copy(io.Discard, conn)
	return err
}

// streams is the number of HTTP/2 streams per connection, which is the most that the node permits.
const streams = 100

// overHTTP2 sends many requests over each connection.
func overHTTP2(ctx context.Context, t *target, i int, begun func()) error {
	read, write := io.Pipe()
	defer context.AfterFunc(ctx, func() { _ = write.CloseWithError(ctx.Err()) })()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, &stalling{PipeReader: read, begun: begun})
	if err != nil {
		return err
	}
	req.ContentLength = bodyLength
	req.Header.Set("Authorization", "Bearer "+t.key)
	req.Header.Set("Content-Type", "application/x-ndjson")
	resp, err := t.client(i / streams).Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// client returns an HTTP/2 client with its own connection.
func (t *target) client(i int) *http.Client {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.clients) <= i {
		transport := &http.Transport{TLSClientConfig: t.config.Clone(), ForceAttemptHTTP2: true}
		t.clients = append(t.clients, &http.Client{Transport: transport})
	}
	return t.clients[i]
}

// stalling is a body whose first read returns data. Every further read blocks until the body is
// closed.
type stalling struct {
	*io.PipeReader // never returns data
	begun          func()
}

func (s *stalling) Read(p []byte) (int, error) {
	if begun := s.begun; begun != nil {
		s.begun = nil
		begun()
		return copy(p, bodyBegins), nil
	}
	return s.PipeReader.Read(p)
}

// overMQTT logs in, and sends the header of a large message.
func overMQTT(ctx context.Context, t *target, i int, begun func()) error {
	conn, _, err := login(ctx, t, fmt.Sprint("stalled", i), thief, t.key)
	if err != nil {
		return err
	}
	return untilClosed(ctx, conn, stalledPublish, begun)
}

var stalledPublish = mqtt.Publish(4, 2, 1, "vehicles/Stolen/telemetry", string(make([]byte, 1<<20-100)))[:40]

// login connects by MQTT 3.1.1.
func login(ctx context.Context, t *target, id, source, key string) (net.Conn, *bufio.Reader, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", t.Address(nodeprocess.MQTT))
	if err != nil {
		return nil, nil, err
	}
	packet := (&mqtt.Login{Protocol: "MQTT", Version: 4, Flags: 2, KeepAlive: 60, ID: id, User: source, Key: key}).Packet()
	in := bufio.NewReader(conn)
	err1 := conn.SetDeadline(time.Now().Add(patient))
	_, err2 := conn.Write(packet)
	answer := make([]byte, 4)
	_, err3 := io.ReadFull(in, answer)
	if err := errors.Join(err1, err2, err3, conn.SetDeadline(time.Time{})); err != nil || answer[3] != 0 {
		_ = conn.Close()
		return nil, nil, fmt.Errorf("a login by MQTT got % x: %w", answer, err)
	}
	return conn, in, nil
}
