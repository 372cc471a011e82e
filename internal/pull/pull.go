// Package pull posts telemetry from MQTT, Kafka, NATS or VISS to the ingest listener. It keeps
// nothing on disk: the broker keeps the place up to which messages are done, and moves it only after
// the acknowledgement, so a kill repeats samples and loses none. NATS without a stream, and VISS,
// keep no place.
package pull

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/format"
	"example.org/carstate/internal/ingest"
	"example.org/carstate/internal/lograte"
	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/telemetry"
	"example.org/carstate/internal/vehicle"
)

type Config struct {
	Address
	Topics         []string
	Group          string // under which the broker keeps the place
	User, Password string // VISS takes the password as its access token
	NATSCreds      string // file
	SASL           string // plain, scram-sha-256 or scram-sha-512
	TLS            *tls.Config
	Format         *format.Format // nil: the service's own
	Vehicle        vehicle.ID     // of messages that name none
	IngestURL, Key string
	Trust          *tls.Config // of the ingest listener
	Log            *slog.Logger
}

type Address struct {
	Scheme string
	Hosts  []string // with ports, except for VISS
	Path   string   // of VISS
	TLS    bool
}

var errLogin = errors.New("the URL must have no user and no password, because other users of this machine see it: " +
	"set CARSTATE_BROKER_USER and CARSTATE_BROKER_PASSWORD instead")

// ParseAddress parses a URL such as kafka://a:9092,b:9092, which its errors do not repeat.
func ParseAddress(text string) (a Address, _ error) {
	a.Scheme, text, _ = strings.Cut(text, "://")
	if a.Scheme == "mqtts" {
		a.Scheme, a.TLS = "mqtt", true
	}
	if strings.Contains(text, "@") {
		return Address{}, errLogin
	}
	text, path, _ := strings.Cut(text, "/")
	a.Path = "/" + path
	port, known := map[string]string{"mqtt": "1883", "kafka": "9092", "nats": "4222", "viss": ""}[a.Scheme]
	if a.TLS {
		port = "8883"
	}
	a.Hosts = strings.Split(text, ",")
	for i, h := range a.Hosts {
		u, err := url.Parse("//" + h)
		if !known || err != nil || u.Host != h || u.Hostname() == "" || path != "" && a.Scheme != "viss" ||
			i > 0 && a.Scheme != "kafka" && a.Scheme != "nats" {
			return Address{}, errors.New("the URL must be mqtt://HOST, mqtts://HOST, kafka://HOST,…, nats://HOST,… " +
				"or viss://HOST/PATH")
		}
		if u.Port() == "" && port != "" {
			a.Hosts[i] = net.JoinHostPort(u.Hostname(), port)
		}
	}
	return a, nil
}

// ack notes that a message is done; broker.flush tells the broker, or returns why it cannot.
type message struct {
	topic string // with slashes
	body  []byte
	at    time.Time // zero: not known
	ack   func()
}

// receive runs concurrently with the other methods.
type broker interface {
	receive(ctx context.Context, out chan<- message) error
	flush() error
	close()
}

const (
	// A batch ends after linger, or gap after its newest message: a broker may wait for
	// acknowledgements before it sends more.
	linger      = time.Second
	gap         = 10 * time.Millisecond
	maxBatch    = 4 << 20 // bytes without the last message
	maxMessages = 2000
	maxPost     = 512 << 10 // bytes; proxies often permit no more than 1 MB
	maxWait     = 30 * time.Second
)

type puller struct {
	Config
	client  *ingest.Client
	decoder *format.Decoder
	body    []byte
	lines   int
	claimed access.Claims

	messages, accepted, refused   int
	connected                     time.Time // when this was last logged
	broken, delayed, lost, unused lograte.Warning
}

// Our own format: the topic may name the vehicle.
const own = `{topics: [vehicles/+/telemetry], vid: {path: vid, topic: [2]}, time: {path: time}, under: $.signals}
---
{vid: {path: vid}, time: {path: time}, under: $.signals}`

