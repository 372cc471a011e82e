package cluster

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"carstate/internal/access"
	"carstate/internal/road"
	"carstate/internal/store"
	"carstate/internal/store/codec"
	"carstate/internal/testkit"
	"carstate/internal/vehicle"
)

// A node as the service runs one: its copies follow, and it may fold.
type forgetNode struct {
	*Engine
	*Keeper

	roads road.Map
	stop  func() // once

	mu    sync.Mutex // guards table
	table map[vehicle.ID]vehicle.State
}

func (n *forgetNode) knows(id vehicle.ID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.table[id]
	return ok
}

func startNode(t *testing.T, c Config) *forgetNode {
	t.Helper()
	e, err := Open(t.Context(), patient(c))
	if err != nil {
		t.Fatal(err)
	}
	n := &forgetNode{Engine: e, Keeper: e.NewKeeper(new(access.Tables)), table: make(map[vehicle.ID]vehicle.State)}
	ctx, cancel := context.WithCancel(context.Background())
	var running, ready sync.WaitGroup
	ready.Add(3)
	for _, run := range []func() error{
		func() error { return n.RunTokens(ctx, ready.Done) },
		func() error { return n.RunSources(ctx, ready.Done) },
		func() error {
			return e.FollowStates(ctx, func(id vehicle.ID, s vehicle.State) {
				n.mu.Lock()
				defer n.mu.Unlock()
				if s == (vehicle.State{}) {
					delete(n.table, id)
				} else {
					n.table[id] = s
				}
			}, ready.Done)
		},
	} {
		running.Go(func() {
			if err := run(); err != nil {
				t.Error(err)
			}
		})
	}
	n.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(n.stop)
	ready.Wait()
	return n
}

func speedSample(id vehicle.ID, at int64) vehicle.Sample {
	x := vehicle.Sample{Vehicle: id, Time: vehicle.UnixMilli(at)}
	if err := x.Set(vehicle.Speed, 50); err != nil {
		panic(err)
	}
	return x
}

// placedSample is [speedSample] with a position and a direction.
func placedSample(id vehicle.ID, at int64) vehicle.Sample {
	x := speedSample(id, at)
	if err := errors.Join(x.Set(vehicle.CurrentLatitude, secretLatitude), x.Set(vehicle.CurrentLongitude, secretLongitude), x.Set(vehicle.CurrentHeading, 90)); err != nil {
		panic(err)
	}
	return x
}

