package hostile

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"example.org/carstate/bench/must"
	"example.org/carstate/internal/access"
	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/internal/vehicle"
	"example.org/carstate/torture/mqtt"
	"example.org/carstate/torture/row"
	"example.org/carstate/torture/writers"
)

const (
	crowdSize   = 10_000
	hostileCars = 4
	hostileName = "hostile"
)

var honest = writers.Layout{HTTP: 2, MQTT: 20, Cars: 2}

func telemetry(ctx context.Context, w *world) {
	a := w.attempt
	var own []vehicle.ID
	for i := range 10 {
		own = append(own, vehicle.ID(ownCar(i)))
	}
	hostile := must.Get(w.admin.AddSource(ctx, access.Credential{Name: hostileName, Vehicles: access.VehicleSet(own...)}))
	key := must.Get(w.AddSource(ctx, "honest"))
	filesAtRest, memoryAtRest := must.Get(w.Descriptors()), must.Get(w.Resident())
	w.log.secrets(hostile.Key, key)
	fleet := writers.Start(ctx, a, []*nodeprocess.Node{w.Node}, "honest", key, honest)
	defer fleet.Stop()
	peaks := row.Watch(ctx, w.Node)
	during := max(4, time.Duration(24*w.attempt.Count/fullCount)) * time.Second
	w.hostileKey = hostile.Key
	stopAttack := row.Background(ctx, hostileCars, func(ctx context.Context, i int) {
		for h := w.writer(i, a.Rand(1000+i)); ctx.Err() == nil; {
			h.attack(ctx)
		}
	})
	defer stopAttack()
	row.Pause(ctx, during/2)
	// The crowd comes last, because few other clients get a connection then.
	w.crowd(ctx, share(a, crowdSize, 300))
	row.Pause(ctx, during/2)
	stopAttack()
	over := time.Now()
	err := nodeprocess.Until(ctx, patience, func(context.Context) error { return fleet.Flowing(over) })
	if err != nil && ctx.Err() == nil {
		a.Wrong("%s after all hostile cars have disconnected: %v", patience, err)
	}
	fleet.Stop()
	files, memory := peaks()
	must.Do(ctx.Err())
	w.checkFolded(ctx, fleet)
	for _, name := range []string{connected, accepted, stored, denied} {
		a.Some(name, w.met.Of(name))
	}
	a.Figure("most descriptors open", float64(files), "")
	a.AtMost("most memory beyond that at rest", float64(memory-memoryAtRest)/(1<<20), "MiB", 512)
	w.settle(ctx, filesAtRest)
}

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

const (
	connected = "hostile MQTT connections"
	accepted  = "of them accepted, with a right key"
	stored    = "good messages that hostile cars had acknowledged"
	denied    = "subscriptions refused"
)

func (w *writer) attack(ctx context.Context) {
	w.met.Add(connected, 1)
	s := w.connection()
	x := talk(ctx, addressOf(30, w.IntN(1000)), w.Address(nodeprocess.MQTT), s.stream, w.Rand)
	if ctx.Err() != nil || x.alone { // during a crowd, some cannot connect
		return
	}
	w.attempt.Offered(1)
	wrong := fmt.Sprint(x.err)
	if x.err == nil {
		wrong = s.check(x.got)
	}
	if wrong != "" {
		w.attempt.Wrong("a hostile car: %s: %s to %s", wrong, shown(x.got), shown(s.stream))
		return
	}
	w.attempt.Acknowledged(1)
}

