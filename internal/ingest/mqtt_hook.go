package ingest

import (
	"bytes"
	"errors"
	"strings"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"

	"carstate/internal/access"
	"carstate/internal/netguard"
	"carstate/internal/vehicle"
)

// The topic is topicPrefix, a vid, topicSuffix.
const (
	topicPrefix = "vehicles/"
	topicSuffix = "/telemetry"
	maxTopic    = len(topicPrefix) + vehicle.MaxReportingID + len(topicSuffix)
)

// hook is where the MQTT library asks us. It calls a connection's methods from
// that connection's goroutine.
type hook struct {
	mqtt.HookBase
	m *MQTT
}

// ID names the hook to the library.
func (h *hook) ID() string { return "telemetry" }

// Provides lists the questions that we answer.
func (h *hook) Provides(b byte) bool {
	return bytes.IndexByte([]byte{
		mqtt.OnConnect, mqtt.OnConnectAuthenticate, mqtt.OnACLCheck,
		mqtt.OnPacketRead, mqtt.OnPacketEncode, mqtt.OnPublish,
	}, b) >= 0
}

// OnConnect prepares a connection whose CONNECT is well formed.
func (h *hook) OnConnect(cl *mqtt.Client, _ packets.Packet) error {
	// A will would be published without passing OnPublish. Clients that set
	// one by habit are not turned away for it.
	cl.Properties.Will = mqtt.Will{}
	if k := cl.State.Keepalive; k == 0 || k > maxKeepAlive {
		cl.State.Keepalive, cl.State.ServerKeepalive = maxKeepAlive, true
	}
	if err := h.m.in.Ready(); err != nil {
		h.m.refused.WithLabelValues("not_ready").Inc()
		return errors.Join(err, h.m.server.SendConnack(cl, packets.ErrServerUnavailable, false, nil))
	}
	return nil
}

// OnConnectAuthenticate checks the source's name and key.
func (h *hook) OnConnectAuthenticate(cl *mqtt.Client, pk packets.Packet) bool {
	c := cl.Net.Conn.(*conn)
	name := string(cl.Properties.Username)
	source, err := h.m.in.Sources.VerifyNamed(name, pk.Connect.Password, h.m.in.Now())
	if err != nil {
		h.m.refused.WithLabelValues("credentials").Inc()
		if errors.Is(err, access.ErrUnread) {
			h.m.refuseLogin(cl, packets.ErrServerUnavailable)
		}
		return false
	}
	if !h.m.places.tryTake(name, 1) {
		h.m.refused.WithLabelValues("share").Inc()
		code := packets.Err3ServerUnavailable
		if cl.Properties.ProtocolVersion >= 5 {
			code = because(packets.ErrQuotaExceeded, "the source has its share of the connections")
		}
		h.m.refuseLogin(cl, code)
		return false
	}
	c.place = hold{h.m.places, name, 1}
	if !netguard.Under(c).Become(netguard.Held) {
		return false // it was evicted, so that no answer reaches the client
	}
	c.logIn(source, bytes.Clone(pk.Connect.Password))
	c.slow = func() {
		h.m.in.refuse(c.grant, access.TooSlow, 1)
		why := errSlow.Error() + ": 1 KB/s is the least, and 60 s the longest"
		h.m.hangUp(cl, because(packets.ErrImplementationSpecificError, why))
	}
	// A client that connects with the ID of another takes its place; so no
	// source may choose an ID that another one's clients can have.
	cl.ID = name + "/" + cl.ID
	return true
}

// refuseLogin answers a login with a code of our own. The library would send another CONNACK, so the
// connection is closed.
func (m *MQTT) refuseLogin(cl *mqtt.Client, code packets.Code) {
	_ = m.server.SendConnack(cl, code, false, nil)
	_ = cl.Net.Conn.Close()
}

// OnACLCheck refuses every subscription. Publishing is judged by OnPublish,
// because a topic alias is not yet resolved here.
func (h *hook) OnACLCheck(_ *mqtt.Client, _ string, write bool) bool {
	return write
}

