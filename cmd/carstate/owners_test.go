package main_test

import (
	"bufio"
	"bytes"
	"context"
	crand "crypto/rand"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	ossignal "os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.org/carstate/internal/derive"
	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/cluster"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/clustertest"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

// If set, this test binary is a derive node, with this lease and these URLs.
const ownerVariable = "CARSTATE_TEST_OWNER"

// So each of three nodes gets one, almost certainly.
const ownedPartitions = 32

// With a short lease, events that take many seconds happen often.
func ownedConfig(urls string, lease time.Duration) cluster.Config {
	return cluster.Config{Partitions: ownedPartitions, URLs: urls, Replicas: 3,
		Timeouts: cluster.Timeouts{Try: lease + 500*time.Millisecond, Lease: lease, Beat: lease / 5}}
}

// leaseFor returns a longer one on a disk that cannot store three renewals in time.
const shortestLease = 1500 * time.Millisecond

func leaseFor(t *testing.T, e *cluster.Engine, r *truth) time.Duration {
	t.Helper()
	slowest := time.Duration(0)
	for i := range 10 {
		x := vehicle.Sample{Vehicle: "probe", Time: signal.UnixMilli(1_000_000 + 1000*i)}
		testkit.NoError(t, x.Set(signal.Speed, float64(i)))
		r.sent(x)
		began := time.Now()
		testkit.NoError(t, until(time.Minute, func() error { return e.Append(t.Context(), []vehicle.Sample{x}) }))
		slowest = max(slowest, time.Since(began))
	}
	return max(shortestLease, 10*slowest)
}

// It prints each partition that it takes.
func ownUntilAsked(said string) error {
	length, urls, _ := strings.Cut(said, " ")
	lease, err := time.ParseDuration(length)
	if err != nil {
		return err
	}
	ctx, stop := ossignal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	c := ownedConfig(urls, lease)
	c.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	e, err := cluster.Open(ctx, c)
	if err != nil {
		return err
	}
	name := crand.Text()
	m := derive.NewMembers(name, e.Partitions(), e.Leases(), c.Log)
	d := derive.New(derive.Config{
		Partitions: e.Partitions(), Members: m, Log: c.Log, Records: e,
		Checkpoint: time.Second,
		Release:    func(ctx context.Context, p int) error { return e.Release(ctx, p, name) },
		Take: func(ctx context.Context, p int, states store.Owner) (store.Partition, error) {
			part, err := e.Take(ctx, p, name, states, m.Free)
			if err != nil {
				return nil, err
			}
			fmt.Println("took", p)
			return part, nil
		},
	})
	var running sync.WaitGroup
	running.Go(func() { d.Run(ctx) })
	err = m.Run(ctx)
	running.Wait()
	return errors.Join(err, e.Close())
}

type owners struct {
	t     *testing.T
	lease time.Duration
	said  string // of ownerVariable

	mu      sync.Mutex
	holders [ownedPartitions]*owner // took it last
	takes   int
	changed chan struct{}
}

type owner struct {
	cmd   *exec.Cmd
	log   bytes.Buffer
	ended chan struct{}
}

func (o *owners) start() *owner {
	o.t.Helper()
	self, err := os.Executable()
	testkit.NoError(o.t, err)
	w := &owner{cmd: exec.Command(self), ended: make(chan struct{})}
	w.cmd.Env = append(os.Environ(), ownerVariable+"="+o.said)
	w.cmd.Stderr = &w.log
	out, err := w.cmd.StdoutPipe()
	testkit.NoError(o.t, err)
	testkit.NoError(o.t, w.cmd.Start())
	go func() {
		defer close(w.ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var p int
			if _, err := fmt.Sscanf(lines.Text(), "took %d", &p); err == nil {
				o.mu.Lock()
				o.holders[p] = w
				o.takes++
				o.mu.Unlock()
				select {
				case o.changed <- struct{}{}:
				default:
				}
			}
		}
		_ = w.cmd.Wait() // a signal ends it
	}()
	o.t.Cleanup(func() {
		_ = w.cmd.Process.Kill()
		<-w.ended
		if o.t.Failed() {
			o.t.Logf("log of process %d:\n%s", w.cmd.Process.Pid, &w.log)
		}
	})
	return w
}

func (o *owners) wait(what string, ok func(holders []*owner) bool) {
	o.t.Helper()
	began, late := time.Now(), time.After(90*time.Second+4*o.lease)
	for {
		o.mu.Lock()
		done := ok(o.holders[:])
		o.mu.Unlock()
		if done {
			o.t.Logf("%s after %.1f s", what, time.Since(began).Seconds())
			return
		}
		select {
		case <-o.changed:
		case <-late:
			o.t.Fatalf("%s: got nothing in 90 s and 4 times %s, want it", what, o.lease)
		}
	}
}

func holdsNone(w *owner) func([]*owner) bool {
	return func(holders []*owner) bool { return !slices.Contains(holders, w) && !slices.Contains(holders, nil) }
}

func holdsSome(w *owner) func([]*owner) bool {
	return func(holders []*owner) bool { return slices.Contains(holders, w) && !slices.Contains(holders, nil) }
}

type truth struct {
	mu      sync.Mutex
	states  map[vehicle.ID][]vehicle.State // acknowledged or in flight
	seen    map[vehicle.ID]int             // the newest that the feed delivered
	changed chan struct{}
	updates int
	wrong   []string
}

func (r *truth) sent(x vehicle.Sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.states[x.Vehicle]
	var last vehicle.State
	if len(all) > 0 {
		last = all[len(all)-1]
	}
	r.states[x.Vehicle] = append(all, vehicle.Observe(last, x))
}

// watch asks for the states until ctx ends. Each must result from the samples; a former owner may
// reply with an older one.
func (r *truth) watch(ctx context.Context, e store.Engine) {
	for ; ctx.Err() == nil; _ = periodic.Pause(ctx, 20*time.Millisecond) {
		r.mu.Lock()
		ids := slices.Collect(maps.Keys(r.states))
		r.mu.Unlock()
		for _, id := range ids {
			if s, ok, err := store.State(ctx, e, id); err == nil && ok {
				r.put(id, &s)
			}
		}
	}
}

func (r *truth) put(id vehicle.ID, s *vehicle.State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.updates++
	at := slices.Index(r.states[id], *s)
	if at < 0 {
		r.wrong = append(r.wrong, fmt.Sprintf("%s: after state %d of %d came none of them", id, r.seen[id], len(r.states[id])))
		return
	}
	r.seen[id] = max(r.seen[id], at)
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

func (r *truth) behind() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, all := range r.states {
		// An older state equals the last one if the last sample changed nothing.
		if all[r.seen[id]] != all[len(all)-1] {
			n++
		}
	}
	return n
}

var (
	ownerSeed   = flag.Uint64("owners.seed", 0, "of what happens to the owners; 0: a new one")
	ownerRounds = flag.Int("owners.rounds", 6, "things that happen to the owners")
)

// At random times, processes and NATS servers are paused, killed and ended. Every stored state
// results from the samples, states only advance, and the last is reached.
func TestOwners_NothingLostOrFoldedTwice(t *testing.T) {
	t.Parallel()
	seed := *ownerSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-owners.seed=%d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	servers := clustertest.StartCluster(t)
	e := openCluster(t, ownedConfig(servers.URLs(), shortestLease))
	r := &truth{states: make(map[vehicle.ID][]vehicle.State), seen: make(map[vehicle.ID]int),
		changed: make(chan struct{}, 1)}
	following, stopFollowing := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := e.FollowCursors(following, 0, func() {}); err != nil {
			t.Errorf("FollowCursors: got %v, want no error", err)
		}
	})
	running.Go(func() { r.watch(following, e) })
	t.Cleanup(func() {
		stopFollowing()
		running.Wait()
		r.report(t) // after a failure, too: its cause may show here
	})

	lease := leaseFor(t, e, r)
	t.Logf("a lease is %s", lease)
	o := &owners{t: t, lease: lease, said: lease.String() + " " + servers.URLs(), changed: make(chan struct{}, 1)}
	nodes := []*owner{o.start(), o.start(), o.start()}
	for _, w := range nodes {
		o.wait("every node has partitions", holdsSome(w))
	}

	sending, stopSending := context.WithCancel(t.Context())
	defer stopSending()
	var senders sync.WaitGroup
	for n := range knownSenders {
		senders.Go(func() { sendKnown(sending, t, e, r, n, seed) })
	}

	for round := range *ownerRounds {
		i := rnd.IntN(len(nodes))
		w := nodes[i]
		event := []string{"pause", "pause briefly", "kill", "end", "kill a server", "pause a server"}[(round+int(seed%6))%6]
		t.Logf("round %d: %s", round, event)
		pause := time.After(time.Duration(rnd.Int64N(int64(time.Second))))
		signal := func(s syscall.Signal) {
			testkit.NoError(t, w.cmd.Process.Signal(s))
		}
		switch event {
		case "pause":
			signal(syscall.SIGSTOP)
			o.wait("the others take what a paused node has", holdsNone(w))
			signal(syscall.SIGCONT)
			o.wait("who wakes up gets partitions again", holdsSome(w))
		case "pause briefly":
			signal(syscall.SIGSTOP)
			<-pause
			signal(syscall.SIGCONT)
		case "kill", "end":
			if event == "kill" {
				signal(syscall.SIGKILL)
			} else {
				signal(syscall.SIGTERM)
			}
			<-w.ended
			o.wait("the others take what a node had that is gone", holdsNone(w))
			if code := w.cmd.ProcessState.ExitCode(); event == "end" && code != 0 {
				t.Errorf("a node that ends: got exit code %d, want 0", code)
			}
			nodes[i] = o.start()
			o.wait("a new node gets partitions", holdsSome(nodes[i]))
		case "kill a server":
			n := servers.Leader(codec.States)
			n.Kill()
			<-pause
			n.Start()
		case "pause a server":
			n := servers.Leader(codec.States)
			n.Pause()
			<-pause
			n.Resume()
		}
	}
	stopSending()
	senders.Wait()
	late := time.After(90 * time.Second)
	for r.behind() > 0 {
		select {
		case <-r.changed:
		case <-late:
			t.Fatalf("the vehicles without their last state: got %d of %d, want 0", r.behind(), len(r.states))
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	t.Logf("partitions were taken %d times", o.takes)
}

func (r *truth) report(t *testing.T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.wrong) > 0 {
		t.Errorf("got %d of %d states wrong, want 0:\n%s", len(r.wrong), r.updates,
			strings.Join(r.wrong[:min(10, len(r.wrong))], "\n"))
	}
	samples := 0
	for _, all := range r.states {
		samples += len(all)
	}
	t.Logf("%d samples, %d states", samples, r.updates)
}

