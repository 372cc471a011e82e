package hostile

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"carstate/bench/must"
	"carstate/internal/access"
	"carstate/internal/nodeprocess"
	"carstate/internal/vehicle"
	"carstate/torture/mqtt"
	"carstate/torture/row"
	"carstate/torture/writers"
)

const (
	crowdSize   = 10_000 // clients that connect to MQTT at the same time
	holders     = 6000   // connections held open at the HTTP listener for telemetry
	hostileCars = 4      // hostile connections at a time, by MQTT and by HTTP each
)

// honest is the layout of the cars that report during the attack.
var honest = writers.Layout{HTTP: 2, MQTT: 20, Cars: 2}

// telemetry attacks the listeners for telemetry with hostile cars and crowds, while honest
// cars report.
func telemetry(ctx context.Context, w *world) {
	a := w.attempt
	var own []vehicle.ID
	for i := range 10 {
		own = append(own, vehicle.ID(ownCar(i)))
	}
	hostile := must.Get(w.admin.AddSource(ctx, access.Request{Name: "hostile", Vehicles: access.VehicleSet(own...)}))
	key := must.Get(w.AddSource(ctx, "honest"))
	filesAtRest, memoryAtRest := must.Get(w.Descriptors()), must.Get(w.Resident())
	w.log.secrets(hostile.Key, key)
	reporting, stopReports := context.WithCancel(ctx)
	defer stopReports()
	fleet := writers.Start(reporting, a, []*nodeprocess.Node{w.Node}, "honest", key, honest)
	defer fleet.Wait()
	defer stopReports()

	peaks := row.Watch(ctx, w.Node)
	during := max(4, time.Duration(24*w.attempt.Count/fullCount)) * time.Second
	attacking, stopAttack := context.WithTimeout(ctx, during)
	defer stopAttack()
	var attackers sync.WaitGroup
	met := new(hostility)
	for i := range hostileCars {
		attackers.Go(func() {
			for h := w.hostileCar(i, hostile.Key); attacking.Err() == nil; met.cars.Add(1) {
				h.attackMQTT(attacking, w, met)
			}
		})
		attackers.Go(func() {
			for h := w.hostileCar(i+hostileCars, hostile.Key); attacking.Err() == nil; met.uploads.Add(1) {
				h.attackHTTP(attacking, w, met)
			}
		})
	}
	// Send the packets first and the crowds afterwards, because during a crowd few other
	// clients get a connection.
	attackers.Go(func() {
		row.Pause(ctx, during/2)
		attackers.Go(func() { w.hold(attacking, share(a, holders, 100)) })
		w.crowd(ctx, share(a, crowdSize, 300))
	})
	attackers.Wait()
	over := time.Now()
	if err := nodeprocess.Until(ctx, patience, func(context.Context) error { return fleet.Flowing(over) }); err != nil &&
		ctx.Err() == nil {
		a.Wrong("%s after all hostile cars have disconnected: %v", patience, err)
	}
	stopReports()
	fleet.Wait()
	files, memory := peaks()
	must.Do(ctx.Err())
	w.checkFolded(ctx, fleet)
	fleet.Figures()
	met.report(a)
	a.Figure("most descriptors open", float64(files), "")
	a.AtMost("most memory beyond that at rest", float64(memory-memoryAtRest)/(1<<20), "MiB", 512)
	w.settle(ctx, filesAtRest)
}

// checkFolded waits until all acknowledged samples are folded, and checks that no sample of a
// victim (a vehicle for which no source may send) was accepted.
func (w *world) checkFolded(ctx context.Context, fleet *writers.Fleet) {
	newest := fleet.Newest()
	for _, vid := range honest.All() {
		err := w.AwaitAnswer(ctx, 20*time.Second, w.open[0].secret, string(vid), newest[vid].Time())
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			w.attempt.Lost("the last acknowledged sample of %s, of %s, is not folded: %v", vid,
				newest[vid].Time().UTC().Format(time.RFC3339), err)
		}
	}
	for i := range uint16(10) {
		for _, path := range []string{drivingPath, throttlePath} {
			a, err := w.Ask(ctx, path, w.open[0].secret, victim(i))
			if ctx.Err() == nil && (err != nil || a.HTTP != http.StatusOK || a.Reason != "unknown") {
				w.attempt.Wrong("%s is known, although no source may send for it: %+v, %v", victim(i), a, err)
			}
		}
	}
}

// hostility counts what hostile cars sent, and how much of that the service accepted or refused.
type hostility struct {
	cars, letIn, stored, denied atomic.Int64 // MQTT: connections, logins, messages; subscriptions refused
	uploads, taken, refused     atomic.Int64 // HTTP: uploads, and how many were accepted and refused
}