func (w *world) crowd(ctx context.Context, n int) {
	const connectTimeout, slack = 10 * time.Second, 20 * time.Second
	a := w.attempt
	var stayed, refused, letIn, lastIn atomic.Int64 // lastIn in ns
	login := mqtt.Login{Protocol: "MQTT", Version: 4, Flags: 2, KeepAlive: 60, ID: "x", User: hostileName,
		Key: "css_000000000000000000000000000000000000"}
	wrongKey := login.Packet()
	dialing := make(chan struct{}, 512)
	began := time.Now()
	must.Together(ctx, n, func(ctx context.Context, i int) {
		dialing <- struct{}{}
		c, err := dialFrom(ctx, addressOf(40, i), w.Address(nodeprocess.MQTT))
		<-dialing
		if err != nil {
			refused.Add(1)
			return
		}
		lastIn.Store(int64(time.Since(began)))
		defer c.Close()
		defer context.AfterFunc(ctx, func() { _ = c.Close() })()
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
	if ctx.Err() != nil {
		return
	}
	a.Offered(n)
	a.Acknowledged(n - int(refused.Load()))
	a.Figure("clients that connected to MQTT at once", float64(n), "")
	a.Figure("all of them within", float64(lastIn.Load()/1e6)/1e3, "s")
	a.None("of them could not connect", int(refused.Load()))
	a.None("of them were not disconnected, although they never logged in", int(stayed.Load()))
	a.None("of them were accepted with a wrong key", int(letIn.Load()))
}

// First bytes of packets of a server.
const (
	connack, puback, suback = 0x20, 0x40, 0x90
	others                  = "\x50\x70\xb0\xd0\xe0" // PUBREC, PUBCOMP, UNSUBACK, PINGRESP, DISCONNECT
)

func reading(vid string) string {
	return fmt.Sprintf(`{"vid":%q,"time":%d,"signals":{"Vehicle.Speed":50,"Vehicle.OBD.ThrottlePosition":20}}`, vid,
		time.Now().UnixMilli())
}

func topic(vid string) string { return "vehicles/" + vid + "/telemetry" }

// The hostile source may send for ownCar only, so victim must stay unknown.
func ownCar(i int) string    { return fmt.Sprintf("Own%d", i%10) }
func victim(i uint16) string { return fmt.Sprintf("Victim%d", i%10) }

type sent struct {
	version byte
	stream  []byte
	known   bool
	good    map[uint16]bool // packet IDs that may be acknowledged
	any     bool            // bytes were changed, so any message may be good
	met     *row.Tally
}

func (w *writer) text(name string) string {
	return strings.NewReplacer("OWN", ownCar(w.IntN(10)), "VICTIM", victim(uint16(w.IntN(10))), "KEY", w.hostileKey,
		"TOKEN", w.open[0].secret, "NOW", strconv.FormatInt(time.Now().UnixMilli(), 10)).Replace(w.from(name))
}

func (w *writer) connection() *sent {
	s := &sent{version: byte(4 + w.IntN(2)), good: make(map[uint16]bool), known: true, met: &w.met}
	l := mqtt.Login{Protocol: "MQTT", Version: s.version, Flags: 2, KeepAlive: uint16(w.IntN(700)),
		ID: pick(w, "same", "same", w.nobody(), ""), User: hostileName, Key: w.hostileKey}
	if w.chance(4) {
		w.spoilLogin(&l, s)
	}
	s.version, s.stream = l.Version, l.Packet()
	at := len(s.stream)
	for range w.IntN(12) {
		s.stream = append(s.stream, w.packet(s)...)
	}
	if s.any = w.chance(3); s.any {
		at *= w.IntN(2)
		s.stream = append(s.stream[:at:at], w.mutate(slices.Clone(s.stream[at:]))...)
	}
	return s
}

func (w *writer) spoilLogin(l *mqtt.Login, s *sent) {
	switch w.IntN(7) {
	case 0:
		l.Protocol, l.Version = w.text("protocols"), pick(w, byte(3), 4, 5)
	case 1:
		l.Version = pick(w, byte(0), 1, 2, 3, 6, 131, 255)
	case 2:
		l.Flags = pick(w, byte(0x00), 0x03, 0x3e, 0x1e, 0x20, 0x06, 0x36)
	case 3:
		l.WillTopic, l.Will, l.Flags = topic(victim(0)), reading(victim(0)), pick(w, byte(0x0e), 0x0e, 0x2e, 0x1e)
	case 4:
		l.ID = w.text("ids")
	case 5:
		l.Key, s.known = w.text("keys"), false
	case 6:
		l.User, s.known = w.text("users"), false
	}
}

func (w *writer) packet(s *sent) []byte {
	id, own := uint16(1+w.IntN(65535)), ownCar(w.IntN(10))
	publish := func(topic, payload string) []byte {
		s.good[id] = s.good[id] || strings.HasPrefix(topic, "$SYS/") // of bridges: acknowledged and dropped
		return mqtt.Publish(s.version, pick(w, byte(2), 2, 3, 10), id, topic, payload)
	}
	switch w.IntN(11) {
	case 0, 1:
		s.good[id] = true
		return publish(topic(own), reading(own))
	case 2:
		other := victim(id)
		return pick(w, publish(topic(other), reading(pick(w, other, own))), publish(topic(own), reading(other)))
	case 3:
		return publish(w.text("topics"), reading(own))
	case 4: // QoS 2 and 3, and the invalid packet ID 0
		flags, id := pick(w, byte(2), 4, 5, 6, 7, 12), id
		if flags == 2 {
			id = 0
		}
		return mqtt.Publish(s.version, flags, id, topic(own), reading(victim(id)))
	case 5:
		return mqtt.Subscribe(s.version, id, w.text("filters"), "#")
	case 6:
		return mqtt.Subscribe(s.version, id, slices.Repeat([]string{topic(victim(id))}, pick(w, 0, 400))...)
	case 7:
		second := mqtt.Login{Protocol: "MQTT", Version: s.version, Flags: 2, User: hostileName, Key: w.hostileKey}
		return pick(w, []byte(w.text("packets")), []byte(w.text("packets")), second.Packet())
	case 8:
		return publish(topic(own), w.text("payloads"))
	case 9: // properties with a wrong length, malformed, and many
		return mqtt.Packet(0x32, mqtt.Text(topic(victim(id))), binary.BigEndian.AppendUint16(nil, id),
			[]byte(w.text("properties")+reading(victim(id))))
	default:
		if !w.chance(8) {
			return mqtt.Packet(0xc0)
		}
		return publish(topic(own), long(1<<20))
	}
}

func (s *sent) check(got []byte) string {
	for in, first := bytes.NewReader(got), true; ; first = false {
		kind, err := in.ReadByte()
		if err == io.EOF {
			return ""
		}
		n, err := binary.ReadUvarint(in)
		if err != nil || n > uint64(in.Len()) {
			return fmt.Sprintf("a packet of the server breaks off: %#x, %d bytes, %v", kind, n, err)
		}
		body := make([]byte, n)
		_, _ = in.Read(body)
		if first != (kind == connack) {
			return fmt.Sprintf("the first packet is %#x and not CONNACK, or there is a second CONNACK", kind)
		}
		if wrong := s.checkPacket(kind, body); wrong != "" {
			return wrong
		}
	}
}

func (s *sent) checkPacket(kind byte, body []byte) string {
	switch {
	case kind == connack && len(body) >= 2:
		if body[1] == 0 && !s.known {
			return "a client without a right key is accepted"
		} else if body[1] == 0 {
			s.met.Add(accepted, 1)
		}
	case kind == puback && len(body) >= 2:
		id := binary.BigEndian.Uint16(body)
		switch {
		case len(body) > 2 && body[2] >= 0x80, s.version < 5 && !s.good[id]: // refused
		case !s.good[id] && !s.any:
			return fmt.Sprintf("message %d must not be acknowledged", id)
		default:
			s.met.Add(stored, 1)
		}
	case kind == suback && len(body) >= 3:
		codes := body[2:]
		if s.version >= 5 && !s.any {
			// The reason codes follow the properties.
			n, size := binary.Uvarint(codes)
			if size <= 0 || uint64(len(codes)) <= n+uint64(size) {
				return "a SUBACK has no codes"
			}
			codes = codes[n+uint64(size):]
		}
		for _, c := range codes {
			if c < 0x80 && !s.any {
				return "a car may subscribe"
			} else if c >= 0x80 {
				s.met.Add(denied, 1)
			}
		}
	case !strings.Contains(others, string([]byte{kind})):
		return fmt.Sprintf("unexpected packet from the server: %#x % x", kind, body)
	}
	return ""
}
