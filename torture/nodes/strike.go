package nodes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"carstate/internal/nodeprocess"
	"carstate/internal/vehicle"
	"carstate/torture/row"
)

// kind is a way to take a server away and to give it back.
type kind struct {
	name         string
	strike, heal func(c *natsCluster, server int) error
}

// killed is the kind of loss for which times are promised.
const killed = "killed"

var kinds = []kind{
	{killed,
		func(c *natsCluster, i int) error { c.servers[i].Kill(); return nil },
		func(c *natsCluster, i int) error { return c.servers[i].Start() }},
	{"stopped",
		func(c *natsCluster, i int) error { return c.servers[i].Pause() },
		func(c *natsCluster, i int) error { return c.servers[i].Resume() }},
	{"cut off",
		func(c *natsCluster, i int) error { return c.net.pull(i) },
		func(c *natsCluster, i int) error { return c.net.plug(i) }},
}

const (
	// outageWithin is when writes must be back while a server is away. It only
	// says when to give up; the aim is another.
	outageWithin = 30 * time.Second
	// settleWithin is when all must be as before after the server is back.
	settleWithin = 90 * time.Second
)

// turn is one disturbance.
type turn struct {
	kind
	lasting bool // it is a server on which much depends, for as long as it takes; else any, for a moment or more
	freeze  bool // a node that folds is stopped before
}

// plan is the order of the disturbances: each kind before any comes again, and every
// other one lasts. The first is one for which times are promised, so that they are
// measured however few there are.
func plan(rnd *rand.Rand, n int) (turns []turn) {
	var order []int
	for i := range n {
		if len(order) == 0 {
			order = rnd.Perm(len(kinds))
			if i == 0 {
				first := slices.IndexFunc(order, func(k int) bool { return kinds[k].name == killed })
				order[0], order[first] = order[first], order[0]
			}
		}
		turns = append(turns, turn{kind: kinds[order[0]], lasting: i%2 == 0, freeze: i%3 == 0})
		order = order[1:]
	}
	return turns
}

// disturb does all disturbances. It ends early with the context.
func (s *system) disturb(ctx context.Context) (*measured, error) {
	rnd := rand.New(rand.NewPCG(s.a.Seed, 1))
	m := newMeasured()
	for i, t := range plan(rnd, s.a.Count) {
		if t.freeze {
			if err := s.freeze(ctx, rnd, m); err != nil {
				return m, err
			}
		}
		server, led := rnd.IntN(servers), ""
		if t.lasting {
			led = streams[rnd.IntN(3)] // those that are written to all the time
			var err error
			if server, err = s.cluster.leader(ctx, led); err != nil {
				return m, err
			}
			led = ", the leader of " + led + ","
		}
		s.a.Logf("%d of %d: server %d%s is %s", i+1, s.a.Count, server, led, t.name)
		if err := s.strike(ctx, rnd, t, server, m); err != nil || ctx.Err() != nil {
			return m, err
		}
	}
	return m, nil
}

// strike takes one server away and gives it back.
func (s *system) strike(ctx context.Context, rnd *rand.Rand, t turn, server int, m *measured) error {
	r := m.by[t.name]
	at := time.Now()
	s.load.Begin(at)
	s.follow.begin()
	s.watch.begin()
	if err := t.strike(s.cluster, server); err != nil {
		return err
	}
	if t.lasting {
		s.outlast(ctx, fmt.Sprintf("while server %d is %s", server, t.name), time.Now(), r)
		row.Pause(ctx, time.Duration(rnd.Int64N(int64(2*time.Second))))
	} else {
		row.Pause(ctx, 200*time.Millisecond+time.Duration(rnd.Int64N(int64(6*time.Second))))
	}
	if err := t.heal(s.cluster, server); err != nil {
		return err
	}
	s.settle(ctx, fmt.Sprintf("after server %d was %s", server, t.name))
	stood, over := s.load.Worst(time.Now())
	s.a.Logf("writes stood still for %.1f s at most, until %.1f s after; the oldest copy was %.1f s old", stood.Seconds(), over.Sub(at).Seconds(), s.watch.greatestAge().Seconds())
	r.stall.take(stood)
	m.age = max(m.age, s.watch.greatestAge())
	if d, ok := s.watch.feedsBehind(); ok {
		r.feeds.take(d)
	}
	return nil
}

// outlast waits until all goes on without the server that was struck, which is once
// every stream has a leader. Right after the blow something may still be acknowledged,
// where another server leads the telemetry and until the nodes notice that the rest
// cannot be stored: verdicts are waited for from the end of the writers' longest wait.
func (s *system) outlast(ctx context.Context, when string, struck time.Time, r *recovery) {
	var led time.Time
	s.promise(ctx, outageWithin, when, func() error {
		if led.IsZero() {
			if err := s.cluster.led(ctx); err != nil {
				return cmp.Or(s.load.Flowing(struck), err)
			}
			led = time.Now()
		}
		return s.load.Flowing(led)
	})
	_, over := s.load.Worst(time.Now())
	flowing := time.Now()
	s.promise(ctx, outageWithin, when, func() error { return s.follow.newerThan(vehicle.At(flowing)) })
	judged := s.follow.renewed(vehicle.At(over))
	if judged.IsZero() {
		return // which is found fault with already
	}
	r.verdict.take(judged.Sub(over))
	s.a.Logf("writes are acknowledged again after %.1f s, and every car had a new verdict %.1f s after that", over.Sub(struck).Seconds(), judged.Sub(over).Seconds())
}

// settle waits until all is as it was before.
func (s *system) settle(ctx context.Context, when string) {
	since := time.Now()
	s.promise(ctx, settleWithin, when, func() error {
		if err := s.load.Flowing(since); err != nil {
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
	i, err := s.owner(ctx, rnd)
	if err != nil {
		return err
	}
	s.a.Logf("node %d, which folds, is stopped", i)
	s.watch.begin()
	s.watch.frozen[i].Store(true)
	s.asking.frozen[i].Store(true)
	if err := s.nodes[i].Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	at := time.Now() // before, it might still have folded what is from then on
	s.promise(ctx, outageWithin, fmt.Sprintf("while node %d is stopped", i), func() error { return s.follow.newerThan(vehicle.At(at)) })
	m.taken.take(time.Since(at))
	s.a.Logf("its partitions were taken after %.1f s", time.Since(at).Seconds())
	row.Pause(ctx, time.Duration(rnd.Int64N(int64(2*time.Second))))
	if err := s.nodes[i].Signal(syscall.SIGCONT); err != nil {
		return err
	}
	s.watch.frozen[i].Store(false)
	s.settle(ctx, fmt.Sprintf("after node %d was stopped", i))
	s.asking.frozen[i].Store(false)
	return nil
}

// owner draws a node that has partitions to fold.
func (s *system) owner(ctx context.Context, rnd *rand.Rand) (node int, err error) {
	for _, node = range rnd.Perm(len(s.nodes)) {
		m, err := s.nodes[node].Metrics(ctx)
		if err != nil || m["carstate_fold_partitions"] > 0 {
			return node, err
		}
	}
	return 0, errors.New("no node has a partition to fold")
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