// report reports the counts. A count of 0 is a finding, because the row then proves nothing about
// the code that handles such traffic.
func (h *hostility) report(a *row.Attempt) {
	for _, x := range []struct {
		name string
		n    *atomic.Int64
	}{
		{"hostile MQTT connections", &h.cars}, {"of them accepted, with a right key", &h.letIn},
		{"good messages that hostile cars had acknowledged", &h.stored}, {"subscriptions refused", &h.denied},
		{"hostile uploads", &h.uploads}, {"good ones among them, accepted", &h.taken},
		{"hostile uploads refused", &h.refused},
	} {
		a.Figure(x.name, float64(x.n.Load()), "")
		if x.n.Load() == 0 {
			a.Wrong("%s: there were none, so the row says nothing about them", x.name)
		}
	}
}

func (w *world) hostileCar(number int, key string) *hostileCar {
	rng := rand.New(rand.NewPCG(w.attempt.Seed, uint64(1000+number)))
	return &hostileCar{writer: w.writer(number%talkers, rng), source: "hostile", key: key}
}

// attackMQTT makes one connection of a hostile car.
func (h *hostileCar) attackMQTT(ctx context.Context, w *world, met *hostility) {
	s := h.connection()
	h.attack(ctx, w, 30, nodeprocess.MQTT, s.stream, func(got []byte) string {
		wrong := s.check(got)
		met.stored.Add(int64(s.stored))
		met.denied.Add(int64(s.denied))
		if s.letIn {
			met.letIn.Add(1)
		}
		return wrong
	})
}

// attackHTTP makes one upload of a hostile car.
func (h *hostileCar) attackHTTP(ctx context.Context, w *world, met *hostility) {
	stream, mayAccept := h.upload()
	h.attack(ctx, w, 31, nodeprocess.Ingest, stream, func(got []byte) string {
		taken, refused, wrong := checkUpload(got, mayAccept)
		met.taken.Add(int64(taken))
		met.refused.Add(int64(refused))
		return wrong
	})
}

// attack sends a stream and checks the answer.
func (h *hostileCar) attack(ctx context.Context, w *world, network int, listener string, stream []byte,
	check func(got []byte) string) {
	x := talk(ctx, addressOf(network, h.IntN(1000)), w.Address(listener), stream, h.Rand)
	if ctx.Err() != nil || x.alone { // during a crowd, some cannot connect
		return
	}
	w.attempt.Offered(1)
	wrong := ""
	if x.err != nil {
		wrong = x.err.Error()
	} else {
		wrong = check(x.got)
	}
	if wrong != "" {
		w.attempt.Wrong("a hostile car: %s: %s to %s", wrong, shown(x.got), shown(stream))
		return
	}
	w.attempt.Acknowledged(1)
}

// upload returns one HTTP request to the listener for telemetry, and whether any of its
// samples may be accepted. Most requests have one part that is wrong.
func (h *hostileCar) upload() (stream []byte, mayAccept bool) {
	own := ownCar(h.IntN(10))
	part := map[string]string{"method": "POST", "target": "/v1/telemetry", "key": h.key, "type": "application/x-ndjson",
		"body": reading(own) + "\n"}
	spoil := pick(h.writer, [][]string{
		{"method", "GET", "PUT", "DELETE", "OPTIONS", "PATCH", "post"},
		{"target", "/", "/v1/telemetry/", "/v1/../v1/telemetry", "//v1/telemetry", "/v1/%74elemetry", "/metrics",
			"/debug/pprof/"},
		{"key", "", "x", h.tokens[0].secret, "css_" + long(36), long(9000), "\xff"},
		{"body", reading(victim(uint16(h.IntN(10))))},
		{"body", "", "{", "null", "[]", strings.Repeat("[", 50_000), "\xff\xfe", "{}\n{}\n", `{"vid":"` + own +
			`","vid":"Victim1","time":1,"signals":{}}`, "\x1b[31m\n", long(70_000)},
		{"type", "", "text/plain", "application/xml", "multipart/form-data; boundary=x", "application/x-ndjson\x00",
			"a/b; c=\"\n"},
		{"more", "Content-Encoding: gzip", "Content-Encoding: br", "Content-Encoding: gzip, gzip",
			"Content-Encoding: identity, x", "Content-Encoding: GZIP"},
		{"length", "Content-Length: -1", "Content-Length: +5", "Content-Length: x", "Content-Length: 99999999999999999999",
			"Content-Length: 9000000000", "Content-Length: 5, 5"},
		{"chunks", "zz\r\n", "ffffffffffffffffff\r\n", "5\r\nhel", "-1\r\n", "0\r\n\r\n", "5;" + long(6000) +
			"\r\nhello\r\n0\r\n\r\n"},
		{"more", "X: " + long(40_000)},
		{"fine", "Expect: 100-continue"}, {"fine", "X: y"}, {"fine", "Accept: */*"}, {"fine", "Expect:"},
	}...)
	part[spoil[0]] = pick(h.writer, spoil[1:]...)
	switch {
	case part["chunks"] != "":
		part["length"], part["body"] = "Transfer-Encoding: chunked", part["chunks"]
	case spoil[0] == "body" && h.chance(100):
		part["body"] = pick(h.writer, strings.Repeat(reading(own)+"\n", 10_001), strings.Repeat(" ", 9<<20))
	}
	if part["length"] == "" {
		part["length"] = fmt.Sprintf("Content-Length: %d", len(part["body"]))
	}
	head := []string{part["method"] + " " + part["target"] + " HTTP/1.1", "Host: localhost", "Authorization: Bearer " +
		part["key"], "Content-Type: " + part["type"], "Connection: close", part["length"]}
	if more := part["more"] + part["fine"]; more != "" {
		head = append(head, more)
	}
	stream = []byte(strings.Join(head, "\r\n") + "\r\n\r\n" + part["body"])
	if h.chance(4) {
		return h.mutate(stream), true
	}
	return stream, spoil[0] == "fine"
}

