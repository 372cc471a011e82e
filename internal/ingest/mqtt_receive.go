package ingest

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/listen"
	"example.org/carstate/internal/mqtt"
	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/telemetry"
	"example.org/carstate/internal/vehicle"
)

// Topics with brokerPrefix carry a bridge's messages about its broker.
const (
	topicPrefix  = "vehicles/"
	topicSuffix  = "/telemetry"
	brokerPrefix = "$SYS/"
)

func (m *MQTT) logIn(c *conn) error {
	p, code, err := c.readConnect(connectTimeout)
	if err != nil {
		// An evicted connection was counted already.
		if listen.Under(c.Conn).Become(listen.Silent) {
			m.refused.WithLabelValues("no_connect").Inc()
		}
		return err
	}
	c.version, c.Properties = p.Version, p.Properties
	reply := func(reason string, code byte, text string) error {
		m.refused.WithLabelValues(reason).Inc()
		var properties []byte
		if text = c.fitting(text); text != "" {
			properties = append([]byte{0x1f, 0, byte(len(text))}, text...) // reason string
		}
		if code != 0 {
			_, _ = c.Write(mqtt.AppendConnack(nil, c.version, code, properties))
		}
		return errors.New("the CONNECT was refused")
	}
	switch {
	case code == mqtt.WrongVersion:
		return reply("version", code, "")
	case c.version < 5 && (code == mqtt.MalformedPacket || code == mqtt.ProtocolError):
		return reply("no_connect", 0, "") // MQTT 3.1.1 has no code for it
	case code != 0:
		return reply("no_connect", code, "the CONNECT is malformed, or asks for what this service does not have")
	case m.in.Ready() != nil && m.in.ReadOnly():
		return reply(string(readOnlyNow), mqtt.ServerUnavailable, readOnly)
	case m.in.Ready() != nil:
		return reply("not_ready", mqtt.ServerUnavailable, notYet)
	}
	source, err := m.in.Sources.VerifyNamed(string(p.User), p.Password, m.in.Now())
	if errors.Is(err, access.ErrUnread) {
		return reply("credentials", mqtt.ServerUnavailable, notYet)
	} else if err != nil {
		named, _ := m.in.Sources.Get(string(p.User))
		m.in.countKey(named, err)
		return reply("credentials", mqtt.WrongLogin, "user name and password must be the name and the key of a source")
	}
	if !m.slots.tryAcquire(source.Name, 1) {
		m.in.note(source, errShare)
		return reply("share", mqtt.QuotaExceeded, errShare.Text)
	}
	c.slot = reservation{m.slots, source.Name, 1}
	if !listen.Under(c.Conn).Become(listen.Held) {
		return errEnding // c was evicted
	}
	c.grant, c.key = source, bytes.Clone(p.Password)
	c.receiving.source, c.finishing.source, c.processing.source = source.Name, source.Name, source.Name

	// Retain Available is not 0, because a bridge's default will is retained, and would have to be
	// refused.
	answer := []byte{0x21, 0, receiveMaximum, 0x24, 1, 0x27, 0, maxPacket >> 16, 0, 0}
	keepAlive := p.KeepAlive
	if keepAlive == 0 || keepAlive > maxKeepAlive {
		keepAlive = maxKeepAlive
		answer = binary.BigEndian.AppendUint16(append(answer, 0x13), maxKeepAlive)
	}
	c.silence = time.Duration(keepAlive) * time.Second * 3 / 2
	if p.SessionExpiry > 0 {
		answer = append(answer, 0x11, 0, 0, 0, 0) // the session ends with the connection
	}
	id := string(p.ID)
	if id == "" {
		id = rand.Text()
		answer = append(append(answer, 0x12, 0, byte(len(id))), id...)
	}
	if _, err := c.Write(mqtt.AppendConnack(nil, c.version, 0, answer)); err != nil {
		return err
	}
	return m.enter(c, clientID{source.Name, id})
}

// clientID has the source, so that no source can end the connections of another.
type clientID struct{ source, id string }

func (m *MQTT) enter(c *conn, id clientID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ending {
		return errEnding
	}
	if other := m.clients[id]; other != nil {
		other.stop(errTakenOver)
	}
	m.clients[id], c.id = c, id
	return nil
}

