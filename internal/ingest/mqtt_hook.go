package ingest

import (
	"bytes"
	"errors"
	"strings"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/format"
	"example.org/carstate/internal/netguard"
	"example.org/carstate/internal/vehicle"
)

// A topic consists of topicPrefix, a vehicle identifier and topicSuffix.
const (
	topicPrefix = "vehicles/"
	topicSuffix = "/telemetry"
	maxTopic    = len(topicPrefix) + vehicle.MaxReportingID + len(topicSuffix)
)

// hook receives the callbacks of the MQTT library. The library calls them in the goroutine of the
// connection. Because no hook checks subscriptions (OnACLCheck), the library refuses all of them.
type hook struct {
	mqtt.HookBase
	m *MQTT
}

// Provides reports whether the hook implements callback b.
func (h *hook) Provides(b byte) bool {
	return b == mqtt.OnConnect || b == mqtt.OnConnectAuthenticate || b == mqtt.OnPacketEncode
}

// OnConnect processes a well-formed CONNECT before the login is checked. It drops the will, and
// limits the keep-alive time. If the service is not ready, it sends a CONNACK that says so, and
// returns an error, after which the library closes the connection.
func (h *hook) OnConnect(cl *mqtt.Client, _ packets.Packet) error {
	// The library would process a will itself. Some clients always set a will, so the will is
	// dropped and the client is not refused.
	cl.Properties.Will = mqtt.Will{}
	if k := cl.State.Keepalive; k == 0 || k > maxKeepAlive {
		cl.State.Keepalive, cl.State.ServerKeepalive = maxKeepAlive, true
	}
	if err := h.m.in.Ready(); err != nil {
		reason := "not_ready"
		if h.m.in.ReadOnly() {
			reason = string(readOnlyNow)
		}
		h.m.refused.WithLabelValues(reason).Inc()
		return errors.Join(err, h.m.server.SendConnack(cl, packets.ErrServerUnavailable, false, nil))
	}
	return nil
}

// OnConnectAuthenticate checks the name and key of a source, and reports whether the login is
// accepted. It also refuses the login if the source has used up its share of the connections, or if
// the connection was evicted in the meantime.
func (h *hook) OnConnectAuthenticate(cl *mqtt.Client, pk packets.Packet) bool {
	c := cl.Net.Conn.(*conn)
	name := string(cl.Properties.Username)
	source, err := h.m.in.Sources.VerifyNamed(name, pk.Connect.Password, h.m.in.Now())
	if err != nil {
		h.m.refused.WithLabelValues("credentials").Inc()
		if errors.Is(err, access.ErrUnread) {
			h.m.refuseLogin(cl, packets.ErrServerUnavailable)
		} else {
			h.m.in.refuseKey(err)
		}
		return false
	}
	if !h.m.slots.tryAcquire(name, 1) {
		h.m.refused.WithLabelValues("share").Inc()
		code := packets.Err3ServerUnavailable
		if cl.Properties.ProtocolVersion >= 5 {
			code = withReason(packets.ErrQuotaExceeded, "the source has used up its share of the connections")
		}
		h.m.refuseLogin(cl, code)
		return false
	}
	c.slot = reservation{h.m.slots, name, 1}
	if !netguard.Under(c).Become(netguard.Held) {
		return false // it was evicted: no response reaches the client
	}
	c.logIn(source, bytes.Clone(pk.Connect.Password))
	c.silence = time.Duration(cl.State.Keepalive) * time.Second * 3 / 2
	c.publish = func(first byte, body []byte) error { return h.m.publish(cl, c, first, body) }
	c.failed = func(err error) {
		switch {
		case errors.Is(err, errSlowPacket):
			h.m.disconnect(cl, h.m.refuse(c.grant, errSlowPacket, packets.ErrImplementationSpecificError))
		case errors.Is(err, errPacketTooLarge):
			h.m.disconnect(cl, h.m.refuse(c.grant, errPacketTooLarge, packets.ErrPacketTooLarge))
		}
	}
	// If a client connects with the client ID of another client, it takes over the session of the
	// other client. Because of the prefix, this is possible only between clients of the same
	// source.
	cl.ID = name + "/" + cl.ID
	return true
}

