package scale

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// messagesAtOnce is how many small messages are under way: as many partitions as
// a cluster has, with a few ingest nodes.
const messagesAtOnce = 256

// messages measures how many messages of one sample each one stream of three
// copies stores: what bounds group commits when there are too many of them.
func (b *bench) messages(ctx context.Context) error {
	nc, js, err := b.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "SMALL", Subjects: []string{"small"}, Replicas: copies, Storage: jetstream.FileStorage}); err != nil {
		return err
	}
	before, err := b.servers.work(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	began := time.Now()
	var stored atomic.Int64
	var running sync.WaitGroup
	record := make([]byte, 64) // a packed sample
	for range messagesAtOnce {
		running.Go(func() {
			for ctx.Err() == nil && time.Since(began) < b.plan.messages {
				if _, err := js.Publish(ctx, "small", record); err != nil {
					cancel(err)
					return
				}
				stored.Add(1)
			}
		})
	}
	running.Wait()
	took := time.Since(began)
	if err := context.Cause(ctx); err != nil {
		return err
	}
	after, err := b.servers.work(ctx)
	if err != nil {
		return err
	}
	n := float64(stored.Load())
	b.figure("messages", "messages stored a second", n/took.Seconds(), "1/s", "of one packed sample each, many at once, three copies, each synced; all servers on the same processors")
	b.figure("messages", "CPU of the three servers a message", micros(all(after).cpu-all(before).cpu, n), "µs", "")
	return nil
}
