package ingest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

// until returns an append that blocks until release is closed, even beyond storeTimeout, because
// the machine may be busy.
func until(release <-chan struct{}, arrived chan<- struct{}) func(context.Context) error {
	return func(ctx context.Context) error {
		if arrived != nil {
			arrived <- struct{}{}
		}
		select {
		case <-release:
			return nil
		case <-ctx.Done():
		}
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return ctx.Err()
		}
		<-release
		return nil
	}
}

// No message is acknowledged before it is stored, and in the end all are stored.
func TestMQTTMemoryIsBounded(t *testing.T) {
	f := newFixture(t)
	f.MaxBytes = 2 << 20
	release := make(chan struct{})
	f.store.append = until(release, nil)
	m, addr := startMQTT(t, f.Config)
	const connections, messages, lines = 8, 60, 10
	clients := make(map[*rawClient]<-chan error)
	for i := range connections {
		name := fmt.Sprint("gateway", i)
		_, key := f.add(t, name, f.source.Vehicles)
		c := dialRaw(t, addr, 5).logIn(name, key)
		payload := strings.Repeat(codesLine(i, 200)+"\n", lines)
		clients[c] = c.flood(messages, func(int) string { return payload })
	}
	testkit.Await(t, "every connection waits for memory", func() bool {
		if held := f.metric(t, "carstate_ingest_held_bytes"); held > float64(f.MaxBytes) {
			t.Errorf("the held bytes: got %g, want at most %d", held, f.MaxBytes)
		}
		return m.WaitingForMemory() == connections
	})
	f.wantMetric(t, 0, "carstate_samples_accepted_total")
	close(release)
	for c, sent := range clients {
		c.wantPubacks(messages)
		if err := <-sent; err != nil {
			t.Errorf("the flood: got %v, want no error", err)
		}
	}
	f.wantMetric(t, connections*messages*lines, "carstate_samples_accepted_total")
	testkit.Await(t, "all memory is released", func() bool { return f.metric(t, "carstate_ingest_held_bytes") == 0 })
}

func TestMQTTConnectionIsBounded(t *testing.T) {
	f := newFixture(t)
	release := make(chan struct{})
	f.store.append = until(release, nil)
	m, c := startMQTTClient(t, f, 4)
	const messages = 100
	payload := strings.Repeat(codesLine(1, maxCodes)+"\n", 50) // 92 KB of memory each
	sent := c.flood(messages, func(int) string { return payload })
	testkit.Await(t, "the queue is full", func() bool {
		queued := m.Queued()
		if queued > maxQueued {
			t.Errorf("the connection holds %d bytes, want %d at most", queued, maxQueued)
		}
		return queued > maxQueued-100_000
	})
	close(release)
	c.wantPubacks(messages)
	if err := <-sent; err != nil {
		t.Errorf("the flood: got %v, want no error", err)
	}
}

// The header of a packet takes no memory. While packets of one source stall, another sends packets
// of any size.
func TestMQTTStalledPacketsOfOneSource(t *testing.T) {
	f := newFixture(t)
	f.MaxBytes = 32 * maxPacket
	m, addr := startMQTT(t, f.Config)
	_, key := f.add(t, "gateway", f.source.Vehicles)
	other := dialRaw(t, addr, 5).logIn("gateway", key)
	second := 0
	served := func() {
		t.Helper()
		for _, padding := range []int{0, 10_000, maxPacket - 1000} {
			second++
			spaces := strings.Repeat(strings.Repeat(" ", 59_999)+"\n", padding/60_000) + strings.Repeat(" ", padding%60_000)
			other.publish(2, uint16(second), topicV1, spaces+sampleLine("V1", second, 1))
			other.wantPuback(uint16(second), 0)
		}
	}
	stalled := packet(0x32, field(topicV1), []byte{0, 1, 0}, make([]byte, maxPacket-1000))
	var clients []*rawClient
	for i := range 20 {
		c := dialRaw(t, addr, 5)
		c.id = fmt.Sprint("id", i) // with the same ID it would take over the session
		c.logIn("car", f.key)
		c.write(stalled[:30])
		clients = append(clients, c)
	}
	testkit.Await(t, "the headers have arrived", func() bool {
		return f.metric(t, "carstate_mqtt_connections") == float64(len(clients)+1)
	})
	served()
	testkit.Await(t, "no memory is in use for headers alone", func() bool { return f.metric(t, "carstate_ingest_held_bytes") == 0 })
	for _, c := range clients {
		go func() { _, _ = c.conn.Write(stalled[30 : len(stalled)-1]) }()
	}
	testkit.Await(t, "the source's share is used up", func() bool {
		return m.WaitingForMemory() > 0
	})
	if n, most := m.Receiving(); n > most/2 {
		t.Errorf("one source has %d bytes of %d, want half at most", n, most)
	}
	served()
}

