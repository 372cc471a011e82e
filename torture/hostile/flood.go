package hostile

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"carstate/internal/access"
	"carstate/internal/nodeprocess"
	"carstate/internal/vehicle"
	"carstate/torture/row"
)

const (
	crowdSize   = 10_000 // clients that connect to MQTT at once
	holders     = 6000   // connections held open at the HTTP listener of telemetry
	hostileCars = 4      // connections of hostile cars at a time, by MQTT and by HTTP
	honestCars  = 20
	backEnds    = 2
)

// telemetry has hostile cars and crowds at the doors of telemetry, while honest ones
// go on.
func telemetry(ctx context.Context, w *world) error {
	a := w.attempt
	var own []vehicle.ID
	for i := range 10 {
		own = append(own, vehicle.ID(ownCar(i)))
	}
	hostile, err1 := w.admin.AddSource(ctx, "hostile", access.VehicleSet(own...), time.Time{})
	honest, err2 := w.admin.AddSource(ctx, "honest", access.AllVehicles(), time.Time{})
	filesAtRest, err3 := w.Descriptors()
	memoryAtRest, err4 := w.Resident()
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}
	w.log.secrets(hostile.Key, honest.Key)

	j := &journal{last: make(map[string]int64)}
	drop, dropAll := context.WithCancel(ctx)
	defer dropAll()
	sending, stopSending := context.WithCancel(drop)
	defer stopSending()
	var senders sync.WaitGroup
	for i := range honestCars {
		senders.Go(func() { j.car(sending, drop, w, honest.Key, i) })
	}
	for i := range backEnds {
		senders.Go(func() { j.backEnd(sending, drop, w, honest.Key, i) })
	}

	peaks := w.watch(ctx)
	during := time.Duration(share(a, 24, 4)) * time.Second
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
	// First the packets, then the crowds: among these, few others get to the door.
	attackers.Go(func() {
		select {
		case <-time.After(during / 2):
		case <-ctx.Done():
		}
		attackers.Go(func() { w.hold(attacking, share(a, holders, 100)) })
		w.crowd(ctx, share(a, crowdSize, 300))
	})
	attackers.Wait()
	stopSending()
	go func() { // who is not acknowledged by now never will be
		select {
		case <-time.After(patience):
			dropAll()
		case <-drop.Done():
		}
	}()
	senders.Wait()
	files, memory := peaks()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	j.judged(ctx, w)

	a.Offered(j.offered)
	a.Acknowledged(j.acked)
	if j.offered != j.acked {
		a.Wrong("of %d honest samples %d were acknowledged", j.offered, j.acked)
	}
	a.Figure("samples of honest cars and back ends", float64(j.offered), "")
	a.Figure("of them sent more than once", float64(j.again), "")
	met.judge(a)
	a.Figure("most descriptors open", float64(files), "")
	grown := float64(memory-memoryAtRest) / (1 << 20)
	a.Aimed("most memory beyond that at rest", float64(int(grown)), "MiB", "≤ 512 MiB", grown <= 512)
	return w.settle(ctx, filesAtRest)
}

// hostility is what hostile cars met.
type hostility struct {
	cars, letIn, stored, denied atomic.Int64 // MQTT: connections, messages, subscriptions
	uploads, taken, refused     atomic.Int64 // HTTP
}

// judge tells it. Cars of which none gets past the door, or is ever told no, show
// nothing of what is behind it.
func (h *hostility) judge(a *row.Attempt) {
	for _, x := range []struct {
		name string
		n    *atomic.Int64
	}{
		{"hostile MQTT connections", &h.cars}, {"of them let in, having a right key", &h.letIn},
		{"good messages that hostile cars had acknowledged", &h.stored}, {"subscriptions refused", &h.denied},
		{"hostile uploads", &h.uploads}, {"good ones among them, accepted", &h.taken}, {"hostile uploads refused", &h.refused},
	} {
		a.Figure(x.name, float64(x.n.Load()), "")
		if x.n.Load() == 0 {
			a.Wrong("%s: there were none, so the row says nothing about them", x.name)
		}
	}
}

// watch looks at what the node takes, until the function it returns is called.
func (w *world) watch(ctx context.Context) (peaks func() (files int, memory int64)) {
	ctx, cancel := context.WithCancel(ctx)
	var files int
	var memory int64
	var done sync.WaitGroup
	done.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
			n, err1 := w.Descriptors()
			m, err2 := w.Resident()
			if err1 == nil && err2 == nil {
				files, memory = max(files, n), max(memory, m)
			}
		}
	})
	return func() (int, int64) {
		cancel()
		done.Wait()
		return files, memory
	}
}

func (w *world) hostileCar(number int, key string) *hostileCar {
	rng := rand.New(rand.NewPCG(w.attempt.Seed, uint64(1000+number)))
	return &hostileCar{writer: w.writer(number%talkers, rng), source: "hostile", key: key}
}

