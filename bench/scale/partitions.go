package scale

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"carstate/bench/report"
)

// partitions measures what the number of partitions costs by itself: a node that
// has all of them at rest and under one and the same small load.
func (b *bench) partitions(ctx context.Context) error {
	for _, n := range b.plan.partitions {
		err := b.partitioned(ctx, n)
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			// So many are more than this machine carries, which is a result too.
			b.figure(fmt.Sprint(n, " partitions"), "until the first samples are judged", startLimit.Seconds(), "s, and not all", err.Error())
			err = nil
		}
		if err != nil {
			return fmt.Errorf("%d partitions: %w", n, err)
		}
		b.servers.Wipe()
	}
	return nil
}

func (b *bench) partitioned(ctx context.Context, n int) (err error) {
	subject := fmt.Sprint(n, " partitions")
	began := time.Now()
	r, err := b.start(ctx, b.streams(copies, n), map[string]string{"node": "query,ingest,derive,admin"})
	if err != nil {
		return err
	}
	defer r.kill()
	node := r.nodes["node"]
	r.cars.Node, r.derive = node, node
	if err := r.source(ctx); err != nil {
		return err
	}
	if err := r.cars.Drive(ctx, n, 0, n); err != nil {
		return err
	}
	if err := r.drained(ctx); err != nil {
		return err
	}
	b.figure(subject, "until the first samples are judged", time.Since(began).Seconds(), "s", "from the start of the node that makes the streams; as many cars as partitions")

	rest, err := r.during(ctx, func() error { return pause(ctx, b.plan.slow) })
	if err != nil {
		return err
	}
	b.figure(subject, "CPU of the nodes, nothing sent", 100*rest.nodes["node"].Seconds()/rest.took.Seconds(), "% of a core", "")
	b.figure(subject, "CPU of the servers, nothing sent", 100*all(rest.servers).cpu.Seconds()/rest.took.Seconds(), "% of a core", "all three")
	resident, err := node.Resident()
	if err != nil {
		return err
	}
	b.figure(subject, "memory of a node", float64(resident)/1e6, "MB", "")
	b.figure(subject, "memory of a server", float64(all(rest.servers).resident)/copies/1e6, "MB", "mean of three")

	c := r.config
	c.DataDir = filepath.Join(b.Dir, "follower")
	f, err := follow(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	l := newLags()
	f.measure(l)
	samples := int(b.plan.load * b.plan.slow.Seconds())
	load, err := r.during(ctx, func() error {
		if err := r.cars.Drive(ctx, 100*n, b.plan.load, samples); err != nil {
			return err
		}
		return r.drained(ctx)
	})
	f.measure(nil)
	if err != nil {
		return err
	}
	b.figure(subject, "samples a second", b.plan.load, "1/s", "over all partitions")
	b.figure(subject, "CPU of all a sample", micros(load.all(), float64(samples)), "µs", "the node and the three servers")
	b.figure(subject, "lag, p50", report.Quantile(l.ms, 0.5), "ms", "from when a sample was due until its state was in a fleet table")
	b.figure(subject, "lag, p99", report.Quantile(l.ms, 0.99), "ms", "from when a sample was due until its state was in a fleet table")
	b.figure(subject, "samples a group commit", float64(samples)/load.commits, "", "")
	b.figure(subject, "states a fold", load.states/load.folds, "", "")
	return nil
}

// pause waits. What is measured meanwhile is what costs without any work.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
