package ingest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"carstate/internal/testkit"
	"carstate/internal/vehicle"
)

// worst are messages of about n bytes that become as much memory as possible.
func worst(n int) map[string]string {
	fill := func(line string) string { return strings.Repeat(line+"\n", min(max(n/(len(line)+1), 1), MaxSamples)) }
	return map[string]string{
		"samples":    fill(`{"time":1e12,"signals":{"Vehicle.Speed":1}}`),
		"codes":      fill(codesLine(1, maxCodes)),
		"both":       fill(`{"time":1e12,"signals":{"Vehicle.OBD.DTCList":["P0120"]}}`),
		"one":        sampleLine("V1", 1, 1),
		"rejections": fill("{}"),
	}
}

// until is a store that tells of each append and takes none before release.
func until(release <-chan struct{}, arrived chan<- struct{}) func(context.Context) error {
	return func(ctx context.Context) error {
		if arrived != nil {
			arrived <- struct{}{}
		}
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// The room that is taken for a packet before it is read is enough for all that
// becomes of it, and what a batch says that it costs is what it costs.
func TestProcessingBytes(t *testing.T) {
	o := anyone
	o.topic = "V1"
	for _, n := range []int{100, 3000, 60_000, maxPacket} {
		for name, message := range worst(n) {
			b, err := testReader().messageBatch([]byte(message), o)
			if err != nil {
				t.Fatal(name, err)
			}
			costs := cap(b.samples) * int(unsafe.Sizeof(vehicle.Sample{}))
			for i := range b.samples {
				costs += cap(b.samples[i].Codes) * int(unsafe.Sizeof(vehicle.TroubleCode{}))
			}
			if costs > b.bytes {
				t.Errorf("%s in %d bytes: a cost of %d is said to be %d", name, len(message), costs, b.bytes)
			}
			if b.accepted == 0 {
				continue // nothing is kept of it
			}
			if room := processingBytes(len(message)); len(message)+messageBytes+b.bytes > room {
				t.Errorf("%s in %d bytes: costs %d, more than the room of %d", name, len(message), b.bytes, room)
			}
		}
	}
}

// However many connections send however much, what is held stays within the
// budget; nothing is acknowledged before it is stored, and in the end all is.
func TestMQTTMemoryIsBounded(t *testing.T) {
	f := newFixture(t)
	f.MaxBytes = 2 << 20
	release := make(chan struct{})
	f.store.append = until(release, nil)
	m, addr := startMQTT(t, f.Config)
	const connections, messages, lines = 8, 60, 10
	var sending sync.WaitGroup
	clients := make([]*rawClient, connections)
	for i := range clients {
		c := dialRaw(t, addr, 5)
		_, key := f.add(t, fmt.Sprint("gateway", i), f.source.Vehicles)
		if code := c.connect(fmt.Sprint("gateway", i), key, "", 30); code != 0 {
			t.Fatalf("CONNACK code %#x", code)
		}
		clients[i] = c
		payload := strings.Repeat(codesLine(i, 200)+"\n", lines)
		sending.Go(func() {
			for id := range messages {
				head := append(field(topicV1), 0, byte(id+1))
				if _, err := c.conn.Write(packet(0x32, head, c.properties(), []byte(payload))); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	testkit.Await(t, "every connection waits for room", func() bool {
		if held := f.metric(t, "carstate_ingest_held_bytes"); held > float64(f.MaxBytes) {
			t.Errorf("%g bytes are held, of %d", held, f.MaxBytes)
		}
		return m.rooms.processing.queued() == connections
	})
	f.wantMetric(t, 0, "carstate_samples_accepted_total")
	close(release)
	for _, c := range clients {
		for id := range uint16(messages) {
			c.wantPuback(id+1, 0)
		}
	}
	sending.Wait()
	f.wantMetric(t, connections*messages*lines, "carstate_samples_accepted_total")
	testkit.Await(t, "all room is given back", func() bool { return f.metric(t, "carstate_ingest_held_bytes") == 0 })
}

// One connection has no more than its share, whatever room there is.
func TestMQTTConnectionIsBounded(t *testing.T) {
	f := newFixture(t)
	release := make(chan struct{})
	f.store.append = until(release, nil)
	m, addr := startMQTT(t, f.Config)
	c := f.login(t, addr, 4)
	const messages = 100
	payload := []byte(strings.Repeat(codesLine(1, maxCodes)+"\n", 50)) // 92 KB of memory each
	sent := make(chan error, 1)
	go func() {
		for id := range messages {
			if _, err := c.conn.Write(packet(0x32, field(topicV1), []byte{0, byte(id + 1)}, payload)); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	var q *queue
	testkit.Await(t, "the queue is full", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		for conn := range m.conns {
			q = &conn.queue
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.bytes > maxQueued {
			t.Errorf("the connection holds %d bytes", q.bytes)
		}
		return q.bytes > maxQueued-100_000
	})
	close(release)
	for id := range uint16(messages) {
		c.wantPuback(id+1, 0)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// Large packets that do not come on wait for each other, and nobody whose
// messages are small waits for them.
func TestMQTTRoomForLargePackets(t *testing.T) {
	f := newFixture(t)
	f.MaxBytes = 4 * maxPacket // half of it for what is on its way
	m, addr := startMQTT(t, f.Config)
	payload := strings.Repeat(" \n", maxPacket/2-100) + sampleLine("V1", 1, 1)
	var clients []*rawClient
	for i := range 3 {
		name := fmt.Sprint("gateway", i)
		_, key := f.add(t, name, f.source.Vehicles)
		c := dialRaw(t, addr, 4)
		if code := c.connect(name, key, "", 30); code != 0 {
			t.Fatalf("CONNACK code %#x", code)
		}
		p := packet(0x32, field(topicV1), []byte{0, 1}, []byte(payload))
		if i < 2 {
			p = p[:10] // and no more of it comes
		}
		go func() { _, _ = c.conn.Write(p) }()
		clients = append(clients, c)
		testkit.Await(t, "it has its room, or waits for it", func() bool {
			return m.rooms.receiving.taken() == min(i+1, 2)*(len(payload)+len(topicV1)+4) && m.rooms.receiving.queued() == max(i-1, 0)
		})
	}
	small := f.login(t, addr, 5)
	small.publish(2, 1, topicV1, sampleLine("V1", 1, 2))
	small.wantPuback(1, 0)
	f.store.wants(t, "V1 2")
	_ = clients[0].conn.Close()
	clients[2].wantPuback(1, 0)
	f.store.wants(t, "V1 2", "V1 1")
}

// Who takes room for a packet and does not send it loses both.
func TestMQTTStalledPacket(t *testing.T) {
	here, there := net.Pipe()
	r := newRooms(1 << 20)
	r.packetTimeout = 20 * time.Millisecond
	c := newConn(here, r)
	go func() { _, _ = there.Write([]byte{0x32, 0x80, 0x80, 0x02, 1, 2, 3}) }()
	var err error
	for p := make([]byte, 100); err == nil; {
		_, err = c.Read(p)
	}
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Error(err)
	}
	if n := r.receiving.taken(); n != 32<<10 {
		t.Errorf("%d bytes are taken", n)
	}
	c.letGo()
	if n := r.taken(); n != 0 {
		t.Errorf("%d bytes are still taken", n)
	}
	_ = c.Close()
	_ = there.Close()
}

// Only a PUBLISH may be large.
func TestMQTTLargePacketOfAnotherType(t *testing.T) {
	f := newFixture(t)
	_, addr := startMQTT(t, f.Config)
	c := f.login(t, addr, 4)
	c.write([]byte{0x82, 0x81, 0x80, 0x01}) // SUBSCRIBE, 16 KiB and one byte
	c.wantClosed(0)
}

// A message that waits holds its samples and not the packet that it came in,
// and neither does a topic alias.
func TestMQTTKeepsNoPacket(t *testing.T) {
	f := newFixture(t)
	release := make(chan struct{})
	f.store.append = until(release, nil)
	_, addr := startMQTT(t, f.Config)
	c := f.login(t, addr, 5)
	const messages = 60
	payload := strings.Repeat(strings.Repeat(" ", 60_000)+"\n", 8) + sampleLine("V1", 1, 1)
	heap := func() int {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before := heap()
	for id := range byte(messages) {
		c.publish(2, uint16(id+1), topicV1, payload, 0x23, 0, id+1) // a topic alias
	}
	c.wantPong() // all have been read
	if grown := heap() - before; grown > messages*len(payload)/4 {
		t.Errorf("%d KB are held for %d samples", grown/1000, messages)
	}
	close(release)
	for id := range uint16(messages) {
		c.wantPuback(id+1, 0)
	}
}

// HTTP turns away what it has no room for, the newest first, and holds nothing
// once it has answered.
func TestHTTPMemoryIsBounded(t *testing.T) {
	f := newFixture(t)
	f.MaxBytes = 3*readerBytes + tabStep // the large one takes two steps more than the buffers, the small one one
	arrived, release := make(chan struct{}, 10), make(chan struct{})
	f.store.append = until(release, arrived)
	_, url := startHTTP(t, f)
	large := strings.Repeat(codesLine(1, maxCodes)+"\n", 50) // 92 KB of memory
	tooLarge := strings.Repeat(codesLine(2, maxCodes)+"\n", 500)
	first := make(chan struct{})
	go func() {
		defer close(first)
		request{body: large, status: 202}.send(t, url, f.key)
	}()
	<-arrived
	const full = `{"error":"` + noRoom + `"}`
	// It has begun, and cannot go on.
	request{header: "Content-Encoding: gzip", body: zip(tooLarge), status: 503, answer: full, wants: "Retry-After: 1"}.send(t, url, f.key)
	// A small one has room.
	second := make(chan struct{})
	go func() {
		defer close(second)
		request{body: sampleLine("V1", 3, 3), status: 202}.send(t, url, f.key)
	}()
	<-arrived
	// Now there is none to begin with.
	request{body: sampleLine("V1", 4, 4), status: 503, answer: full, wants: "Retry-After: 1"}.send(t, url, f.key)
	if held := f.metric(t, "carstate_ingest_held_bytes", "protocol", "http"); held > float64(f.MaxBytes) {
		t.Errorf("%g bytes are held, of %d", held, f.MaxBytes)
	}
	close(release)
	<-first
	<-second
	f.wantMetric(t, 51, "carstate_samples_accepted_total")
	testkit.Await(t, "all room is given back", func() bool { return f.metric(t, "carstate_ingest_held_bytes") == 0 })
}
