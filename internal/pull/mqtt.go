package pull

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"example.org/carstate/internal/mqtt"
	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/telemetry"
)

// mqttBroker is our own client, because libraries allocate whatever a packet announces, and each
// speaks one version.
type mqttBroker struct {
	conn    net.Conn
	in      *bufio.Reader
	version byte       // 5, or 4 for 3.1.1
	writing sync.Mutex // held while whole packets are written
	acks    []byte     // PUBACKs that flush sends
}

const (
	mqttKeepAlive = 30 * time.Second
	mqttPacket    = telemetry.MaxMapped + 128<<10 // bytes that are kept of a packet
	mqttMaximum   = 1<<28 - 1
	mqttWindow    = 1000 // messages without acknowledgement
)

var errMQTTVersion = errors.New("the broker speaks another version of MQTT than 3.1.1 and 5, or no MQTT at this port")

func openMQTT(ctx context.Context, p *puller) (broker, error) {
	b, err := connectMQTT(ctx, p, 5)
	if errors.Is(err, errMQTTVersion) {
		return connectMQTT(ctx, p, 4)
	}
	return b, err
}

type idleReader struct {
	net.Conn
	ctx context.Context
}

func (r idleReader) Read(b []byte) (int, error) {
	_ = r.SetReadDeadline(time.Now().Add(2 * mqttKeepAlive))
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Conn.Read(b)
}

func connectMQTT(ctx context.Context, p *puller, version byte) (broker, error) {
	plain := &net.Dialer{Timeout: 10 * time.Second}
	dial := plain.DialContext
	if p.Config.TLS != nil {
		dial = (&tls.Dialer{NetDialer: plain, Config: p.Config.TLS}).DialContext
	}
	conn, err := dial(ctx, "tcp", p.Hosts[0])
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Now()) })
	b := &mqttBroker{conn: conn, version: version, in: bufio.NewReader(idleReader{conn, ctx})}
	if err := b.login(p); err != nil {
		conn.Close()
		return nil, err
	}
	return b, nil
}

// receive reads the answer to login's SUBSCRIBE, because messages may come before it.
func (b *mqttBroker) login(p *puller) error {
	flags, properties := byte(0), []byte(nil)
	if b.version == 5 {
		properties = append([]byte{8, 0x11, 0xff, 0xff, 0xff, 0xff, 0x21}, mqttWindow>>8, mqttWindow&0xff)
	}
	login := appendText(nil, p.Group)
	if p.User != "" {
		flags, login = flags|0x80, appendText(login, p.User)
		if p.Password != "" {
			flags, login = flags|0x40, appendText(login, p.Password)
		}
	}
	connect := append(appendText(nil, "MQTT"), b.version, flags, 0, byte(mqttKeepAlive/time.Second))
	if err := b.write(0x10, append(append(connect, properties...), login...)); err != nil {
		return err
	}
	first, ack, err := b.packet()
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), err == nil && (first != 0x20 || len(ack) < 2):
		return errMQTTVersion
	case err != nil:
		return err
	}
	switch code := ack[1]; code {
	case 0:
	case 1, 0x84:
		return errMQTTVersion
	case 4, 5, 0x86, 0x87:
		return loginRefused("the broker")
	default:
		return fmt.Errorf("the broker refuses the connection (MQTT code 0x%02x)", code)
	}
	subscribe, options := []byte{0, 1}, byte(1) // packet 1, QoS 1
	if b.version == 5 {
		subscribe, options = append(subscribe, 0), options|1<<4 // retained messages only once
	}
	for _, t := range p.Topics {
		subscribe = append(appendText(subscribe, t), options)
	}
	return b.write(0x82, subscribe)
}

func appendText(p []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(p, uint16(len(s))), s...)
}

func (b *mqttBroker) write(first byte, body []byte) error {
	return b.writeAll(append(binary.AppendUvarint([]byte{first}, uint64(len(body))), body...))
}

func (b *mqttBroker) writeAll(packets []byte) error {
	b.writing.Lock()
	defer b.writing.Unlock()
	_ = b.conn.SetWriteDeadline(time.Now().Add(mqttKeepAlive))
	_, err := b.conn.Write(packets)
	return err
}

// packet allocates only for bytes that have arrived.
func (b *mqttBroker) packet() (first byte, body []byte, err error) {
	if first, err = b.in.ReadByte(); err != nil {
		return 0, nil, err
	}
	n, err := binary.ReadUvarint(b.in)
	if err == nil && n > mqttMaximum {
		err = errMQTT
	}
	if err != nil {
		return 0, nil, err
	}
	body, err = io.ReadAll(io.LimitReader(b.in, int64(min(n, mqttPacket))))
	if err == nil && n > mqttPacket {
		_, err = io.CopyN(io.Discard, b.in, int64(n)-mqttPacket)
	} else if err == nil && uint64(len(body)) < n {
		err = io.ErrUnexpectedEOF
	}
	return first, body, err
}

var errMQTT = errors.New("the broker violates the MQTT protocol")

func (b *mqttBroker) receive(ctx context.Context, out chan<- message) error {
	go func() {
		for range periodic.Every(ctx, mqttKeepAlive/3) {
			if b.write(0xc0, nil) != nil {
				return // then reading fails, too
			}
		}
	}()
	for {
		first, body, err := b.packet()
		if err != nil {
			return err
		}
		switch first >> 4 {
		case 3:
			m, err := b.publish(first, body)
			if err == nil {
				err = put(ctx, out, m)
			}
			if err != nil {
				return err
			}
		case 9: // SUBACK
			f := mqtt.Fields{Rest: body}
			f.Take(2)
			if b.version == 5 {
				f.Take(int(f.Varint())) // properties
			}
			for _, code := range f.Rest {
				if code >= 0x80 {
					return fmt.Errorf("the broker refuses a topic of --topic (MQTT code 0x%02x)", code)
				}
			}
		case 13: // PINGRESP
		case 14:
			return errors.New("the broker ended the connection: another client may have the same --group")
		default:
			return errMQTT
		}
	}
}

func (b *mqttBroker) publish(first byte, body []byte) (message, error) {
	f := mqtt.Fields{Rest: body}
	m := message{topic: string(f.Binary()), at: time.Now(), ack: noAck}
	if first&6 == 2 { // QoS 1
		id := f.Take(2)
		m.ack = func() { b.acks = append(append(b.acks, 0x40, 2), id...) }
	}
	if b.version == 5 && len(body) < mqttPacket { // otherwise the end of the properties may be missing
		f.Take(int(f.Varint()))
	}
	if first&1 != 0 {
		m.at = time.Time{} // retained: when it was sent is not known
	}
	if m.body = f.Rest; f.Code != 0 || first&4 != 0 {
		return message{}, errMQTT
	}
	return m, nil
}

func (b *mqttBroker) flush() error {
	acks := b.acks
	b.acks = b.acks[:0]
	if len(acks) == 0 {
		return nil
	}
	return b.writeAll(acks)
}

func (b *mqttBroker) close() {
	_ = b.write(0xe0, nil)
	b.conn.Close()
}