const knownSenders = 3

// Every partition has a vehicle, because a paused process notices that it has lost one only when it
// stores something, or after a minute.
func carsOf(sender int) (ids []vehicle.ID) {
	for p := sender; p < ownedPartitions; p += knownSenders {
		for i := 0; ; i++ {
			id := vehicle.ID(fmt.Sprintf("w%dcar%dx%d", sender, p, i))
			if codec.PartitionOf(id, ownedPartitions) == p {
				ids = append(ids, id)
				break
			}
		}
	}
	return ids
}

// sendKnown repeats a batch until it is acknowledged, so the order is known.
func sendKnown(ctx context.Context, t *testing.T, e *cluster.Engine, r *truth, n int, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, uint64(n)+100))
	now := int64(1_000_000)
	ids := carsOf(n)
	for ctx.Err() == nil {
		var batch []vehicle.Sample
		for _, id := range ids {
			now += 1 + rnd.Int64N(500)
			x := vehicle.Sample{Vehicle: id, Time: signal.UnixMilli(now)}
			if err := x.Set(signal.Speed, rnd.Float64()*120); err != nil {
				t.Errorf("a speed: got %v, want no error", err)
				return
			}
			batch = append(batch, x)
			r.sent(x)
		}
		for {
			// A repeated sample changes no state.
			err := e.Append(t.Context(), batch)
			if err == nil {
				break
			}
			if t.Context().Err() != nil {
				return
			}
		}
		_ = periodic.Pause(ctx, 20*time.Millisecond) // the rate of a fleet
	}
}
