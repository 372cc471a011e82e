package pull

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// natsBroker reads a stream, or if none has the subject, a subscription that keeps nothing.
type natsBroker struct {
	*nats.Conn
	consumer jetstream.Consumer
	in       chan *nats.Msg // from a subscription
	closed   chan struct{}
}

func openNATS(ctx context.Context, p *puller) (broker, error) {
	b := &natsBroker{closed: make(chan struct{}), in: make(chan *nats.Msg, 64)}
	opts := []nats.Option{
		nats.Name("carstate pull"), nats.NoReconnect(), nats.Timeout(10 * time.Second),
		nats.PingInterval(10 * time.Second), nats.MaxPingsOutstanding(2),
		nats.ClosedHandler(func(*nats.Conn) { close(b.closed) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			p.broken.Log(p.Log, "NATS reports an error", "error", err)
		}),
	}
	if p.Config.TLS != nil {
		opts = append(opts, nats.Secure(p.Config.TLS))
	}
	switch {
	case p.User != "":
		opts = append(opts, nats.UserInfo(p.User, p.Password))
	case p.Password != "":
		opts = append(opts, nats.Token(p.Password))
	}
	if p.NATSCreds != "" {
		opts = append(opts, nats.UserCredentials(p.NATSCreds))
	}
	var err error
	if b.Conn, err = nats.Connect("nats://"+strings.Join(p.Hosts, ",nats://"), opts...); err != nil {
		if errors.Is(err, nats.ErrAuthorization) {
			err = loginRefused("NATS")
		}
		return nil, err
	}
	if err := b.subscribe(ctx, p); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *natsBroker) subscribe(ctx context.Context, p *puller) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	js, err := jetstream.New(b.Conn)
	if err != nil {
		return err
	}
	stream, err := js.StreamNameBySubject(ctx, p.Topics[0])
	if errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrJetStreamNotEnabled) ||
		errors.Is(err, nats.ErrNoResponders) {
		p.Log.Warn("no stream of JetStream has this subject: messages that are sent while this process does not run are lost")
		for _, t := range p.Topics {
			if _, err := b.ChanQueueSubscribe(t, p.Group, b.in); err != nil {
				return err
			}
		}
		return b.flush()
	}
	if err != nil {
		return err
	}
	b.consumer, err = js.CreateOrUpdateConsumer(ctx, stream, jetstream.ConsumerConfig{
		Durable: p.Group, FilterSubjects: p.Topics, AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: 10 * time.Second, MaxAckPending: maxMessages,
	})
	return err
}

func (b *natsBroker) receive(ctx context.Context, out chan<- message) error {
	if b.consumer == nil {
		for {
			select {
			case m := <-b.in:
				if err := put(ctx, out, message{slashes(m.Subject), m.Data, time.Now(), noAck}); err != nil {
					return err
				}
			case <-b.closed:
				return nats.ErrConnectionClosed
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	// Messages of NATS have at most 64 MiB, so none exceeds the limit.
	all, err := b.consumer.Messages(jetstream.PullMaxMessagesWithBytesLimit(256, 65<<20))
	if err != nil {
		return err
	}
	defer all.Stop()
	for {
		m, err := all.Next(jetstream.NextContext(ctx))
		if err != nil {
			return err
		}
		stored, err := m.Metadata()
		if err != nil {
			return err
		}
		if err := put(ctx, out, message{slashes(m.Subject()), m.Data(), stored.Timestamp, func() { _ = m.Ack() }}); err != nil {
			return err
		}
	}
}

func slashes(subject string) string { return strings.ReplaceAll(subject, ".", "/") }

func (b *natsBroker) flush() error { return b.FlushTimeout(10 * time.Second) }

func (b *natsBroker) close() { b.Close() }