// refusals are the allowed statuses of a bad upload.
var refusals = map[int]bool{400: true, 401: true, 403: true, 404: true, 405: true, 408: true, 413: true, 414: true,
	415: true, 417: true, 431: true, 501: true, 505: true}

// checkUpload counts the answers to an upload, and returns what is wrong with them, or "".
func checkUpload(got []byte, mayAccept bool) (taken, refused int, wrong string) {
	for in := bufio.NewReader(bytes.NewReader(got)); ; {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return taken, refused, "" // the answer may be cut off if the upload was refused
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		switch {
		case resp.StatusCode == 202 && mayAccept:
			taken++
		case refusals[resp.StatusCode]:
			refused++
		case resp.StatusCode == 100, resp.StatusCode == 503 && resp.Header.Get("Retry-After") != "":
		default:
			return taken, refused, fmt.Sprintf("an upload gets %d", resp.StatusCode)
		}
	}
}

// crowd opens many MQTT connections at the same time. Each sends nothing, or a part of a packet, or
// a wrong key. The listener must close all of them within the time limit for a CONNECT.
func (w *world) crowd(ctx context.Context, n int) {
	const connectTimeout, slack = 10 * time.Second, 20 * time.Second
	a := w.attempt
	var all sync.WaitGroup
	var stayed, refused, letIn, lastIn atomic.Int64 // lastIn in ns since the beginning
	login := mqtt.Login{Protocol: "MQTT", Version: 4, Flags: 2, KeepAlive: 60, ID: "x", User: "hostile",
		Key: "css_000000000000000000000000000000000000"}
	wrongKey := login.Packet()
	dialing := make(chan struct{}, 512)
	began := time.Now()
	for i := range n {
		dialing <- struct{}{}
		all.Go(func() {
			c, err := dialFrom(ctx, addressOf(40, i), w.Address(nodeprocess.MQTT))
			<-dialing
			if err != nil {
				refused.Add(1)
				return
			}
			lastIn.Store(int64(time.Since(began)))
			defer c.Close()
			stop := context.AfterFunc(ctx, func() { _ = c.Close() })
			defer stop()
			_ = c.SetDeadline(time.Now().Add(connectTimeout + slack))
			says := [][]byte{wrongKey, wrongKey[:i/5%(len(wrongKey)-1)+1], {0x10, 0xff, 0xff, 0xff, 0x7f}, nil, nil}[i%5]
			var got []byte
			if _, err = c.Write(says); err == nil {
				got, err = io.ReadAll(c)
			}
			if timedOut(err) && ctx.Err() == nil {
				stayed.Add(1)
			}
			if len(got) >= 4 && got[0] == connack && got[3] == 0 {
				letIn.Add(1)
			}
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		return
	}
	a.Offered(n)
	a.Acknowledged(n - int(refused.Load()))
	a.Figure("clients that connected to MQTT at once", float64(n), "")
	a.Figure("all of them within", float64(lastIn.Load()/1e6)/1e3, "s")
	a.None("of them could not connect", int(refused.Load()))
	if stayed.Load() > 0 {
		a.Wrong("%d clients that never logged in were not disconnected", stayed.Load())
	}
	if letIn.Load() > 0 {
		a.Wrong("%d clients were accepted with a wrong key", letIn.Load())
	}
}

// hold keeps up to n connections open at the HTTP listener for telemetry.
func (w *world) hold(ctx context.Context, n int) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			for ctx.Err() == nil {
				c, err := dialFrom(ctx, addressOf(50, i), w.Address(nodeprocess.Ingest))
				if err != nil {
					return
				}
				stop := context.AfterFunc(ctx, func() { _ = c.Close() })
				if i%2 == 0 {
					_, _ = io.WriteString(c, "POST /v1/telemetry HTTP/1.1\r\nX: ")
				}
				_, _ = io.Copy(io.Discard, c) // until it is closed by the node
				stop()
				_ = c.Close()
				row.Pause(ctx, time.Second) // a busy loop would use a whole processor
			}
		})
	}
	all.Wait()
}