// Run pulls until ctx ends, and delivers what it has by then.
func Run(ctx context.Context, c Config) {
	if c.Format == nil {
		c.Format, _ = format.Parse(own) // own has no error
	}
	p := &puller{Config: c, decoder: format.NewDecoder(), client: ingest.NewClient(c.IngestURL, c.Key, c.Trust)}
	for wait := time.Second; ; wait = min(2*wait, maxWait) {
		before := p.messages
		err := p.session(ctx)
		if ctx.Err() == nil {
			p.broken.Log(c.Log, "no connection to the broker; will connect again", "error", err)
		}
		if p.messages > before {
			wait = time.Second
		}
		if periodic.Pause(ctx, wait) != nil {
			c.Log.Info("stopped", "messages", p.messages, "accepted", p.accepted, "refused", p.refused)
			return
		}
	}
}

func (p *puller) session(ctx context.Context) (err error) {
	receiving, stop := context.WithCancel(ctx)
	defer stop()
	open := map[string]func(context.Context, *puller) (broker, error){
		"mqtt": openMQTT, "kafka": openKafka, "nats": openNATS, "viss": openVISS}[p.Scheme]
	b, err := open(receiving, p)
	if err != nil {
		return err
	}
	in, ended := make(chan message), error(nil) // ended is set before in is closed
	go func() {
		defer close(in)
		ended = b.receive(receiving, in)
	}()
	defer func() {
		stop()
		for range in { // until receive has returned
		}
		b.close()
	}()
	if time.Since(p.connected) > lograte.Every {
		p.connected = time.Now()
		p.Log.Info("connected to the broker", "topics", p.Topics)
	}
	for more := true; more; {
		var batch []message
		batch, more = collect(ctx, in)
		if err := p.deliver(ctx, batch); err != nil {
			return err
		}
		for _, m := range batch {
			m.ack()
		}
		if err := b.flush(); err != nil {
			return err
		}
		p.messages += len(batch)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return ended
}

func collect(ctx context.Context, in <-chan message) (batch []message, more bool) {
	var end time.Time
	quiet := time.NewTimer(linger)
	quiet.Stop()
	for size := 0; size < maxBatch && len(batch) < maxMessages; {
		select {
		case m, ok := <-in:
			if !ok {
				return batch, false
			}
			if batch = append(batch, m); len(batch) == 1 {
				end = time.Now().Add(linger)
			}
			size += len(m.body)
			quiet.Reset(min(gap, time.Until(end)))
		case <-quiet.C:
			return batch, true
		case <-ctx.Done():
			return batch, false
		}
	}
	return batch, true
}

// deliver returns nil once each sample is stored or was refused for good.
func (p *puller) deliver(ctx context.Context, batch []message) (err error) {
	p.body, p.lines = p.body[:0], 0
	for _, m := range batch {
		if len(m.body) > telemetry.MaxMapped {
			p.refuse(1, "a message is larger than 1 MiB")
			continue
		}
		if !p.Format.Matches(m.topic) {
			m.topic = ""
		}
		in, n := format.Message{Body: m.body, Topic: m.topic, Vehicle: p.Vehicle}, 0
		if !m.at.IsZero() {
			in.Now = signal.At(m.at)
		}
		p.decoder.Decode(p.Format, in, func(s *format.Sample) bool {
			for _, u := range s.Unused {
				p.unused.Log(p.Log, "a value was not used", "signal", u.Signal.String(), "reason", u.Err)
			}
			switch n++; {
			case n > telemetry.MaxSamples:
				p.refuse(1, "a message has more than 10,000 samples")
				return false
			case s.Err != nil:
				p.refuse(1, s.Err.Error())
			case s.Skipped, s.Empty():
			case s.External != "" && !p.claimed.Claim(s.Vehicle, s.External):
				p.refuse(1, "another vehicle already has this vid without its other characters: "+
					"give the mapping a table, or clean: hash")
			default:
				p.body = telemetry.AppendJSON(p.body, &s.Sample)
				if p.lines++; len(p.body) >= maxPost || p.lines == telemetry.MaxSamples {
					err = p.post(ctx)
				}
			}
			return err == nil
		})
		if err != nil {
			return err
		}
	}
	return p.post(ctx)
}

func (p *puller) refuse(n int, why string) {
	p.refused += n
	p.lost.Log(p.Log, "telemetry was refused for good", "reason", why, "refused_since_start", p.refused)
}

func put(ctx context.Context, out chan<- message, m message) error {
	select {
	case out <- m:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func noAck() {}

func loginRefused(what string) error {
	return fmt.Errorf("%s refuses the login: check CARSTATE_BROKER_USER and CARSTATE_BROKER_PASSWORD", what)
}