func (m *MQTT) leave(c *conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.clients[c.id] == c {
		delete(m.clients, c.id)
	}
}

// An error of handle that is a *closing is sent to the client.
func (m *MQTT) handle(c *conn, first byte, body []byte) error {
	if first&0xf0 == mqtt.PublishPacket {
		return m.publish(c, first, body)
	}
	var answer []byte
	switch first {
	case mqtt.SubscribePacket, mqtt.UnsubscribePacket:
		var code byte
		if answer, code = mqtt.RefuseFilters(c.version, first, body); code != 0 {
			return &closing{code, errMalformed.text}
		}
	case mqtt.PubrelPacket:
		if len(body) < 2 {
			return errMalformed
		}
		// In MQTT 3.1.1, a PUBREL follows a message with QoS 2 that was refused.
		answer = mqtt.AppendReason(nil, c.version, mqtt.PubcompPacket, body[:2], mqtt.UnknownPacketID, "")
	case mqtt.PingreqPacket:
		answer = []byte{mqtt.PingrespPacket, 0}
	case mqtt.DisconnectPacket:
		_ = c.Close()
		return errEnding
	default:
		return &closing{mqtt.ProtocolError, "a packet came that no client of this service may send now"}
	}
	_, err := c.Write(answer)
	return err
}

func (m *MQTT) publish(c *conn, first byte, body []byte) error {
	pk, code := mqtt.ParsePublish(c.version, first, body)
	switch {
	case code != 0:
		return &closing{code, errMalformed.text}
	case pk.Aliased:
		return c.countClosing(errAlias, mqtt.WrongAlias)
	case pk.QoS > 1 && c.version == 5: // the CONNACK forbids it
		return c.countClosing(errQoS, mqtt.QoSNotSupported)
	case pk.QoS > 1:
		return m.receive(c, pk, errQoS)
	}
	return m.receive(c, pk, nil)
}

type message struct {
	pending
	*conn
	mqtt.Publish
	wrong *telemetry.Refusal
	named vehicle.ID // by the topic
	size  int        // in samples, once decoded
}

// refusal is the verdict on a message that is not stored.
type refusal struct {
	closing // the answer
	outcome
	why     *telemetry.Refusal // counted for n samples
	n       int
	lines   *telemetry.Batch // counted instead, as is key
	key     error
	charged bool // to the source's rate
	ends    bool // the connection
}

func (m *MQTT) receive(c *conn, pk mqtt.Publish, wrong *telemetry.Refusal) error {
	p := message{conn: c, Publish: pk, wrong: wrong,
		pending: pending{qos: pk.QoS, id: pk.ID, since: m.in.Now(), source: c.grant.Number, outcome: stored}}
	for _, check := range [...]func() *refusal{p.checkSource, p.checkLimits, p.checkTopic, p.decode, p.checkLimits} {
		if no := check(); no != nil {
			return m.answer(&p, no)
		}
	}
	m.enqueue(c, p.pending)
	return nil
}

func (m *MQTT) answer(p *message, no *refusal) error {
	switch {
	case no.lines != nil:
		_ = m.in.store(m.ctx, no.lines) // only counts, without samples
	case no.key != nil:
		m.in.refused[access.NotAllowed].Inc() // VerifyNamed has counted key for the source, except ErrUnread
		if !errors.Is(no.key, access.ErrUnread) {
			m.in.countKey(p.grant, no.key)
		}
	case no.n > 0:
		m.in.countRefused(p.grant, no.why, no.n)
	}
	if rate := p.grant.Limit(); no.charged && rate.Limited() {
		p.grant.Budget.Take(rate, max(p.size, 1), m.in.Now())
	}
	p.batch, p.samples, p.code, p.text, p.outcome = nil, 0, no.code, no.text, cmp.Or(no.outcome, rejected)
	if no.code == mqtt.NotAuthorized {
		p.outcome = unauthorised
	}
	if p.qos > 0 && !no.ends {
		m.enqueue(p.conn, p.pending)
		return nil
	}
	m.in.observe(p.since, p.outcome)
	if no.ends {
		return &no.closing
	}
	return nil
}

