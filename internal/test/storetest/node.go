package storetest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/derive"
	"example.org/carstate/internal/road"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/backup"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

// Node follows all feeds and answers, and folds the partitions that no other node has taken.
type Node struct {
	store.Engine
	*backup.Service
	Tables *access.Tables
	Roads  road.Map
	Stop   func() // ends the node and closes the engine; further calls do nothing
	Leave  func() // releases the partitions
	open   func(t testing.TB) store.Engine
	config store.Config

	mu    sync.Mutex // guards table
	table map[vehicle.ID]store.Answer
}

// Start returns once all feeds have caught up and all partitions have an owner. The node and the
// engine end with the test.
func Start(t testing.TB, e store.Engine, c store.Config) *Node {
	t.Helper()
	n := &Node{Engine: e, Tables: new(access.Tables), table: make(map[vehicle.ID]store.Answer)}
	n.Service = backup.New(store.NewRecordStore(e, c, n.Tables), e, c, n.Tables)
	n.Leave = Fold(e, n.RecordStore, &n.Roads)
	answers := func(ctx context.Context, caughtUp func()) error { return e.FollowAnswers(ctx, n.put, caughtUp) }
	stop := follow(t, n.Tokens.Run, n.Sources.Run, answers)
	n.Stop = sync.OnceFunc(func() {
		n.Leave()
		stop()
		if err := e.Close(); err != nil {
			t.Errorf("Close: got %v, want no error", err)
		}
	})
	t.Cleanup(n.Stop)
	return n
}

// restarted returns another node with the same data.
func (n *Node) restarted(t testing.TB) *Node {
	t.Helper()
	n.Stop()
	again := Start(t, n.open(t), n.config)
	again.open, again.config = n.open, n.config
	return again
}