// refuseLogin sends a CONNACK with code and closes the connection. If the connection stayed open,
// the library would send another CONNACK.
func (m *MQTT) refuseLogin(cl *mqtt.Client, code packets.Code) {
	_ = m.server.SendConnack(cl, code, false, nil)
	_ = cl.Net.Conn.Close()
}

// OnPacketEncode returns the packet that is sent in place of pk. It adds to a CONNACK of success
// the limits that the library does not announce by itself. In a CONNACK of MQTT 3.1.1 it replaces a
// reason code that only MQTT 5 defines by 5 (not authorized). Any other packet is returned
// unchanged.
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

// publish processes a PUBLISH, given the first byte of its header and all bytes after its header.
// The library never gets a PUBLISH: it would acknowledge the message before it is stored, would
// lower QoS 2 to 1, and would drop a message whose topic begins with $, without a response.
//
// If the packet is malformed, violates the protocol, has QoS 2, or has a topic that begins with $
// or is longer than maxTopic, publish returns an error, and the connection is closed. An MQTT 5
// client first gets a DISCONNECT with the reason, unless the packet is malformed. The length of the
// topic is checked here and not in receive, because publish stores the topic if the packet defines
// a topic alias.
func (m *MQTT) publish(cl *mqtt.Client, c *conn, first byte, body []byte) error {
	pk := packets.Packet{ProtocolVersion: cl.Properties.ProtocolVersion}
	if err := errors.Join(pk.FixedHeader.Decode(first), pk.PublishDecode(body)); err != nil {
		return err
	}
	code := pk.PublishValidate(maxAliases)
	switch {
	case pk.FixedHeader.Qos > 1:
		code = m.refuse(c.grant, errQoS, packets.ErrQosNotSupported)
	case len(pk.TopicName) > maxTopic || strings.HasPrefix(pk.TopicName, "$"):
		code = m.refuse(c.grant, errTopic, packets.ErrTopicNameInvalid)
	}
	if code != packets.CodeSuccess {
		m.disconnect(cl, code)
		return code
	}
	// The topic is a part of body. Without a copy, a sample or a topic alias would keep the memory
	// of the whole packet in use.
	pk.TopicName = strings.Clone(pk.TopicName)
	if pk.Properties.TopicAliasFlag {
		pk.TopicName = cl.State.TopicAliases.Inbound.Set(pk.Properties.TopicAlias, pk.TopicName)
	}
	m.receive(cl, c, &pk)
	return nil
}

// receive checks and decodes a message. It then queues the message to be stored and acknowledged,
// or ends the connection.
func (m *MQTT) receive(cl *mqtt.Client, c *conn, pk *packets.Packet) {
	p := pending{qos: pk.FixedHeader.Qos, id: pk.PacketID, since: m.in.Now()}
	if m.in.ReadOnly() {
		m.in.observe(p.since, readOnlyNow)
		m.disconnect(cl, packets.ErrServerUnavailable)
		return
	}
	source, err := m.in.Sources.VerifyNamed(c.source, c.key, p.since)
	if err != nil {
		m.in.refused[access.NotAllowed].Inc() // VerifyNamed has recorded err, unless it is ErrUnread
		m.in.observe(p.since, unauthorised)
		code := packets.ErrNotAuthorized
		if errors.Is(err, access.ErrUnread) {
			code = packets.ErrServerUnavailable
		} else {
			m.in.refuseKey(err)
		}
		m.disconnect(cl, code)
		return
	}
	c.grant = source
	if !m.withinRate(cl, c, p, 0) {
		return
	}
	samples, drops := 1, false
	id, ok := topicOf(source, pk.TopicName)
	switch {
	case !ok:
		p.outcome, p.refusal = rejected, m.refuse(source, errTopic, packets.ErrTopicNameInvalid)
	case id != "" && !source.Vehicles.Include(id):
		p.outcome, p.refusal = unauthorised, m.refuse(source, errNotAllowed, packets.ErrNotAuthorized)
	default:
		b, err := m.read(source, id, pk.TopicName, pk.Payload)
		if err == nil && b.accepted > 0 {
			if !m.withinRate(cl, c, p, b.size()) {
				return
			}
			// The refused lines are counted. MQTT has no place to list them.
			b.rejected = nil
			p.outcome, p.batch = stored, b
			if p.qos > 0 && cl.Properties.ProtocolVersion >= 5 {
				p.refusal.Reason = b.inWords()
			}
			break
		}
		samples = max(b.size(), 1)
		p.outcome, p.refusal = rejected, m.refuseBatch(source, b, err)
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
		// This message has QoS 0 or is of MQTT 3.1.1, so there is no response that could refuse it
		// alone.
		m.in.observe(p.since, p.outcome)
		m.disconnect(cl, p.refusal)
		return
	}
	m.enqueue(cl, c, p)
}

