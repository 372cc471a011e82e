package nodes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"carstate/internal/nodeprocess"
	"carstate/internal/vehicle"
)

// kind is a way to take a server away and to give it back.
type kind struct {
	name         string
	strike, heal func(c *cluster, server int) error
}

// killed is the kind of loss for which times are promised.
const killed = "killed"

var kinds = []kind{
	{killed,
		func(c *cluster, i int) error { c.servers[i].Kill(); return nil },
		func(c *cluster, i int) error { return c.servers[i].Start() }},
	{"stopped",
		func(c *cluster, i int) error { return c.servers[i].Pause() },
		func(c *cluster, i int) error { return c.servers[i].Resume() }},
	{"cut off",
		func(c *cluster, i int) error { return c.net.pull(i) },
		func(c *cluster, i int) error { return c.net.plug(i) }},
}

const (
	// outageWithin is when writes must be back while a server is away. It only
	// says when to give up; the aim is another.
	outageWithin = 30 * time.Second
	// settleWithin is when all must be as before after the server is back.
	settleWithin = 90 * time.Second
)

// measured is what the disturbances took, the longest of each.
type measured struct {
	by    map[string]*recovery // by kind
	age   time.Duration        // of a copy
	taken time.Duration        // from the stop of an owner until every car's verdict was new
}

// recovery is how long it took to get over the loss of a server.
type recovery struct {
	stall   time.Duration // until writes were acknowledged again
	verdict time.Duration // from then on until every car's verdict was new
	feeds   time.Duration // from when a node could store again until its copy was current
}

// disturb does all disturbances. It ends early with the context.
func (s *system) disturb(ctx context.Context) (measured, error) {
	rnd := rand.New(rand.NewPCG(s.a.Seed, 1))
	m := measured{by: make(map[string]*recovery)}
	var order []kind
	for i := range s.a.Count {
		if len(order) == 0 { // each kind before any comes again
			for _, k := range rnd.Perm(len(kinds)) {
				order = append(order, kinds[k])
			}
		}
		k := order[0]
		order = order[1:]
		if i%3 == 0 {
			if err := s.freeze(ctx, rnd, &m); err != nil {
				return m, err
			}
		}
		// Every other time it is a server on which much depends, for as long as
		// it takes; else any, for a moment or more.
		server := rnd.IntN(servers)
		led, lasting := "", i%2 == 0
		if lasting {
			led = streams[rnd.IntN(3)] // those that are written to all the time
			if err := nodeprocess.Until(ctx, settleWithin, func(ctx context.Context) (err error) {
				server, err = s.cluster.leader(ctx, led)
				return err
			}); err != nil {
				return m, err
			}
			led = ", the leader of " + led + ","
		}
		s.a.Logf("%d of %d: server %d%s is %s", i+1, s.a.Count, server, led, k.name)
		if err := s.strike(ctx, rnd, k, server, lasting, &m); err != nil || ctx.Err() != nil {
			return m, err
		}
	}
	return m, nil
}

// strike takes one server away and gives it back.
func (s *system) strike(ctx context.Context, rnd *rand.Rand, k kind, server int, lasting bool, m *measured) error {
	r := m.by[k.name]
	if r == nil {
		r = new(recovery)
		m.by[k.name] = r
	}
	at := time.Now()
	s.load.stalls.begin(at)
	s.watch.begin()
	if err := k.strike(s.cluster, server); err != nil {
		return err
	}
	struck := time.Now()
	if lasting {
		s.promise(ctx, outageWithin, fmt.Sprintf("while server %d is %s", server, k.name), func() error { return s.load.stalls.flowing(struck) })
		flowing := time.Now()
		s.promise(ctx, outageWithin, fmt.Sprintf("while server %d is %s", server, k.name), func() error { return s.follow.newerThan(vehicle.At(flowing)) })
		r.verdict = max(r.verdict, time.Since(flowing))
		rest(ctx, time.Duration(rnd.Int64N(int64(2*time.Second))))
	} else {
		rest(ctx, 200*time.Millisecond+time.Duration(rnd.Int64N(int64(6*time.Second))))
	}
	if err := k.heal(s.cluster, server); err != nil {
		return err
	}
	s.settle(ctx, fmt.Sprintf("after server %d was %s", server, k.name))
	longest, over := s.load.stalls.worst(time.Now())
	s.a.Logf("writes stood still for %.1f s at most, until %.1f s after; the oldest copy was %.1f s old", longest.Seconds(), over.Sub(at).Seconds(), s.watch.greatestAge().Seconds())
	r.stall = max(r.stall, longest)
	m.age = max(m.age, s.watch.greatestAge())
	if d, ok := s.watch.feedsBehind(); ok {
		r.feeds = max(r.feeds, d)
	}
	return nil
}

// settle waits until all is as it was before.
func (s *system) settle(ctx context.Context, when string) {
	since := time.Now()
	s.promise(ctx, settleWithin, when, func() error {
		if err := s.load.stalls.flowing(since); err != nil {
			return err
		}
		if err := s.follow.newerThan(vehicle.At(since)); err != nil {
			return err
		}
		if err := s.watch.healthy(); err != nil {
			return err
		}
		return s.cluster.whole(ctx)
	})
}

// freeze stops a node that folds until the others have taken what it has, and lets
// it go on.
func (s *system) freeze(ctx context.Context, rnd *rand.Rand, m *measured) error {
	i := rnd.IntN(len(s.nodes))
	s.a.Logf("node %d, which folds, is stopped", i)
	s.watch.begin()
	s.watch.frozen[i].Store(true)
	s.asking.frozen[i].Store(true)
	if err := s.nodes[i].Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	at := time.Now() // before, it might still have folded what is from then on
	s.promise(ctx, outageWithin, fmt.Sprintf("while node %d is stopped", i), func() error { return s.follow.newerThan(vehicle.At(at)) })
	m.taken = max(m.taken, time.Since(at))
	s.a.Logf("its partitions were taken after %.1f s", time.Since(at).Seconds())
	rest(ctx, time.Duration(rnd.Int64N(int64(2*time.Second))))
	if err := s.nodes[i].Signal(syscall.SIGCONT); err != nil {
		return err
	}
	s.watch.frozen[i].Store(false)
	s.settle(ctx, fmt.Sprintf("after node %d was stopped", i))
	s.asking.frozen[i].Store(false)
	return nil
}

// promise waits until something holds, and finds fault if it never does.
func (s *system) promise(ctx context.Context, limit time.Duration, when string, holds func() error) {
	if err := nodeprocess.Until(ctx, limit, func(context.Context) error { return holds() }); err == nil || ctx.Err() != nil {
		return
	}
	if err := holds(); err != nil {
		s.a.Wrong("%s, for %s: %v", when, limit, err)
	}
}

// rest waits, or ends with the context.
func rest(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
