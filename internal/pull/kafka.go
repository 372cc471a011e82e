package pull

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

type kafkaBroker struct{ *kgo.Client }

// kafkaLog logs why there is no connection, because the client does not return it.
type kafkaLog struct{ *puller }

func (kafkaLog) Level() kgo.LogLevel { return kgo.LogLevelWarn }

func (l kafkaLog) Log(_ kgo.LogLevel, text string, fields ...any) {
	l.broken.Log(l.Config.Log, "Kafka: "+text, fields...)
}

func openKafka(ctx context.Context, p *puller) (broker, error) {
	opts := []kgo.Opt{
		kgo.ClientID("carstate"), kgo.SeedBrokers(p.Hosts...), kgo.ConsumerGroup(p.Group), kgo.ConsumeTopics(p.Topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.AutoCommitMarks(), // only records whose samples were acknowledged
		kgo.SessionTimeout(10 * time.Second), kgo.RebalanceTimeout(10 * time.Second),
		kgo.RetryTimeout(10 * time.Second), kgo.WithLogger(kafkaLog{p}),
		kgo.MaxConcurrentFetches(1), kgo.FetchMaxBytes(maxBatch), kgo.FetchMaxPartitionBytes(maxBatch / 4),
		kgo.BrokerMaxReadBytes(8 * maxBatch), kgo.MaxDecompressBatchBytes(8 * maxBatch),
	}
	if p.Config.TLS != nil {
		opts = append(opts, kgo.DialTLSConfig(p.Config.TLS))
	}
	if p.User != "" {
		var how sasl.Mechanism
		switch as := (scram.Auth{User: p.User, Pass: p.Password}); p.SASL {
		case "scram-sha-256":
			how = as.AsSha256Mechanism()
		case "scram-sha-512":
			how = as.AsSha512Mechanism()
		default:
			how = plain.Auth{User: p.User, Pass: p.Password}.AsMechanism()
		}
		opts = append(opts, kgo.SASL(how))
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := cl.Ping(ctx); err != nil {
		cl.Close()
		return nil, fmt.Errorf("no answer from Kafka: check the URL, --tls, --sasl and the login: %w", err)
	}
	return kafkaBroker{cl}, nil
}

// The key of a record becomes the second level of its topic.
func (b kafkaBroker) receive(ctx context.Context, out chan<- message) error {
	for {
		fetched := b.PollRecords(ctx, 100)
		for r := range fetched.RecordsAll() {
			m := message{topic: r.Topic, body: r.Value, at: r.Timestamp, ack: func() { b.MarkCommitRecords(r) }}
			if len(r.Key) > 0 {
				m.topic += "/" + string(r.Key)
			}
			if err := put(ctx, out, m); err != nil {
				return err
			}
		}
		if err := fetched.Err(); err != nil {
			return err
		}
	}
}

func (b kafkaBroker) flush() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return b.CommitMarkedOffsets(ctx)
}

func (b kafkaBroker) close() { b.Close() }