// A packet that has partly arrived is received, even if the quota is full.
func TestMQTTReceivingIsFull(t *testing.T) {
	f := newFixture(t)
	f.MaxBytes = 16 * maxPacket
	m, addr := startMQTT(t, f.Config)
	payload := strings.Repeat(" \n", maxPacket/2-100) + sampleLine("V1", 1, 1)
	p := packet(0x32, field(topicV1), []byte{0, 1}, []byte(payload))
	var clients []*rawClient
	for i := range 14 {
		name := fmt.Sprint("gateway", i)
		_, key := f.add(t, name, f.source.Vehicles)
		c := dialRaw(t, addr, 4).logIn(name, key)
		c.write(p[:maxPacket/2])
		clients = append(clients, c)
	}
	testkit.Await(t, "the packets have their parts", func() bool {
		n, most := m.Receiving()
		return n > most-maxPacket
	})
	for _, c := range clients {
		go func() { _, _ = c.conn.Write(p[maxPacket/2:]) }()
	}
	for _, c := range clients {
		c.wantPuback(1, 0)
	}
	testkit.Await(t, "all memory is released", func() bool { return f.metric(t, "carstate_ingest_held_bytes") == 0 })
}

func TestMQTTSlowPacket(t *testing.T) {
	bothVersions(t, func(t *testing.T, version byte) {
		for name, p := range map[string][]byte{
			"first byte": {0x32},
			"length":     {0x32, 0xff},
			"small":      {0x32, 0x20, 0, 2},
			"large":      append([]byte{0x32, 0x80, 0x80, 0x02}, make([]byte, 900)...),
			"other type": {0xe0, 0x20, 0, 0},
		} {
			t.Run(name, func(t *testing.T) {
				f := newFixture(t)
				f.SetGrace(20 * time.Millisecond)
				_, c := startMQTTClient(t, f, version)
				c.write(p)
				c.wantClosed(0x83)
				f.wantMetric(t, 1, "carstate_samples_refused_total", "reason", "too_slow")
				testkit.Await(t, "all memory is released", func() bool { return f.metric(t, "carstate_ingest_held_bytes") == 0 })
			})
		}
	})
}