// Fold folds the partitions that have no owner, until stop releases them.
func Fold(e store.Engine, k *store.RecordStore, m *road.Map) (stop func()) {
	name := rand.Text()
	d := derive.New(derive.Config{
		Partitions: e.Partitions(), Fold: m.Fold, Records: e,
		Covers: k.Covers, Gone: k.Gone,
		Take: func(ctx context.Context, p int, owner store.Owner) (store.Partition, error) {
			return e.Take(ctx, p, name, owner, func(holder string) bool { return holder == "" || holder == name })
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { d.Run(ctx) })
	return sync.OnceFunc(func() {
		cancel()
		running.Wait()
		releasing, cancel := context.WithTimeout(context.Background(), testkit.Patience)
		defer cancel()
		for p := range e.Partitions() {
			_ = e.Release(releasing, p, name) // fails if the store is gone
		}
	})
}

// follow returns once all feeds have caught up. An error of a feed fails the test.
func follow(t testing.TB, feeds ...func(ctx context.Context, caughtUp func()) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running, ready sync.WaitGroup
	ready.Add(len(feeds))
	for _, run := range feeds {
		running.Go(func() {
			if err := run(ctx, ready.Done); err != nil {
				t.Errorf("a feed: got %v, want no error", err)
			}
		})
	}
	ready.Wait()
	return func() { cancel(); running.Wait() }
}

func (n *Node) put(id vehicle.ID, a *store.Answer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if *a == (store.Answer{}) {
		delete(n.table, id)
	} else {
		n.table[id] = *a
	}
}

// Knows is about the node's own table, which follows the answers.
func (n *Node) Knows(id vehicle.ID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.table[id]
	return ok
}

// StateOf waits while no node owns the partition.
func (n *Node) StateOf(t testing.TB, id vehicle.ID) (s vehicle.State, ok bool) {
	t.Helper()
	testkit.Await(t, "an owner replies", func() bool {
		var err error
		s, ok, err = store.State(t.Context(), n.Engine, id)
		if err != nil && !errors.Is(err, store.ErrNoOwner) {
			t.Fatalf("the state of %s: got %v, want a reply", id, err)
		}
		return err == nil
	})
	return s, ok
}

func (n *Node) Put(t testing.TB, samples ...vehicle.Sample) {
	t.Helper()
	testkit.NoError(t, n.Append(t.Context(), samples))
}

// FoldAll waits until the partition's samples that were stored before are folded: until one of an
// extra vehicle is, which is then dropped.
func (n *Node) FoldAll(t testing.TB, p int) {
	t.Helper()
	last := inPartition(p, n.Partitions())
	n.Put(t, Speed(last, time.Now().UnixMilli(), 0))
	testkit.Await(t, "all samples are folded", func() bool {
		_, ok := n.StateOf(t, last)
		return ok
	})
	_, err := n.Ask(t.Context(), p, &store.Question{Kind: store.AskDrop, Vehicle: last})
	testkit.NoError(t, err)
}

// Drive appends and folds a sample of each vehicle: 50 km/h at the time at, in Unix milliseconds.
func (n *Node) Drive(t testing.TB, at int64, ids ...vehicle.ID) {
	t.Helper()
	var batch []vehicle.Sample
	for _, id := range ids {
		batch = append(batch, Speed(id, at, 50))
	}
	n.Put(t, batch...)
	for p := range n.Partitions() {
		n.FoldAll(t, p)
	}
}

func (n *Node) Token(t testing.TB, v access.Vehicles) access.Credential {
	t.Helper()
	tok, _ := Issue(t, n.RecordStore, v)
	return tok
}

func (n *Node) EndOf(t testing.TB, kind access.Kind, name string) {
	t.Helper()
	update(t, n.RecordStore, kind, name, end)
}

func end(c *access.Credential) error { c.Ended = time.Now(); return nil }

func (n *Node) MustForget(t testing.TB, id vehicle.ID) access.ForgetReceipt {
	t.Helper()
	r, err := n.Forget(t.Context(), id)
	testkit.NoError(t, err)
	return r
}

// Erase lets time pass on the clock of the node, by the hour, until all forgotten vehicles are erased.
func (n *Node) Erase(t testing.TB, clock *testkit.Clock) {
	t.Helper()
	testkit.Await(t, "the forgotten vehicles are erased", func() bool {
		clock.Advance(time.Hour)
		_, err := n.AskOwners(t.Context(), store.AskCheckpoint)
		testkit.NoError(t, errors.Join(err, n.EraseDue(t.Context())))
		return !slices.ContainsFunc(n.Forgotten().All(), access.Tombstone.Covers)
	})
}

func (n *Node) MustAllow(t testing.TB, id vehicle.ID) {
	t.Helper()
	_, err := n.Allow(t.Context(), id)
	testkit.NoError(t, err)
}

const SecretVID = vehicle.ID("ForgetMe0f7Q2")

// GrantAll stores tokens and sources whose grants include SecretVID in each way in which a grant
// can be stored: in the credential's record, in set records, and as all vehicles. One source is
// removed again.
func (n *Node) GrantAll(t testing.TB) (ids []string) {
	t.Helper()
	many := []vehicle.ID{SecretVID}
	for i := range 2000 { // more than fit into one set record
		many = append(many, vehicle.ID(fmt.Sprintf("Car%04d", i)+strings.Repeat("x", 240)))
	}
	for _, v := range []access.Vehicles{
		access.VehicleSet(SecretVID), access.VehicleSet(many[:10]...), access.VehicleSet(many...),
		access.AllVehicles(),
	} {
		ids = append(ids, n.Token(t, v).Name)
	}
	// The set shrinks, which leaves empty set records.
	update(t, n.RecordStore, access.TokenKind, ids[2], grants(many[:1000]...))
	for name, v := range map[string]access.Vehicles{
		"few": access.VehicleSet(many[:2]...), "many": access.VehicleSet(many...),
		"gone": access.VehicleSet(SecretVID), "all": access.AllVehicles(),
	} {
		create(t, n.RecordStore, access.Credential{Kind: access.SourceKind, Name: name, Vehicles: v})
	}
	n.EndOf(t, access.SourceKind, "gone")
	return ids
}

// Grants counts the tokens and sources whose grant names SecretVID.
func (n *Node) Grants() (tokens, sources int) {
	count := func(all []*access.Grant) (found int) {
		for _, g := range all {
			if !g.Vehicles.All() && g.Vehicles.Include(SecretVID) {
				found++
			}
		}
		return found
	}
	return count(n.Tables.Tokens.All()), count(n.Tables.Sources.All())
}

// Empty is an owner that has no states.
func Empty(context.Context, *store.Question) (store.Reply, error) { return store.Reply{}, nil }

// Take takes a partition from any owner, for the test.
func Take(t testing.TB, e store.Engine, p int) store.Partition {
	t.Helper()
	return takeAs(t, e, p, "test")
}

// takeAs takes p from any owner. Next returns all telemetry after the last checkpoint.
func takeAs(t testing.TB, e store.Engine, p int, owner string) store.Partition {
	t.Helper()
	part, err := e.Take(t.Context(), p, owner, Empty, store.Anyone)
	testkit.NoError(t, err)
	var last store.Checkpoint
	if all, _ := part.Stored(); len(all) > 0 {
		last = all[len(all)-1]
	}
	testkit.NoError(t, part.Seek(t.Context(), last))
	return part
}

func storeRecord(t testing.TB, e store.Engine, stream, subject string, body []byte) {
	t.Helper()
	sealed := codec.Seal(subject, append([]byte{0}, body...))
	_, err := e.Store(t.Context(), stream, []store.Write{{Subject: subject, Record: sealed}})
	testkit.NoError(t, err)
}

// at is in Unix milliseconds.
func Speed(id vehicle.ID, at int64, kmh float64) vehicle.Sample {
	x := vehicle.Sample{Vehicle: id, Time: signal.UnixMilli(at)}
	if err := x.Set(signal.Speed, kmh); err != nil {
		panic(err)
	}
	return x
}

// inPartition returns some vid.
func inPartition(p, partitions int) vehicle.ID {
	for i := 0; ; i++ {
		if id := vehicle.ID(fmt.Sprintf("LastOfAll%d", i)); codec.PartitionOf(id, partitions) == p {
			return id
		}
	}
}

// The test must close what Open opens. Engines opened one after the other with the same DataDir
// share a store; others do not.
type Open func(t testing.TB, c store.Config) store.Engine

func opened(t testing.TB, open Open, c store.Config) store.Engine {
	t.Helper()
	return testkit.Opened(t, open(t, c), nil)
}
