package sample

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"example.org/carstate/bench/must"
	"example.org/carstate/bench/report"
	"example.org/carstate/internal/test/nodeprocess"
)

type sender struct {
	client *fasthttp.HostClient
	auth   string
	url    string
}

func newSender(addr, key string, connections int) *sender {
	return &sender{
		client: &fasthttp.HostClient{
			Addr: addr, MaxConns: connections, MaxConnWaitTimeout: time.Minute,
			ReadTimeout: time.Minute, WriteTimeout: time.Minute,
			MaxIdemponentCallAttempts: 1,
		},
		auth: "Bearer " + key,
		url:  "http://" + addr + "/v1/telemetry",
	}
}

// A body is sent again while the source has too much unfolded.
func (s *sender) post(body []byte) {
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.Header.SetMethod(http.MethodPost)
	req.SetRequestURI(s.url)
	req.Header.SetContentType("application/x-ndjson")
	req.Header.Set("Authorization", s.auth)
	req.SetBodyRaw(body)
	must.Do(s.client.Do(req, resp))
	for ; resp.StatusCode() == http.StatusTooManyRequests; must.Do(s.client.Do(req, resp)) {
		time.Sleep(10 * time.Millisecond)
	}
	if resp.StatusCode() != http.StatusAccepted {
		must.Fail("telemetry was answered with %d", resp.StatusCode())
	}
}

func floodBodies(cars, perCar int) []*body {
	const perBody = 1000 // cars
	bodies := make([]*body, (cars+perBody-1)/perBody)
	for i := range bodies {
		bodies[i] = newBody(i*perBody, min(perBody, cars-i*perBody), perCar)
	}
	return bodies
}

func (s *sender) send(ctx context.Context, bodies []*body, connections int, lasting time.Duration) int {
	start := time.Now()
	var sent atomic.Int64
	connections = min(connections, len(bodies))
	must.Together(ctx, connections, func(ctx context.Context, worker int) {
		for round := 0; ; round++ {
			for i := worker; i < len(bodies); i += connections {
				must.Do(ctx.Err())
				if time.Since(start) > lasting {
					return
				}
				b := bodies[i]
				b.stamp(start.Add(-2*time.Minute + time.Duration(round*b.perCar)*step))
				s.post(b.text)
				sent.Add(int64(b.samples()))
			}
		}
	})
	return int(sent.Load())
}

// CPU is that until all samples are folded; drain is the time from the last acknowledgement to it.
func runFlood(ctx context.Context, n *node, bodies []*body, lasting time.Duration, all report.Rounds) {
	const connections = 4
	s := newSender(n.Address(nodeprocess.Ingest), n.key, connections)
	defer s.client.CloseIdleConnections()
	before, cpu, start := must.Get(n.Metrics(ctx)), must.Get(n.CPU()), time.Now()
	sent := float64(s.send(ctx, bodies, connections, lasting))
	took := time.Since(start)
	after := must.Get(n.AwaitMetrics(ctx, 2*time.Minute, func(m nodeprocess.Metrics) bool {
		return since(before, m, "carstate_samples_folded_total") >= sent
	}))
	all.Add("rate", sent/took.Seconds())
	all.Add("drain", (time.Since(start) - took).Seconds())
	all.Add("CPU", 1e6*(must.Get(n.CPU())-cpu).Seconds()/sent)
	all.Add("checkpoints", since(before, after, "carstate_checkpoint_bytes_total")/sent)
}

// Only the times in a body change, so the sender needs almost no CPU.
type body struct {
	text   []byte
	times  []int // offset of each sample's time
	perCar int   // consecutive samples of one car
}

const timeText = "2006-01-02T15:04:05.000Z"

const step = 100 * time.Millisecond

