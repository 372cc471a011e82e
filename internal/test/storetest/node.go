package storetest

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/road"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

// Node is a node like those of the service: it follows all feeds. In addition, a test can make it
// fold (see FoldAll).
type Node struct {
	store.Engine
	*store.RecordStore
	Tables *access.Tables
	Roads  road.Map
	Stop   func() // closes the engine; further calls do nothing

	mu    sync.Mutex // guards table
	table map[vehicle.ID]vehicle.State
}

// Start runs a node on an engine until the test ends, and then closes the engine. It returns once
// all feeds have caught up.
func Start(t testing.TB, e store.Engine, c store.Config) *Node {
	t.Helper()
	n := &Node{Engine: e, Tables: new(access.Tables), table: make(map[vehicle.ID]vehicle.State)}
	n.RecordStore = store.NewRecordStore(e, c, n.Tables)
	states := func(ctx context.Context, caughtUp func()) error { return e.FollowStates(ctx, n.put, caughtUp) }
	stop := follow(t, n.RunTokens, n.RunSources, states)
	n.Stop = sync.OnceFunc(func() {
		stop()
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(n.Stop)
	return n
}

// follow runs feeds, and returns once all have caught up. stop ends them and waits until they have
// ended. An error of a feed fails the test.
func follow(t testing.TB, feeds ...func(ctx context.Context, caughtUp func()) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running, ready sync.WaitGroup
	ready.Add(len(feeds))
	for _, run := range feeds {
		running.Go(func() {
			if err := run(ctx, ready.Done); err != nil {
				t.Error(err)
			}
		})
	}
	ready.Wait()
	return func() { cancel(); running.Wait() }
}

func (n *Node) put(id vehicle.ID, s *vehicle.State) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if *s == (vehicle.State{}) {
		delete(n.table, id)
	} else {
		n.table[id] = *s
	}
}

// Knows reports whether the node's own table, which follows the stored states, has a state of a
// vehicle.
func (n *Node) Knows(id vehicle.ID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.table[id]
	return ok
}

// StateOf returns the stored state of a vehicle, and whether there is one.
func (n *Node) StateOf(t testing.TB, id vehicle.ID) (vehicle.State, bool) {
	t.Helper()
	s, ok, err := store.State(t.Context(), n.Engine, id)
	testkit.NoError(t, err)
	return s, ok
}

// Put appends samples, and fails the test if that fails.
func (n *Node) Put(t testing.TB, samples ...vehicle.Sample) {
	t.Helper()
	testkit.NoError(t, n.Append(t.Context(), samples))
}

// FoldAll folds all waiting samples of a partition into states. To know when it has folded all, it
// first appends a sample of an extra vehicle, and folds until that sample arrives. It stores no
// state for the extra vehicle.
func (n *Node) FoldAll(t testing.TB, p int) {
	t.Helper()
	part := Take(t, n.Engine, p)
	defer part.Close()
	stored, last := Loaded(t, part), inPartition(p, n.Partitions())
	n.Put(t, Speed(last, time.Now().UnixNano(), 0))
	for end := false; !end; {
		seq, samples, err := part.Next(t.Context())
		testkit.NoError(t, err)
		states := make(map[vehicle.ID]vehicle.State)
		for _, x := range samples {
			if x.Vehicle == last {
				end = true
				continue
			}
			s, ok := states[x.Vehicle]
			if !ok {
				s = stored[x.Vehicle]
			}
			states[x.Vehicle] = n.Roads.Observe(s, x)
		}
		folded := Pointers(states)
		for id, s := range folded {
			part.Answer(id, s)
		}
		testkit.NoError(t, part.Commit(t.Context(), seq, Packed(folded), false))
		maps.Copy(stored, states)
	}
}

// Drive appends a sample of each vehicle, with a speed of 50 km/h at the time at, in Unix
// milliseconds, and folds all partitions.
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

// Token issues a token for the vehicles v, as [Issue] does.
func (n *Node) Token(t testing.TB, v access.Vehicles) access.Credential {
	t.Helper()
	tok, _ := Issue(t, n.RecordStore, v)
	return tok
}

// EndOf ends a credential: it revokes a token, or removes a source or an operator.
func (n *Node) EndOf(t testing.TB, kind access.Kind, name string) {
	t.Helper()
	update(t, n.RecordStore, kind, name, end)
}

// end ends a credential, as a change for [store.RecordStore.Update].
func end(c *access.Credential) error { c.Ended = time.Now(); return nil }

// MustForget forgets a vehicle, and fails the test if that fails.
func (n *Node) MustForget(t testing.TB, id vehicle.ID) access.ForgetReceipt {
	t.Helper()
	r, err := n.Forget(t.Context(), id)
	testkit.NoError(t, err)
	return r
}

// allow allows a vehicle again, and fails the test if that fails.
func allow(t testing.TB, k *store.RecordStore, id vehicle.ID) {
	t.Helper()
	_, err := k.Allow(t.Context(), id)
	testkit.NoError(t, err)
}

// SecretVID is the vid of the vehicle that the tests forget.
const SecretVID = vehicle.ID("ForgetMe0f7Q2")

// GrantAll stores tokens and sources whose grants include SecretVID, one for each way in which a
// grant can be stored: in the credential's record, in set records, and as all vehicles. One source
// is removed again. GrantAll returns the names of the tokens.
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
	// The set shrinks, which leaves emptied set records.
	update(t, n.RecordStore, access.TokenKind, ids[2], grants(many[:1000]...))
	for name, v := range map[string]access.Vehicles{
		"few": access.VehicleSet(many[:2]...), "many": access.VehicleSet(many...),
		"gone": access.VehicleSet(SecretVID), "all": access.AllVehicles(),
	} {
		create(t, n.RecordStore, access.Request{Kind: access.SourceKind, Name: name, Vehicles: v})
	}
	n.EndOf(t, access.SourceKind, "gone")
	return ids
}