// attackMQTT is one connection of a hostile car.
func (h *hostileCar) attackMQTT(ctx context.Context, w *world, met *hostility) {
	s := h.connection()
	x := talk(ctx, addressOf(30, h.IntN(1000)), w.Address(nodeprocess.MQTT), s.stream, h.Rand)
	if ctx.Err() != nil || x.alone { // in the crowd not everybody gets to the door
		return
	}
	w.attempt.Offered(1)
	wrong := ""
	if x.err != nil {
		wrong = x.err.Error()
	} else {
		wrong = s.judge(x.got)
		met.stored.Add(int64(s.stored))
		met.denied.Add(int64(s.denied))
		if s.letIn {
			met.letIn.Add(1)
		}
	}
	if wrong != "" {
		w.attempt.Wrong("a hostile car: %s: %s to %s", wrong, shown(x.got), shown(s.stream))
		return
	}
	w.attempt.Acknowledged(1)
}

// refusals are what the listener of telemetry may say to what is not good.
var refusals = map[int]bool{400: true, 401: true, 403: true, 404: true, 405: true, 408: true, 413: true, 414: true, 415: true, 417: true, 431: true, 501: true, 505: true}

// attackHTTP is one upload of a hostile car.
func (h *hostileCar) attackHTTP(ctx context.Context, w *world, met *hostility) {
	stream, mayAccept := h.upload()
	x := talk(ctx, addressOf(31, h.IntN(1000)), w.Address(nodeprocess.Ingest), stream, h.Rand)
	if ctx.Err() != nil || x.alone {
		return
	}
	w.attempt.Offered(1)
	if x.err != nil {
		w.attempt.Wrong("a hostile upload: %v: %s", x.err, shown(stream))
		return
	}
	taken, refused, wrong := judgeUpload(x.got, mayAccept)
	met.taken.Add(int64(taken))
	met.refused.Add(int64(refused))
	if wrong != "" {
		w.attempt.Wrong("a hostile upload gets %s: %s to %s", wrong, shown(x.got), shown(stream))
		return
	}
	w.attempt.Acknowledged(1)
}

// judgeUpload counts the answers to an upload, and says what is wrong with them, ""
// if nothing is.
func judgeUpload(got []byte, mayAccept bool) (taken, refused int, wrong string) {
	for in := bufio.NewReader(bytes.NewReader(got)); ; {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return taken, refused, "" // it may be cut off where it was not wanted
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		switch {
		case resp.StatusCode == 202 && mayAccept:
			taken++
		case refusals[resp.StatusCode]:
			refused++
		case resp.StatusCode == 100, resp.StatusCode == 503 && resp.Header.Get("Retry-After") != "":
		default:
			return taken, refused, fmt.Sprint(resp.StatusCode)
		}
	}
}

// crowd connects many clients to MQTT at once, who say nothing, a part, or what is
// wrong. All must be gone in the time that a CONNECT has.
func (w *world) crowd(ctx context.Context, n int) {
	const connectTimeout, slack = 10 * time.Second, 20 * time.Second
	a := w.attempt
	var all sync.WaitGroup
	var stayed, refused, letIn atomic.Int64
	good := login{protocol: "MQTT", version: 4, flags: 2, keepAlive: 60, id: "x", user: "hostile", key: "css_000000000000000000000000000000000000"}
	wrongKey := good.bytes()
	dialing := make(chan struct{}, 512)
	began := time.Now()
	var lastIn atomic.Int64 // ns after that
	for i := range n {
		dialing <- struct{}{}
		all.Go(func() {
			d := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: net.ParseIP(addressOf(40, i))}}
			c, err := d.DialContext(ctx, "tcp", w.Address(nodeprocess.MQTT))
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
			switch i % 5 {
			case 0:
				_, err = c.Write(wrongKey)
			case 1:
				_, err = c.Write(wrongKey[:i/5%(len(wrongKey)-1)+1])
			case 2:
				_, err = c.Write([]byte{0x10, 0xff, 0xff, 0xff, 0x7f})
			}
			var got []byte
			if err == nil {
				got, err = io.ReadAll(c)
			}
			var network net.Error
			if errors.As(err, &network) && network.Timeout() && ctx.Err() == nil {
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
	a.Aimed("of them could not connect", float64(refused.Load()), "", "0", refused.Load() == 0)
	if stayed.Load() > 0 {
		a.Wrong("%d clients that never logged in may stay for ever", stayed.Load())
	}
	if letIn.Load() > 0 {
		a.Wrong("%d clients were let in with a wrong key", letIn.Load())
	}
}

// hold keeps as many connections open at the HTTP listener of telemetry as it can.
func (w *world) hold(ctx context.Context, n int) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			for ctx.Err() == nil {
				d := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: net.ParseIP(addressOf(50, i))}}
				c, err := d.DialContext(ctx, "tcp", w.Address(nodeprocess.Ingest))
				if err != nil {
					return
				}
				stop := context.AfterFunc(ctx, func() { _ = c.Close() })
				if i%2 == 0 {
					_, _ = fmt.Fprintf(c, "POST /v1/telemetry HTTP/1.1\r\nX: ")
				}
				_, _ = io.Copy(io.Discard, c) // until it is closed
				stop()
				_ = c.Close()
				select { // it would take a processor otherwise
				case <-time.After(time.Second):
				case <-ctx.Done():
				}
			}
		})
	}
	all.Wait()
}