// OnPacketRead refuses what the library would not show to OnPublish as it came:
// QoS 2 is lowered on the way, a topic that begins with $ is dropped without an
// answer, and a long one can be remembered as an alias.
func (h *hook) OnPacketRead(cl *mqtt.Client, pk packets.Packet) (packets.Packet, error) {
	if pk.FixedHeader.Type != packets.Publish {
		return pk, nil
	}
	c := cl.Net.Conn.(*conn)
	switch {
	case pk.FixedHeader.Qos > 1:
		h.m.in.refuse(c.grant, access.BadQoS, 1)
		h.m.hangUp(cl, packets.ErrQosNotSupported)
		return pk, packets.ErrRejectPacket
	case len(pk.TopicName) > maxTopic || strings.HasPrefix(pk.TopicName, "$"):
		h.m.in.refuse(c.grant, access.BadTopic, 1)
		h.m.hangUp(cl, packets.ErrTopicNameInvalid)
		return pk, packets.ErrRejectPacket
	}
	// The library's text is a piece of the packet, all of which would live as
	// long as a sample or a topic alias refers to it.
	pk.TopicName = strings.Clone(pk.TopicName)
	return pk, nil
}

// OnPacketEncode adds to a CONNACK the limits that the library keeps to itself,
// and keeps from MQTT 3.1.1 clients the codes that only MQTT 5 has.
func (h *hook) OnPacketEncode(cl *mqtt.Client, pk packets.Packet) packets.Packet {
	switch {
	case pk.FixedHeader.Type != packets.Connack:
	case pk.ReasonCode == packets.CodeSuccess.Code:
		pk.Properties.TopicAliasMaximum = maxAliases
		pk.Properties.MaximumPacketSize = maxPacket
	case cl.Properties.ProtocolVersion < 5 && pk.ReasonCode >= packets.ErrUnspecifiedError.Code:
		pk.ReasonCode = packets.Err3NotAuthorized.Code
	}
	return pk
}

// OnPublish takes a message. It always tells the library to forget the message,
// which then neither acknowledges it nor passes it on: the queue acknowledges,
// after storing. (Under MQTT 3.1.1 the library takes most other errors for an
// acknowledgement.)
func (h *hook) OnPublish(cl *mqtt.Client, pk packets.Packet) (packets.Packet, error) {
	h.m.take(cl, pk)
	return pk, packets.ErrRejectPacket
}

// take judges a message and queues it for its answer, or ends the connection.
func (m *MQTT) take(cl *mqtt.Client, pk packets.Packet) {
	c := cl.Net.Conn.(*conn)
	p := pending{qos: pk.FixedHeader.Qos, id: pk.PacketID, since: m.in.Now()}
	if m.in.ReadOnly() {
		m.in.observe(p.since, unavailable)
		m.hangUp(cl, packets.ErrServerUnavailable)
		return
	}
	source, err := m.in.Sources.VerifyNamed(c.source, c.key, p.since)
	if err != nil {
		m.in.refuse(nil, access.NotAllowed, 1) // the key's refusal is noted already
		m.in.observe(p.since, unauthorised)
		code := packets.ErrNotAuthorized
		if errors.Is(err, access.ErrUnread) {
			code = packets.ErrServerUnavailable
		}
		m.hangUp(cl, code)
		return
	}
	c.grant = source
	if !m.withinRate(cl, c, p, 0) {
		return
	}
	samples, drops := 1, false
	id, ok := vehicleOf(pk.TopicName)
	switch {
	case !ok:
		m.in.refuse(source, access.BadTopic, 1)
		p.outcome, p.refusal = rejected, because(packets.ErrTopicNameInvalid, "telemetry goes to vehicles/VID/telemetry")
	case !source.Vehicles.Include(id):
		m.in.refuse(source, access.NotAllowed, 1)
		p.outcome, p.refusal = unauthorised, because(packets.ErrNotAuthorized, errNotAllowed.text)
	default:
		b, err := m.read(source, id, pk.Payload)
		if err == nil && b.accepted > 0 {
			if !m.withinRate(cl, c, p, b.size()) {
				return
			}
			// What was refused is counted; the client is not told which it was.
			b.rejected = nil
			p.outcome, p.batch = stored, b
			if p.qos > 0 && cl.Properties.ProtocolVersion >= 5 {
				p.refusal.Reason = b.ignored.inWords()
			}
			break
		}
		samples = max(b.size(), 1)
		p.outcome, p.refusal = rejected, because(packets.ErrPayloadFormatInvalid, m.whyNothing(source, b, err))
		if err == nil && b.refused[access.WasForgotten] > 0 && b.refused[access.WasForgotten] == b.rejectedTotal() {
			p.outcome, p.refusal.Code = unauthorised, packets.ErrNotAuthorized.Code
		}
		if err == nil && b.refused[access.VehicleLimit] > 0 && b.refused[access.VehicleLimit] == b.rejectedTotal() {
			p.refusal.Code = packets.ErrQuotaExceeded.Code
		}
		drops = p.qos == 0
	}
	if p.batch == nil && source.Rate.Limited() {
		source.Budget.TakeBatch(source.Rate, samples, m.in.Now())
	}
	if drops {
		m.in.observe(p.since, p.outcome)
		return
	}
	if p.batch == nil && (p.qos == 0 || cl.Properties.ProtocolVersion < 5) {
		// There is no way to say no to this message alone.
		m.in.observe(p.since, p.outcome)
		m.hangUp(cl, p.refusal)
		return
	}
	m.enqueue(cl, c, p)
}