// foldAll folds a partition until all samples there are now are folded.
func (n *forgetNode) foldAll(t *testing.T, p int) {
	t.Helper()
	part, err := n.Take(t.Context(), p, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer part.Close()
	s, err := n.js.Stream(t.Context(), Telemetry)
	if err != nil {
		t.Fatal(err)
	}
	for {
		m, err := firstCommit(t.Context(), s, p, part.next)
		if err != nil {
			t.Fatal(err)
		}
		if m == nil {
			return
		}
		seq, samples, err := part.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		states := make(map[vehicle.ID]vehicle.State)
		for _, x := range samples {
			s, ok := states[x.Vehicle]
			if !ok {
				if s, _, err = n.State(t.Context(), x.Vehicle); err != nil {
					t.Fatal(err)
				}
			}
			states[x.Vehicle] = n.roads.Observe(s, x)
		}
		if err := part.Commit(t.Context(), seq, states); err != nil {
			t.Fatal(err)
		}
	}
}

func (n *forgetNode) append(t *testing.T, samples ...vehicle.Sample) {
	t.Helper()
	if err := n.Append(t.Context(), samples); err != nil {
		t.Fatal(err)
	}
}

// The vehicle to forget, and where it was.
const (
	secretVID                       = vehicle.ID("ForgetMe0f7Q2")
	secretLatitude, secretLongitude = 44.4979, 11.3426
)

// grantAll grants the vehicle in every way there is, and returns the tokens.
func grantAll(t *testing.T, n *forgetNode) (ids []string) {
	t.Helper()
	many := []vehicle.ID{secretVID}
	for i := range 2000 { // more than one set record holds
		many = append(many, vehicle.ID(fmt.Sprintf("Car%04d", i)+strings.Repeat("x", 240)))
	}
	for _, v := range []access.Vehicles{access.VehicleSet(secretVID), access.VehicleSet(many[:10]...), access.VehicleSet(many...), access.AllVehicles()} {
		tok, _, err := access.Issue(access.TokenRequest{Developer: "Ada", Operations: access.AllOperations, Vehicles: v}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Create(t.Context(), tok); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, tok.Name)
	}
	// A set that has shrunk leaves parts behind.
	if _, err := n.Update(t.Context(), access.TokenKind, ids[2], func(t *access.Credential) error { t.Vehicles = access.VehicleSet(many[:1000]...); return nil }); err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]access.Vehicles{"few": access.VehicleSet(many[:2]...), "many": access.VehicleSet(many...), "gone": access.VehicleSet(secretVID), "all": access.AllVehicles()} {
		s, _, err := access.AddSource(name, v, time.Time{}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := n.Update(t.Context(), access.SourceKind, "gone", func(s *access.Credential) error { s.Ended = time.Now(); return nil }); err != nil {
		t.Fatal(err)
	}
	return ids
}

func (n *forgetNode) grants() (tokens, sources int) {
	for _, g := range n.tables.Tokens.All() {
		if !g.Vehicles.All() && g.Vehicles.Include(secretVID) {
			tokens++
		}
	}
	for _, s := range n.tables.Sources.All() {
		if !s.Vehicles.All() && s.Vehicles.Include(secretVID) {
			sources++
		}
	}
	return tokens, sources
}

// Two nodes on one cluster: what one forgets, both have forgotten; a fold that is
// under way on the other does not bring it back, nor do samples that wait.
func TestForgetOnEveryNode(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	url := startNATS(t)
	a := startNode(t, Config{URLs: url, Partitions: 4})
	b := startNode(t, Config{URLs: url})
	p := codec.PartitionOf(secretVID, 4)
	grantAll(t, a)
	a.append(t, speedSample(secretVID, 1000), speedSample("Other1", 1000))
	for q := range 4 {
		b.foldAll(t, q)
	}
	testkit.Await(t, "both know the vehicle", func() bool { return a.knows(secretVID) && b.knows(secretVID) })
	testkit.Await(t, "both know the grants", func() bool { tokens, sources := b.grants(); return tokens == 3 && sources == 3 })

	// A fold on b is under way: it has read the sample and not stored the state.
	a.append(t, speedSample(secretVID, 2000))
	part, err := b.Take(t.Context(), p, "b")
	if err != nil {
		t.Fatal(err)
	}
	seq, samples, err := part.Next(t.Context())
	if err != nil || len(samples) != 1 {
		t.Fatalf("%v, %v", samples, err)
	}
	// And some wait.
	a.append(t, speedSample(secretVID, 3000))

	r, err := a.Forget(t.Context(), secretVID)
	if err != nil {
		t.Fatal(err)
	}
	if want := (access.RemovedCount{States: 1, TokenGrants: 3, SourceGrants: 3}); r.Removed != want || (r.ErasedBy != nil) != (a.server != nil) || r.AllowedAt != nil {
		t.Errorf("%+v, want %+v", r, want)
	}
	if text, _ := json.Marshal(r); bytes.Contains(text, []byte(secretVID)) {
		t.Errorf("the receipt names the vehicle: %s", text)
	}
	if a.knows(secretVID) {
		t.Error("the node that was asked still knows the vehicle")
	}
	if _, ok, err := a.State(t.Context(), secretVID); ok || err != nil {
		t.Errorf("a state is stored: %v", err)
	}
	if tokens, sources := a.grants(); tokens != 0 || sources != 0 {
		t.Errorf("%d tokens and %d sources still name it", tokens, sources)
	}
	testkit.Await(t, "the other node has forgotten it", func() bool {
		tokens, sources := b.grants()
		return !b.knows(secretVID) && b.forgotten.Has(secretVID) && tokens == 0 && sources == 0
	})
	err = part.Commit(t.Context(), seq, map[vehicle.ID]vehicle.State{secretVID: vehicle.Observe(vehicle.State{}, samples[0])})
	if !errors.Is(err, store.ErrRecalled) {
		t.Errorf("a fold from before was stored: %v", err)
	}
	part.Close()
	b.foldAll(t, p)
	if _, ok, _ := b.State(t.Context(), secretVID); ok {
		t.Error("samples that waited brought it back")
	}

	// Once it is allowed, only what comes from then on counts.
	b.append(t, speedSample(secretVID, 4000)) // by a node that did not know
	if _, err := b.Allow(t.Context(), secretVID); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Allow(t.Context(), secretVID); !errors.Is(err, access.ErrNotFound) {
		t.Errorf("allowed twice: %v", err)
	}
	testkit.Await(t, "the other node takes it in", func() bool { return !a.forgotten.Has(secretVID) })
	a.append(t, speedSample(secretVID, 5000))
	a.foldAll(t, p)
	s, ok, err := a.State(t.Context(), secretVID)
	if want := vehicle.Observe(vehicle.State{}, speedSample(secretVID, 5000)); err != nil || !ok || s != want {
		t.Errorf("it did not start afresh: %v %+v", ok, s)
	}
	testkit.Await(t, "both know it again", func() bool { return a.knows(secretVID) && b.knows(secretVID) })
}

// TestForgottenBytes looks for the vehicle, and for where it was, in every file of
// the data directory.
func TestForgottenBytes(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	dir := t.TempDir()
	var ahead atomic.Int64 // of the clock
	now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	c := Config{DataDir: dir, Now: now}
	n := startNode(t, c)
	p := codec.PartitionOf(secretVID, n.partitions)
	grantAll(t, n)
	for round := range placedRounds { // overwritten states, too
		batch := []vehicle.Sample{placedSample(secretVID, int64(1000+round))}
		for i := range 200 {
			batch = append(batch, speedSample(vehicle.ID(fmt.Sprintf("Other%03d", i)), int64(1000+round)))
		}
		n.append(t, batch...)
		for q := range n.partitions {
			n.foldAll(t, q)
		}
	}
	for _, what := range whatTells(t) {
		if len(filesHolding(t, dir, what)) == 0 {
			t.Fatalf("%q is in no file to begin with", what)
		}
	}
	before, err := n.stored(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	receipt := n.forget(t, secretVID)
	// Whether samples lie before or behind the tombstone, they name it.
	n.append(t, placedSample(secretVID, 9000), speedSample("Other000", 9000))

	r := &eraser{k: n.Keeper}
	step := func(to time.Duration) access.Tombstone {
		t.Helper()
		ahead.Store(int64(to))
		n.foldAll(t, p)
		n.foldAll(t, codec.PartitionOf("Other000", n.partitions))
		for _, do := range []func(context.Context) error{n.measureBacklog, n.trim, r.step} {
			if err := do(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		return n.forgotten.All()[0]
	}
	step(trimEvery)
	if again := n.forget(t, secretVID); !again.ForgottenAt.Equal(receipt.ForgottenAt) || !n.forgotten.All()[0].Forgotten.Equal(receipt.ForgottenAt) {
		t.Errorf("who asks again puts the erasure off: %+v", again)
	}
	if stone := step(time.Minute); stone.Padded == 0 {
		t.Error("telemetry was not padded")
	}
	r = &eraser{k: n.Keeper} // a restart costs no time
	if stone := step(DefaultRetention - time.Minute); !stone.Erased.IsZero() {
		t.Error("erased before the retention has passed")
	}
	if stone := step(DefaultRetention + time.Minute); stone.Erased.IsZero() {
		t.Error("not erased when the retention has passed")
	}
	after, err := n.stored(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if after != before-1 {
		t.Errorf("%d states are stored, want %d", after, before-1)
	}
	if s, ok, err := n.State(t.Context(), "Other000"); err != nil || !ok || s.Time != 9000 {
		t.Errorf("another vehicle lost its state: %v %v", ok, err)
	}
	// The engine writes its index of subjects anew every now and then, and at
	// its end.
	n.stop()
	for _, what := range whatTells(t) {
		if found := filesHolding(t, dir, what); len(found) > 0 {
			t.Errorf("%q is still in %s", what, strings.Join(found, ", "))
		}
	}
	checkForgottenAtStart(t, c)
}

// startNATS starts a NATS server with a directory of its own.
func startNATS(t *testing.T) (url string) {
	t.Helper()
	s := runNATS(t, &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
	})
	return s.ClientURL()
}

// A node that dies after the tombstone, before anything else: another one, or the
// next start, does the rest.
func TestForgetCutOff(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	var ahead atomic.Int64 // of the clock
	n := startNode(t, Config{DataDir: t.TempDir(), Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
	grantAll(t, n)
	n.append(t, speedSample(secretVID, 1000), speedSample("Other1", 1000))
	for p := range n.partitions {
		n.foldAll(t, p)
	}
	hash := n.forgotten.Hash(secretVID)
	if _, err := n.putTombstone(t.Context(), hash, func(access.Tombstone) (access.Tombstone, error) {
		return access.Tombstone{Vehicle: hash, Forgotten: n.now()}, nil
	}); err != nil {
		t.Fatal(err)
	}
	r := &eraser{k: n.Keeper}
	if err := r.step(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, ok, _ := n.State(t.Context(), secretVID); !ok {
		t.Fatal("who is still at it is not overtaken")
	}
	ahead.Store(int64(forgetTimeout))
	if err := r.step(t.Context()); err != nil {
		t.Fatal(err)
	}
	tokens, sources := n.grants()
	if _, ok, err := n.State(t.Context(), secretVID); ok || err != nil || tokens+sources != 0 || n.knows(secretVID) {
		t.Errorf("it is still there: %v, %v, %d grants", ok, err, tokens+sources)
	}
	if _, ok, err := n.State(t.Context(), "Other1"); !ok || err != nil {
		t.Errorf("another vehicle lost its state: %v", err)
	}
	if all := n.forgotten.All(); !all[0].Removed {
		t.Error("it is not noted")
	}
}

// stored counts the states that are stored.
func (n *forgetNode) stored(ctx context.Context) (int, error) {
	s, err := n.js.Stream(ctx, States)
	if err != nil {
		return 0, err
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter("state.>"))
	if err != nil {
		return 0, err
	}
	return len(info.State.Subjects), nil
}

// checkForgottenAtStart opens the directory anew.
func checkForgottenAtStart(t *testing.T, c Config) {
	e, err := Open(context.Background(), c)
	if err != nil {
		t.Error(err)
		return
	}
	defer e.Close()
	k := e.NewKeeper(new(access.Tables))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	ready := make(chan struct{})
	running.Go(func() {
		if err := k.RunSources(ctx, func() { close(ready) }); err != nil {
			t.Error(err)
		}
	})
	<-ready
	if !e.forgotten.Has(secretVID) {
		t.Error("after a restart the vehicle is not forgotten")
	}
	if _, ok, err := e.State(ctx, secretVID); ok || err != nil {
		t.Errorf("after a restart it has a state: %v", err)
	}
	cancel()
	running.Wait()
}

// whatTells are the bytes that tell of the vehicle: its name, and where it was. Samples
// and the way of a state have the numbers side by side, the latest readings of a state
// have a time between them, and the way has the stretch besides. Profiles of roads have
// that too, but they are of no vehicle, and tests with this car store none.
func whatTells(t *testing.T) [][]byte {
	t.Helper()
	var s vehicle.State
	var roads road.Map
	for at := range int64(placedRounds) {
		s = roads.Observe(s, placedSample(secretVID, 1000+at))
	}
	if s.Way.Count != 1 {
		t.Fatalf("the car drove %d stretches", s.Way.Count)
	}
	latitude := binary.LittleEndian.AppendUint32(nil, math.Float32bits(secretLatitude))
	longitude := binary.LittleEndian.AppendUint32(nil, math.Float32bits(secretLongitude))
	stretch := binary.LittleEndian.AppendUint64(nil, uint64(s.Way.Steps[0].Stretch))
	return [][]byte{[]byte(secretVID), slices.Concat(latitude, longitude), slices.Concat(latitude, []byte{0}, longitude), stretch}
}

// placedRounds is how often the car reports.
const placedRounds = 20

// filesHolding lists the files of a directory in which the bytes are.
func filesHolding(t *testing.T, dir string, what []byte) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if bytes.Contains(content, what) {
			rel, _ := filepath.Rel(dir, path)
			found = append(found, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