func newBody(first, cars, perCar int) *body {
	b := &body{perCar: perCar}
	for c := range cars {
		for range perCar {
			b.text = append(b.text, `{"vid":"`...)
			b.text = append(b.text, vid(first+c)...)
			b.text = append(b.text, `","time":"`...)
			b.times = append(b.times, len(b.text))
			b.text = append(b.text, timeText...)
			n := first + c + len(b.times)
			b.text = append(b.text, `","signals":{"Vehicle.Speed":`...)
			b.text = strconv.AppendFloat(b.text, 20+float64(n%600)/10, 'f', 1, 64)
			b.text = append(b.text, `,"Vehicle.OBD.ThrottlePosition":`...)
			b.text = strconv.AppendFloat(b.text, 15+float64(n%100)/10, 'f', 1, 64)
			b.text = append(b.text, `,"Vehicle.OBD.EngineSpeed":`...)
			b.text = strconv.AppendInt(b.text, int64(1500+n%400), 10)
			b.text = append(b.text, "}}\n"...)
		}
	}
	return b
}

func (b *body) samples() int { return len(b.times) }

func (b *body) stamp(start time.Time) {
	var text [32]byte
	for k := range b.perCar {
		at := start.Add(time.Duration(k)*step).UTC().AppendFormat(text[:0], timeText)
		for i := k; i < len(b.times); i += b.perCar {
			copy(b.text[b.times[i]:], at)
		}
	}
}

// As long as those in the documentation.
func vid(n int) string { return fmt.Sprintf("NHeN4UqVsohGS5%07d", n) }

type car struct {
	conn    net.Conn
	body    *body
	publish []byte // body is its last part
	answer  [4]byte
}

type source struct{ name, key string }

func dial(ctx context.Context, addr string, as source, number int) *car {
	var d net.Dialer
	conn := must.Get(d.DialContext(ctx, "tcp", addr))
	c := &car{conn: conn, body: newBody(number, 1, 1)}
	text := func(s string) []byte { return append(binary.BigEndian.AppendUint16(nil, uint16(len(s))), s...) }
	packet := func(first byte, parts ...[]byte) []byte {
		rest := bytes.Join(parts, nil)
		return append(binary.AppendUvarint([]byte{first}, uint64(len(rest))), rest...)
	}
	connect := packet(0x10, text("MQTT"), []byte{4, 0xc2, 1, 44}, text(vid(number)), text(as.name), text(as.key))
	must.Get(conn.Write(connect))
	must.Get(io.ReadFull(conn, c.answer[:]))
	if c.answer != [4]byte{0x20, 2} {
		must.Fail("a car was refused by MQTT")
	}
	c.publish = packet(0x32, text("vehicles/"+vid(number)+"/telemetry"), []byte{0, 1}, c.body.text)
	c.body.text = c.publish[len(c.publish)-len(c.body.text):]
	return c
}

func (c *car) send(at time.Time) {
	c.body.stamp(at)
	must.Get(c.conn.Write(c.publish))
	must.Get(io.ReadFull(c.conn, c.answer[:]))
	if c.answer != [4]byte{0x40, 2, 0, 1} {
		must.Fail("the answer is not PUBACK")
	}
}

// CPU is in µs per sample, memory in bytes per connection, before the first sample.
func runMQTT(ctx context.Context, n *node, sources []source, number int, lasting time.Duration) (
	acks *latencies, rate, cpu, memory float64) {
	before := must.Get(n.Resident())
	cars := make([]*car, number)
	defer func() {
		for _, c := range cars {
			if c != nil {
				_ = c.conn.Close()
			}
		}
	}()
	const dialers = 64
	must.Together(ctx, dialers, func(ctx context.Context, worker int) {
		for i := worker; i < number; i += dialers {
			cars[i] = dial(ctx, n.Address(nodeprocess.MQTT), sources[i%len(sources)], i)
		}
	})
	after, cpu0 := must.Get(n.Resident()), must.Get(n.CPU())
	start := time.Now()
	acks = new(latencies)
	must.Together(ctx, number, func(ctx context.Context, i int) {
		for at := time.Now(); at.Sub(start) <= lasting; at = time.Now() {
			must.Do(ctx.Err())
			cars[i].send(at)
			acks.add(time.Since(at))
		}
	})
	sent := float64(len(acks.took))
	return acks, sent / time.Since(start).Seconds(), 1e6 * (must.Get(n.CPU()) - cpu0).Seconds() / max(sent, 1),
		float64(after-before) / float64(number)
}