// Grants returns the number of tokens and the number of sources whose grant names SecretVID.
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

// Take takes partition p from any owner, so that the test owns it.
func Take(t testing.TB, e store.Engine, p int) store.Partition {
	t.Helper()
	return takeAs(t, e, p, "test")
}

// takeAs makes owner the owner of partition p and takes it from any other owner.
func takeAs(t testing.TB, e store.Engine, p int, owner string) store.Partition {
	t.Helper()
	part, err := e.Take(t.Context(), p, owner, store.Anyone)
	testkit.NoError(t, err)
	return part
}

// storeRecord stores a record with the given body.
func storeRecord(t testing.TB, e store.Engine, stream, subject string, body []byte) {
	t.Helper()
	sealed := codec.Seal(subject, append([]byte{0}, body...))
	_, err := e.Store(t.Context(), stream, []store.Write{{Subject: subject, Record: sealed}})
	testkit.NoError(t, err)
}

// Speed returns a sample with a vehicle's speed kmh (km/h) at the time at, in Unix milliseconds.
func Speed(id vehicle.ID, at int64, kmh float64) vehicle.Sample {
	x := vehicle.Sample{Vehicle: id, Time: vehicle.UnixMilli(at)}
	if err := x.Set(vehicle.Speed, kmh); err != nil {
		panic(err)
	}
	return x
}

// inPartition returns the vid of some vehicle that belongs to partition p.
func inPartition(p, partitions int) vehicle.ID {
	for i := 0; ; i++ {
		if id := vehicle.ID(fmt.Sprintf("LastOfAll%d", i)); codec.PartitionOf(id, partitions) == p {
			return id
		}
	}
}

// Pointers returns states in the form that [store.Partition.Commit] takes.
func Pointers(states map[vehicle.ID]vehicle.State) map[vehicle.ID]*vehicle.State {
	pointers := make(map[vehicle.ID]*vehicle.State, len(states))
	for id, s := range states {
		pointers[id] = &s
	}
	return pointers
}

// Packed returns states as [store.Partition.Commit] takes them.
func Packed(states map[vehicle.ID]*vehicle.State) map[vehicle.ID][]byte {
	packed := make(map[vehicle.ID][]byte, len(states))
	for id, s := range states {
		packed[id] = codec.AppendState(nil, s)
	}
	return packed
}

// Loaded returns the states of a partition that its owner loads.
func Loaded(t testing.TB, p store.Partition) map[vehicle.ID]vehicle.State {
	t.Helper()
	states := make(map[vehicle.ID]vehicle.State)
	testkit.NoError(t, p.States(t.Context(), func(id vehicle.ID, packed []byte, _ uint64) {
		s, err := codec.DecodeState(packed)
		testkit.NoError(t, err)
		states[id] = s
	}))
	return states
}

// StoredStates returns the stored states of a partition.
func StoredStates(t testing.TB, e store.Engine, p int) map[vehicle.ID]vehicle.State {
	t.Helper()
	states := make(map[vehicle.ID]vehicle.State)
	err := e.Scan(t.Context(), codec.States, []string{codec.StateSubject(p, "*")}, func(r store.Record) error {
		id, ok := codec.VehicleOfState(r.Subject)
		if !ok || codec.IsMarker(r.Body) {
			return nil
		}
		s, err := codec.DecodeState(r.Body)
		states[id] = s
		return err
	})
	testkit.NoError(t, err)
	return states
}

// Open opens an engine, which the test must close. Engines that are opened one after the other with
// the same DataDir share a store. Otherwise each engine has a store of its own.
type Open func(t testing.TB, c store.Config) store.Engine

// opened opens an engine and closes it when the test ends.
func opened(t testing.TB, open Open, c store.Config) store.Engine {
	t.Helper()
	return testkit.Opened(t, open(t, c), nil)
}