func (p *message) checkSource() *refusal {
	if p.m.in.ReadOnly() {
		return &refusal{closing: closing{mqtt.ServerUnavailable, readOnly}, outcome: readOnlyNow, ends: true}
	}
	source, err := p.m.in.Sources.VerifyNamed(p.grant.Name, p.key, p.since)
	if err == nil {
		p.grant = source
		return nil
	}
	end := closing{mqtt.NotAuthorized, access.KeyRefused + err.Error()}
	if errors.Is(err, access.ErrUnread) {
		end = closing{mqtt.ServerUnavailable, notYet}
	}
	return &refusal{closing: end, outcome: unauthorised, key: err, ends: true}
}

// checkLimits waits until the source has room. An MQTT 5 message with QoS 1 is refused instead.
func (p *message) checkLimits() *refusal {
	for in := p.m.in; ; {
		var why *telemetry.Refusal
		next, ok := in.Unfolded.Reserve(p.source, p.samples)
		if rate := p.grant.Limit(); !ok {
			why = behind(next)
		} else if !rate.Limited() {
			return nil
		} else if _, next, ok = p.grant.Budget.Take(rate, p.size, in.Now()); ok {
			return nil
		} else {
			in.Unfolded.Release(p.source, p.samples)
			why = overRate(rate, next)
		}
		canRefuse := p.qos > 0 && p.version == 5
		waits := why.Kind == access.Backlog || in.Now().Add(next).Sub(p.since) <= time.Minute
		if canRefuse || !waits || periodic.Pause(p.ctx, next) != nil {
			end := closing{mqtt.QuotaExceeded, why.Text}
			return &refusal{closing: end, why: why, n: max(p.size, 1), ends: !canRefuse}
		}
	}
}

func (p *message) checkTopic() *refusal {
	source, topic := p.grant, string(p.Topic)
	p.named = vehicleOf(topic)
	ok := source.Format.Matches(topic) || source.Format == nil && p.named != "" // a message may name the vehicle
	switch {
	case p.wrong != nil:
		return wholly(p.wrong, mqtt.WrongPayload)
	case !ok && strings.HasPrefix(topic, brokerPrefix):
		return &refusal{charged: true} // every bridge sends these
	case !ok && source.Format != nil:
		text := fmt.Sprintf("wrong topic: the format of this source takes %.200q", source.Format.AllTopics)
		return wholly(telemetry.NewRefusal(access.BadTopic, text), mqtt.WrongTopic)
	case !ok:
		return wholly(errTopic, mqtt.WrongTopic)
	case p.named != "" && !source.Vehicles.Include(p.named):
		return wholly(telemetry.ErrNotAllowed, mqtt.NotAuthorized)
	}
	return nil
}

func wholly(why *telemetry.Refusal, code byte) *refusal {
	return &refusal{closing: closing{code, why.Text}, why: why, n: 1, charged: true}
}

func (p *message) decode() *refusal {
	b, err := telemetry.DecodeMessage(p.Topic, p.Payload, p.m.in.origin(p.grant, p.named))
	p.size = b.Size()
	if why, ok := errors.AsType[*telemetry.Refusal](err); ok {
		return wholly(why, mqtt.WrongPayload)
	} else if p.size == 0 {
		return wholly(errEmpty, mqtt.WrongPayload)
	}
	if b.Accepted == 0 {
		code := byte(mqtt.WrongPayload)
		switch p.size {
		case b.Refused[access.WasForgotten]:
			code = mqtt.NotAuthorized
		case b.Refused[access.VehicleLimit]:
			code = mqtt.QuotaExceeded
		}
		return &refusal{closing: closing{code, b.First.Text}, lines: b, charged: true}
	}
	p.batch, p.samples = b, len(b.Samples)
	b.Rejected = nil // refusals are counted, and MQTT has no place to list them
	if p.qos > 0 && p.version == 5 {
		p.text = b.InWords()
	}
	return nil
}

func vehicleOf(topic string) vehicle.ID {
	vid, ok1 := strings.CutPrefix(topic, topicPrefix)
	vid, ok2 := strings.CutSuffix(vid, topicSuffix)
	if id, err := vehicle.ParseReportingID(vid); ok1 && ok2 && err == nil {
		return id
	}
	return ""
}