// maxPause is for how long a connection is not read from because of its source's rate.
const maxPause = 60 * time.Second

// withinRate reports whether the source's rate allows a number of samples, and uses them up;
// 0: whether it allows any. If it does not, a message of MQTT 5 with QoS 1 is refused.
// Others cannot be: their connection is not read from until the rate allows the message,
// and is closed if that takes too long.
func (m *MQTT) withinRate(cl *mqtt.Client, c *conn, p pending, samples int) bool {
	for rate := c.grant.Rate; rate.Limited(); {
		_, next, ok := c.grant.Budget.TakeBatch(rate, samples, m.in.Now())
		if ok {
			break
		}
		told := p.qos > 0 && cl.Properties.ProtocolVersion >= 5
		if !told && m.in.Now().Add(next).Sub(p.since) <= maxPause && c.pause(next) {
			continue
		}
		p.batch, p.outcome, p.refusal = nil, rejected, because(packets.ErrQuotaExceeded, rateText(rate))
		m.in.refuse(c.grant, access.OverRate, max(samples, 1))
		if told {
			m.enqueue(cl, c, p)
		} else {
			m.in.observe(p.since, p.outcome)
			m.hangUp(cl, p.refusal)
		}
		return false
	}
	return true
}

// because is a reason code with our own words.
func because(code packets.Code, text string) packets.Code {
	return packets.Code{Code: code.Code, Reason: text}
}

// read reads a message's payload.
func (m *MQTT) read(s *access.Grant, id vehicle.ID, payload []byte) (*batch, error) {
	rd := readers.Get().(*reader)
	defer readers.Put(rd)
	return rd.messageBatch(payload, m.in.origin(s, id))
}

// whyNothing counts a message of which nothing was accepted and says why.
func (m *MQTT) whyNothing(source *access.Grant, b *batch, err error) string {
	var whole *refusal
	switch {
	case errors.As(err, &whole):
		m.in.refuse(source, whole.kind, 1)
		return whole.text
	case len(b.rejected) == 0:
		m.in.refuse(source, access.Malformed, 1)
		return "the message holds no sample"
	}
	// Nothing is to be stored, so this only counts.
	_ = m.in.store(m.ctx, b)
	return b.rejected[0].Reason
}

// hangUp ends the connection; MQTT 5 clients are told why.
func (m *MQTT) hangUp(cl *mqtt.Client, code packets.Code) {
	if cl.Properties.ProtocolVersion >= 5 {
		_ = m.server.DisconnectClient(cl, code)
	}
	cl.Stop(code)
}

// vehicleOf reads the vehicle from a topic.
func vehicleOf(topic string) (vehicle.ID, bool) {
	vid, ok1 := strings.CutPrefix(topic, topicPrefix)
	vid, ok2 := strings.CutSuffix(vid, topicSuffix)
	id, err := vehicle.ParseID(vid)
	return id, ok1 && ok2 && err == nil && len(id) <= vehicle.MaxReportingID
}

var _ mqtt.Hook = (*hook)(nil)
