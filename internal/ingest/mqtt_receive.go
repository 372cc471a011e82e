package ingest

import (
	"bytes"
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
	refuse := func(reason string, code byte, text string) error {
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
		return refuse("version", code, "")
	case c.version < 5 && (code == mqtt.MalformedPacket || code == mqtt.ProtocolError):
		return refuse("no_connect", 0, "") // MQTT 3.1.1 has no code for it
	case code != 0:
		return refuse("no_connect", code, "the CONNECT is malformed, or asks for what this service does not have")
	case m.in.Ready() != nil && m.in.ReadOnly():
		return refuse(string(readOnlyNow), mqtt.ServerUnavailable, readOnly)
	case m.in.Ready() != nil:
		return refuse("not_ready", mqtt.ServerUnavailable, notYet)
	}
	source, err := m.in.Sources.VerifyNamed(string(p.User), p.Password, m.in.Now())
	if errors.Is(err, access.ErrUnread) {
		return refuse("credentials", mqtt.ServerUnavailable, notYet)
	} else if err != nil {
		named, _ := m.in.Sources.Get(string(p.User))
		m.in.refuseKey(named, err)
		return refuse("credentials", mqtt.WrongLogin, "user name and password must be the name and the key of a source")
	}
	if !m.slots.tryAcquire(source.Name, 1) {
		m.in.note(source, errShare)
		return refuse("share", mqtt.QuotaExceeded, errShare.Text)
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
	p, code := mqtt.ParsePublish(c.version, first, body)
	switch {
	case code != 0:
		return &closing{code, errMalformed.text}
	case p.Aliased:
		return m.refuse(c.grant, errAlias, mqtt.WrongAlias)
	case p.QoS > 1 && c.version == 5: // the CONNACK forbids it
		return m.refuse(c.grant, errQoS, mqtt.QoSNotSupported)
	case p.QoS > 1:
		return m.receive(c, &p, errQoS)
	}
	return m.receive(c, &p, nil)
}

func (m *MQTT) receive(c *conn, pk *mqtt.Publish, why *telemetry.Refusal) error {
	p := pending{qos: pk.QoS, id: pk.ID, since: m.in.Now(), source: c.grant.Number, outcome: rejected}
	if end := m.checkSource(c, p.since); end != nil {
		return end
	}
	if ok, err := m.withinLimits(c, &p, 0); !ok {
		return err
	}
	batch, refusal, samples := m.decide(c, pk, why)
	rate := c.grant.Limit()
	switch {
	case batch != nil:
		p.samples = len(batch.Samples)
		if ok, err := m.withinLimits(c, &p, samples); !ok {
			return err
		}
		batch.Rejected = nil // refusals are counted, and MQTT has no place to list them
		p.outcome, p.batch = stored, batch
		if p.qos > 0 && c.version == 5 {
			p.text = batch.InWords()
		}
	case refusal != nil:
		p.reject(refusal)
	}
	if p.batch == nil && rate.Limited() {
		c.grant.Budget.Take(rate, samples, m.in.Now())
	}
	if p.batch == nil && p.qos == 0 {
		m.in.observe(p.since, p.outcome)
		return nil
	}
	m.enqueue(c, p)
	return nil
}

func (m *MQTT) checkSource(c *conn, now time.Time) error {
	if m.in.ReadOnly() {
		m.in.observe(now, readOnlyNow)
		return &closing{mqtt.ServerUnavailable, readOnly}
	}
	source, err := m.in.Sources.VerifyNamed(c.grant.Name, c.key, now)
	if err == nil {
		c.grant = source
		return nil
	}
	m.in.refused[access.NotAllowed].Inc() // VerifyNamed has counted err for the source, except ErrUnread
	m.in.observe(now, unauthorised)
	if errors.Is(err, access.ErrUnread) {
		return &closing{mqtt.ServerUnavailable, notYet}
	}
	m.in.refuseKey(c.grant, err)
	return &closing{mqtt.NotAuthorized, access.KeyRefused + err.Error()}
}

// If decide returns neither batch nor refusal, the message is ignored.
func (m *MQTT) decide(c *conn, pk *mqtt.Publish, why *telemetry.Refusal) (_ *telemetry.Batch, _ *closing, samples int) {
	source, topic := c.grant, string(pk.Topic)
	id := vehicleOf(topic)
	ok := source.Format.Matches(topic) || source.Format == nil && id != "" // a message may name the vehicle
	code := byte(mqtt.WrongPayload)
	switch {
	case why != nil:
	case !ok && strings.HasPrefix(topic, brokerPrefix):
		return nil, nil, 1 // every bridge sends such messages: no mistake
	case !ok && source.Format != nil:
		text := fmt.Sprintf("wrong topic: the format of this source takes %.200q", source.Format.AllTopics)
		why, code = telemetry.Refuse(access.BadTopic, text), mqtt.WrongTopic
	case !ok:
		why, code = errTopic, mqtt.WrongTopic
	case id != "" && !source.Vehicles.Include(id):
		why, code = telemetry.ErrNotAllowed, mqtt.NotAuthorized
	default:
		b, err := telemetry.DecodeMessage(pk.Topic, pk.Payload, m.in.origin(source, id))
		if err == nil && b.Accepted > 0 {
			return b, nil, b.Size()
		}
		return nil, m.refuseBatch(source, b, err), max(b.Size(), 1)
	}
	return nil, m.refuse(source, why, code), 1
}

func (p *pending) reject(why *closing) {
	p.batch, p.outcome, p.code, p.text = nil, rejected, why.code, why.text
	if why.code == mqtt.NotAuthorized {
		p.outcome = unauthorised
	}
}

// withinLimits waits until the source has room. An MQTT 5 message with QoS 1 is refused instead, and
// ok is false. An error ends the connection.
func (m *MQTT) withinLimits(c *conn, p *pending, samples int) (ok bool, _ error) {
	for {
		next, ok := m.in.Unfolded.Reserve(p.source, p.samples)
		var why *telemetry.Refusal
		rate := c.grant.Limit()
		switch {
		case !ok:
			why = behind(next)
		case rate.Limited():
			if _, next, ok = c.grant.Budget.Take(rate, samples, m.in.Now()); !ok {
				m.in.Unfolded.Release(p.source, p.samples)
				why = overRate(rate, next)
			}
		}
		if ok {
			return true, nil
		}
		canRefuse := p.qos > 0 && c.version == 5
		waits := why.Kind == access.Backlog || m.in.Now().Add(next).Sub(p.since) <= time.Minute
		if !canRefuse && waits && periodic.Pause(c.ctx, next) == nil {
			continue
		}
		m.in.refuse(c.grant, why, max(samples, 1))
		end := &closing{mqtt.QuotaExceeded, why.Text}
		p.samples = 0
		if p.reject(end); canRefuse {
			m.enqueue(c, *p)
			return false, nil
		}
		m.in.observe(p.since, p.outcome)
		return false, end
	}
}

func (m *MQTT) refuse(source *access.Grant, why *telemetry.Refusal, code byte) *closing {
	m.in.refuse(source, why, 1)
	return &closing{code, why.Text}
}

func (m *MQTT) refuseBatch(source *access.Grant, b *telemetry.Batch, err error) *closing {
	whole, ok := errors.AsType[*telemetry.Refusal](err)
	if !ok && b.First == nil {
		whole, ok = errEmpty, true
	}
	if ok {
		return m.refuse(source, whole, mqtt.WrongPayload)
	}
	_ = m.in.store(m.ctx, b) // without samples, this only counts
	why := &closing{mqtt.WrongPayload, b.First.Text}
	switch b.RefusedTotal() {
	case b.Refused[access.WasForgotten]:
		why.code = mqtt.NotAuthorized
	case b.Refused[access.VehicleLimit]:
		why.code = mqtt.QuotaExceeded
	}
	return why
}

func vehicleOf(topic string) vehicle.ID {
	vid, ok1 := strings.CutPrefix(topic, topicPrefix)
	vid, ok2 := strings.CutSuffix(vid, topicSuffix)
	if id, err := vehicle.ParseReportingID(vid); ok1 && ok2 && err == nil {
		return id
	}
	return ""
}
