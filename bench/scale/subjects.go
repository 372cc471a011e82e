package scale

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"example.org/carstate/bench/must"
	"example.org/carstate/internal/nodeprocess"
	"example.org/carstate/internal/store/cluster"
	"example.org/carstate/internal/store/codec"
)

// subjects measures one stream that holds the states of many vehicles in one copy. It measures the
// memory of the stream's server, how fast a feed delivers all states, and how soon the stream is
// available again after its server was killed.
func (b *bench) subjects(ctx context.Context) {
	n := b.plan.subjects
	fresh := b.servers.work(ctx)
	empty := fresh["memory of servers"] / copies
	c := b.streams(1, 1)
	c.DataDir = filepath.Join(b.Dir, "follower")
	began := time.Now()
	fill(ctx, c, n)
	stored := float64(n) / time.Since(began).Seconds()
	at := b.servers.index(b.servers.Leader(codec.States))
	info := b.stream(ctx, codec.States)
	b.Add("subjects", "cars", "", "in one stream of one copy", float64(n))
	b.Add("subjects", "states stored a second, 999 a batch", "1/s",
		"by one writer, one batch after the other, one copy", stored)
	b.Add("subjects", "bytes a state, as its stream counts", "B",
		"cars that have driven for ten minutes, with nine signals; subject and the engine's own bytes included",
		float64(info.State.Bytes)/float64(info.State.Msgs))

	b.servers.Nodes[at].Kill()
	began = time.Now()
	b.servers.Nodes[at].Start()
	must.Do(nodeprocess.Until(ctx, startLimit, func(ctx context.Context) error {
		return must.Caught(func() { b.stream(ctx, codec.States) })
	}))
	b.Add("subjects", "ready after kill -9", "s",
		"until the stream answers again, which may wait for the election of a leader of the cluster; page cache warm",
		time.Since(began).Seconds())
	started := b.servers.workOf(ctx, at)
	b.Add("subjects", "CPU until ready after kill -9", "s", "of the server, until the stream answers again",
		started["CPU"])
	b.Add("subjects", "memory of a server a vehicle, started", "B",
		"resident, beyond that of a server without streams; garbage of the recovery included",
		max(0, started["memory"]-empty)/float64(n))
	b.feed(ctx, c, at, n)
}

// feed measures a feed that delivers the stream from its beginning. Each node reads such a feed
// after its start. at is the index of the server that holds the stream, and n the number of
// vehicles, all of which the feed must deliver.
func (b *bench) feed(ctx context.Context, c cluster.Config, at, n int) {
	before := b.servers.work(ctx)
	self, began := must.Get(nodeprocess.CPUOf(os.Getpid())), time.Now()
	f := must.Get(follow(ctx, c))
	defer func() { must.Do(f.close()) }()
	select {
	case <-f.caughtUp:
	case <-f.done:
		must.Fail("the feed has ended")
	case <-ctx.Done():
		must.Do(ctx.Err())
	}
	took, used := time.Since(f.first), must.Get(nodeprocess.CPUOf(os.Getpid()))-self
	after := b.servers.work(ctx)
	got := float64(f.states.Load())
	if f.table.Len() != n {
		b.Logf("the feed brought %d of %d vehicles", f.table.Len(), n)
		must.Fail("the feed did not bring every vehicle")
	}
	b.Add("subjects", "until a feed's first record", "s", "the server looks up the last record of each vehicle first",
		f.first.Sub(began).Seconds())
	b.Add("subjects", "records a feed brings a second", "1/s", "one feed, its server on the same processors",
		got/took.Seconds())
	b.Add("subjects", "CPU of a node a record of its feed", "µs",
		"received, checked, unpacked, put into the fleet table", micros(used.Seconds(), got))
	b.Add("subjects", "CPU of the server a record of a feed from the start", "µs", "",
		micros(after["CPU of servers"]-before["CPU of servers"], got))
	b.Add("subjects", "bytes a record on a feed", "B", "as NATS counts: without TCP's and IP's own",
		(after["bytes to clients of servers"]-before["bytes to clients of servers"])/got)
	b.Add("subjects", "memory of a server a vehicle, all read", "B",
		"resident, right after a feed has read all; blocks are released ten seconds later",
		after[fmt.Sprint("memory of server ", at)]/float64(n))
}

// stream returns the information of the servers about a stream. It ends the measurement if there is
// none within five seconds.
func (b *bench) stream(ctx context.Context, name string) *jetstream.StreamInfo {
	nc := must.Get(nats.Connect(b.servers.URLs()))
	defer nc.Close()
	js := must.Get(jetstream.New(nc))
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return must.Get(js.Stream(ctx, name)).CachedInfo()
}