// maxPause is the longest time that a message, counted from its arrival, may wait because its
// source is over its rate. During that time, nothing is read from the message's connection.
const maxPause = 60 * time.Second

// withinRate subtracts the given number of samples from the source's budget, as [HTTP.takeRate]
// does. If the budget is not positive, an MQTT 5 message with QoS 1 is refused. Other messages
// cannot be refused: withinRate waits until the budget is positive, and nothing is read from the
// connection during that time. If the message would wait longer than maxPause, withinRate closes
// the connection. If the message is refused or the connection closed, it returns false.
func (m *MQTT) withinRate(cl *mqtt.Client, c *conn, p pending, samples int) bool {
	for rate := c.grant.Rate; rate.Limited(); {
		_, next, ok := c.grant.Budget.TakeBatch(rate, samples, m.in.Now())
		if ok {
			break
		}
		canRefuse := p.qos > 0 && cl.Properties.ProtocolVersion >= 5
		if !canRefuse && m.in.Now().Add(next).Sub(p.since) <= maxPause && c.pause(next) {
			continue
		}
		over := overRate(rate, next)
		p.batch, p.outcome, p.refusal = nil, rejected, withReason(packets.ErrQuotaExceeded, over.text)
		m.in.refuse(c.grant, over, max(samples, 1))
		if canRefuse {
			m.enqueue(cl, c, p)
		} else {
			m.in.observe(p.since, p.outcome)
			m.disconnect(cl, p.refusal)
		}
		return false
	}
	return true
}

// withReason returns code with its text replaced by the given one.
func withReason(code packets.Code, text string) packets.Code {
	return packets.Code{Code: code.Code, Reason: text}
}

// read decodes the payload of a message from the source s. id is the vehicle that the topic names, if
// it names one.
func (m *MQTT) read(s *access.Grant, id vehicle.ID, topic string, payload []byte) (*batch, error) {
	rd := readers.Get().(*reader)
	defer readers.Put(rd)
	if s.Format != nil {
		return rd.mappedBatch(s.Format, format.Message{Body: payload, Topic: topic}, m.in.origin(s, id))
	}
	return rd.messageBatch(payload, m.in.origin(s, id))
}

// refuse counts a packet or message of source as refused, and returns code with the text of why.
func (m *MQTT) refuse(source *access.Grant, why *refusal, code packets.Code) packets.Code {
	m.in.refuse(source, why, 1)
	return withReason(code, why.text)
}

// refuseBatch counts a message without an accepted sample as refused, and returns the reason for
// the sender: err, the error of decoding, or else that of the first refused line, or errEmpty.
func (m *MQTT) refuseBatch(source *access.Grant, b *batch, err error) packets.Code {
	whole, ok := errors.AsType[*refusal](err)
	if !ok && b.first == nil {
		whole, ok = errEmpty, true
	}
	if ok {
		return m.refuse(source, whole, packets.ErrPayloadFormatInvalid)
	}
	// There are no samples to store, so this only counts.
	_ = m.in.store(m.ctx, b)
	return withReason(packets.ErrPayloadFormatInvalid, b.first.text)
}

// vehicleOf returns the vehicle that a topic names, and whether the topic has the form
// vehicles/VID/telemetry with a valid vehicle identifier.
func vehicleOf(topic string) (vehicle.ID, bool) {
	vid, ok1 := strings.CutPrefix(topic, topicPrefix)
	vid, ok2 := strings.CutSuffix(vid, topicSuffix)
	id, err := vehicle.ParseID(vid)
	return id, ok1 && ok2 && err == nil && len(id) <= vehicle.MaxReportingID
}