// A waiting message keeps its samples, but not its packet, in memory.
func TestMQTTKeepsNoPacket(t *testing.T) {
	f := newFixture(t)
	release := make(chan struct{})
	f.store.append = until(release, nil)
	_, c := startMQTTClient(t, f, 5)
	const messages = 20
	payload := strings.Repeat(strings.Repeat(" ", 60_000)+"\n", 8) + sampleLine("V1", 1, 1)
	heap := func() int {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before := heap()
	for id := range byte(messages) {
		c.publish(2, uint16(id+1), topicV1, payload)
	}
	c.wantPong()
	if grown := heap() - before; grown > messages*len(payload)/4 {
		t.Errorf("%d samples: got %d bytes, want at most %d", messages, grown, messages*len(payload)/4)
	}
	close(release)
	c.wantPubacks(messages)
}

// A request is refused even after a part of it was read.
func TestHTTPMemoryIsBounded(t *testing.T) {
	f := newFixture(t)
	f.MaxBytes = 1 << 20
	arrived, release := make(chan struct{}, 10), make(chan struct{})
	f.store.append = until(release, arrived)
	_, url := startHTTP(t, f)
	large := strings.Repeat(codesLine(1, maxCodes)+"\n", 50) // 92 KB of memory
	tooLarge := strings.Repeat(codesLine(2, maxCodes)+"\n", 500)
	first := request{body: large, status: 202}.start(t, url, f.key)
	<-arrived
	held := f.metric(t, "carstate_ingest_held_bytes", "protocol", "http")
	if held < readerBytes+92_000 || held > readerBytes+92_000+2*reservationStep {
		t.Errorf("got %g bytes in use, want %d and at most 2 steps more", held, readerBytes+92_000)
	}
	full := `{"error":"` + "too much telemetry is in progress, in total or of this source; nothing of this request was accepted" + `"}`
	request{header: "Content-Encoding: gzip", body: zip(tooLarge), status: 503, answer: full,
		wants: "Retry-After: 1"}.send(t, url, f.key)
	second := request{body: sampleLine("V1", 3, 3), status: 202}.start(t, url, f.key)
	<-arrived
	close(release)
	<-first
	<-second
	f.wantMetric(t, 51, "carstate_samples_accepted_total")
	f.wantMetric(t, 1, "carstate_samples_refused_total", "reason", "no_room")
	testkit.Await(t, "all memory is released", func() bool { return f.metric(t, "carstate_ingest_held_bytes") == 0 })
}

func TestHTTPStalledBodiesOfOneSource(t *testing.T) {
	const requests = 64
	f := newFixture(t)
	f.MaxBytes = requests * requestBytes
	f.SetGrace(testkit.Patience) // no stalled request ends early
	_, url := startHTTP(t, f)
	_, key := f.add(t, "gateway", f.source.Vehicles)
	head := "POST " + telemetryPath + " HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + f.key +
		"\r\nContent-Type: application/x-ndjson\r\nContent-Length: 8000000\r\n\r\n{"
	for range requests + 2 {
		dialHTTP(t, url, head)
	}
	testkit.Await(t, "the source's share is used up", func() bool {
		return f.metric(t, "carstate_ingest_request_duration_seconds", "outcome", "no_room") == requests/2+2
	})
	f.wantMetric(t, requests/2*requestBytes, "carstate_ingest_held_bytes", "protocol", "http")
	for range 10 {
		wantStatus(t, dialHTTP(t, url, posting(key, sampleLine("V1", 1, 1))), http.StatusAccepted)
	}
	wantStatus(t, dialHTTP(t, url, posting(f.key, sampleLine("V1", 1, 1))), http.StatusServiceUnavailable)
}

// A source whose requests stall, or whose clients read no answers, holds at most half of the
// connections.
func TestHTTPConnectionsOfOneSource(t *testing.T) {
	for name, text := range map[string]func(post string) string{
		"stalled": func(post string) string { return strings.TrimSuffix(post, "}") },
		"unread":  func(post string) string { return strings.Repeat(post, 10_000) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.MaxHTTPConnections = 8
			_, url := startHTTP(t, f)
			_, key := f.add(t, "gateway", f.source.Vehicles)
			for range 2 * f.MaxHTTPConnections {
				c := dialHTTP(t, url, "")
				_ = c.(*net.TCPConn).SetReadBuffer(4096)
				go func() { _, _ = io.WriteString(c, text(posting(f.key, sampleLine("V1", 1, 50)))) }() // may be evicted
			}
			testkit.Await(t, "the source's share is used up", func() bool {
				return f.metric(t, "carstate_samples_refused_total", "reason", "no_room") > 0
			})
			for range 20 {
				c := dialHTTP(t, url, posting(key, sampleLine("V1", 2, 1)))
				wantStatus(t, c, http.StatusAccepted)
				_ = c.Close()
			}
		})
	}
}

// The deadline of a body does not apply to storing it.
func TestHTTPStoreOutlastsThePace(t *testing.T) {
	f := newFixture(t)
	f.SetGrace(50 * time.Millisecond)
	f.store.append = func(ctx context.Context) error { return periodic.Pause(ctx, 200*time.Millisecond) }
	_, url := startHTTP(t, f)
	request{body: sampleLine("V1", 1, 1), status: 202}.send(t, url, f.key)
}

// Bodies that arrive slowly do not count.
func TestHTTPDecodersOfASource(t *testing.T) {
	f := newFixture(t)
	var inside, most atomic.Int64
	release := make(chan struct{})
	f.Admit = func(vehicle.ID) bool {
		defer inside.Add(-1)
		n := inside.Add(1)
		for {
			before := most.Load()
			if n <= before || most.CompareAndSwap(before, n) {
				break
			}
		}
		<-release
		return true
	}
	_, url := startHTTP(t, f)
	const bodies = 6
	body := strings.Repeat(" ", headBytes) + sampleLine("V1", 1, 1)
	for range bodies {
		dialHTTP(t, url, strings.TrimSuffix(posting(f.key, body+"\n"), "\n"))
	}
	var sending sync.WaitGroup
	for range bodies {
		sending.Go(func() { request{body: body, status: 202}.send(t, url, f.key) })
	}
	testkit.Await(t, "all bodies have memory, and two are decoded", func() bool {
		return f.metric(t, "carstate_ingest_held_bytes") >= bodies*(requestBytes+readerBytes) && inside.Load() == decoders
	})
	close(release)
	sending.Wait()
	if got := most.Load(); got != decoders {
		t.Errorf("%d bodies were decoded at a time, want %d", got, decoders)
	}
}
