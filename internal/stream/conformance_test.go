package stream_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"carstate/internal/access"
	"carstate/internal/stream"
	"carstate/internal/stream/streamtest"
	"carstate/internal/vehicle"
)

// The same suite runs against the embedded engine and against a NATS server
// that listens on a port.
func TestConformance(t *testing.T) {
	t.Parallel()
	engines := map[string]func(t *testing.T) stream.Config{
		"embedded": func(t *testing.T) stream.Config { return stream.Config{DataDir: t.TempDir()} },
		"external": func(t *testing.T) stream.Config {
			return stream.Config{URLs: streamtest.External(t), Partitions: 4}
		},
	}
	cases := map[string]func(*testing.T, *stream.Engine){
		"samples come back in order":          samplesInOrder,
		"states and cursor are one":           statesAndCursor,
		"only the last owner commits":         fencing,
		"feeds catch up and follow":           feedsFollow,
		"tokens are stored and change":        tokensChange,
		"large vehicle sets":                  largeSets,
		"racing updates all count":            racingUpdates,
		"sources are added, removed, renewed": sourcesChange,
		"audit keeps the order":               auditOrder,
	}
	for engine, config := range engines {
		for name, run := range cases {
			t.Run(engine+"/"+name, func(t *testing.T) {
				t.Parallel()
				run(t, streamtest.Open(t, config(t)))
			})
		}
	}
}

func sample(vid string, ms int64, speed float64) vehicle.Sample {
	x := vehicle.Sample{Vehicle: vehicle.ID(vid), Time: vehicle.UnixMilli(ms)}
	if err := x.Set(vehicle.Speed, speed); err != nil {
		panic(err)
	}
	return x
}

func timeout(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// readAll reads n samples of a partition, which must be all there are.
func readAll(t *testing.T, p *stream.Partition, n int) (last uint64, all []vehicle.Sample) {
	t.Helper()
	ctx := timeout(t)
	for len(all) < n {
		seq, samples, err := p.Next(ctx)
		if err != nil {
			t.Fatalf("after %d of %d samples: %v", len(all), n, err)
		}
		if seq <= last {
			t.Fatalf("sequence %d follows %d", seq, last)
		}
		last, all = seq, append(all, samples...)
	}
	return last, all
}

func samplesInOrder(t *testing.T, e *stream.Engine) {
	const writers, each = 8, 500
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			vid := fmt.Sprintf("car%d", w)
			for i := 0; i < each; {
				var batch []vehicle.Sample
				for range 1 + i%7 {
					batch = append(batch, sample(vid, int64(1000+i), float64(i%200)))
					i++
				}
				if err := e.Append(t.Context(), batch); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	got := map[vehicle.ID]int64{}
	total := 0
	want := make([]int, e.Partitions())
	for w := range writers {
		want[stream.PartitionOf(vehicle.ID(fmt.Sprintf("car%d", w)), e.Partitions())] += each
	}
	for p := range e.Partitions() {
		part, err := e.Take(t.Context(), p, "test")
		if err != nil {
			t.Fatal(err)
		}
		defer part.Close()
		_, all := readAll(t, part, want[p])
		total += len(all)
		for _, x := range all {
			if int64(x.Time) <= got[x.Vehicle] {
				t.Fatalf("%s: sample of %d after %d", x.Vehicle, x.Time, got[x.Vehicle])
			}
			got[x.Vehicle] = int64(x.Time)
			if v, _ := x.Value(vehicle.Speed); v != float32((int64(x.Time)-1000)%200) {
				t.Fatalf("%s at %d: speed %v", x.Vehicle, x.Time, v)
			}
		}
	}
	if total < writers*each {
		t.Fatalf("%d samples came back of %d", total, writers*each)
	}
}

func statesAndCursor(t *testing.T, e *stream.Engine) {
	ctx := timeout(t)
	const vid = "carA"
	p := stream.PartitionOf(vid, e.Partitions())
	for i := range 3 {
		if err := e.Append(ctx, []vehicle.Sample{sample(vid, int64(1000*(i+1)), 50)}); err != nil {
			t.Fatal(err)
		}
	}
	part, err := e.Take(ctx, p, "first")
	if err != nil {
		t.Fatal(err)
	}
	seq, samples, err := part.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	state := vehicle.Observe(vehicle.State{}, samples[0])
	if err := part.Commit(ctx, seq, map[vehicle.ID]vehicle.State{vid: state}); err != nil {
		t.Fatal(err)
	}
	part.Close()

	part, err = e.Take(ctx, p, "second")
	if err != nil {
		t.Fatal(err)
	}
	defer part.Close()
	states := map[vehicle.ID]vehicle.State{}
	if err := part.States(ctx, func(id vehicle.ID, s vehicle.State) { states[id] = s }); err != nil {
		t.Fatal(err)
	}
	if len(states) != 1 || states[vid] != state {
		t.Fatalf("stored %+v, loaded %+v", state, states)
	}
	_, rest := readAll(t, part, 2)
	if rest[0].Time != 2000 || rest[1].Time != 3000 {
		t.Fatalf("after the cursor came %v and %v", rest[0].Time, rest[1].Time)
	}
}

func fencing(t *testing.T, e *stream.Engine) {
	ctx := timeout(t)
	const racers, rounds = 4, 25
	parts := make([]*stream.Partition, racers)
	for round := range rounds {
		// Everybody takes; who took last owns. All commit at once.
		for i := range parts {
			var err error
			if parts[i], err = e.Take(ctx, 0, fmt.Sprintf("owner%d", i)); err != nil {
				t.Fatal(err)
			}
		}
		errs := make([]error, racers)
		var wg sync.WaitGroup
		for i := range parts {
			wg.Go(func() {
				vid := vehicle.ID(fmt.Sprintf("by%d", i))
				s := vehicle.Observe(vehicle.State{}, sample(string(vid), int64(round+1), 10))
				errs[i] = parts[i].Commit(ctx, uint64(round+1), map[vehicle.ID]vehicle.State{vid: s})
			})
		}
		wg.Wait()
		for i, err := range errs {
			if last := i == racers-1; last && err != nil || !last && !errors.Is(err, stream.ErrFenced) {
				t.Fatalf("round %d, owner %d: %v", round, i, err)
			}
		}
	}
	part, err := e.Take(ctx, 0, "reader")
	if err != nil {
		t.Fatal(err)
	}
	if err := part.States(ctx, func(id vehicle.ID, s vehicle.State) {
		if id != vehicle.ID(fmt.Sprintf("by%d", racers-1)) || s.Time != rounds {
			t.Errorf("a fenced owner stored %s at %d", id, s.Time)
		}
	}); err != nil {
		t.Fatal(err)
	}
}

func feedsFollow(t *testing.T, e *stream.Engine) {
	ctx, cancel := context.WithCancel(timeout(t))
	part, err := e.Take(ctx, 0, "test")
	if err != nil {
		t.Fatal(err)
	}
	commit := func(vid string, ms int64) {
		s := vehicle.Observe(vehicle.State{}, sample(vid, ms, 10))
		if err := part.Commit(ctx, uint64(ms), map[vehicle.ID]vehicle.State{vehicle.ID(vid): s}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 20 {
		commit("before", int64(i+1))
	}
	type update struct {
		id vehicle.ID
		at vehicle.UnixMilli
	}
	updates, caughtUp, done := make(chan update, 100), make(chan struct{}), make(chan error)
	go func() {
		done <- e.FollowStates(ctx, func(id vehicle.ID, s vehicle.State) { updates <- update{id, s.Time} }, func() { close(caughtUp) })
	}()
	<-caughtUp
	if u := <-updates; u != (update{"before", 20}) || len(updates) != 0 {
		t.Fatalf("at the start came %v and %d more", u, len(updates))
	}
	commit("after", 21)
	commit("after", 22)
	for want := int64(21); want <= 22; want++ {
		if u := <-updates; u != (update{"after", vehicle.UnixMilli(want)}) {
			t.Fatalf("got %v, want %d", u, want)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// keeper runs a keeper until the test ends.
func keeper(t *testing.T, e *stream.Engine) (*stream.Keeper, *access.Tokens, *access.Sources) {
	t.Helper()
	tokens, sources := new(access.Tokens), new(access.Sources)
	k := e.NewKeeper(tokens, sources)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var ready sync.WaitGroup
	ready.Add(2)
	wg.Go(func() {
		if err := k.RunTokens(ctx, ready.Done); err != nil {
			t.Error(err)
		}
	})
	wg.Go(func() {
		if err := k.RunSources(ctx, ready.Done); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	ready.Wait()
	return k, tokens, sources
}

func issue(t *testing.T, k *stream.Keeper, v access.Vehicles) (access.Token, string) {
	t.Helper()
	tok, secret, err := access.Issue(access.TokenRequest{
		Developer: "Ada", Operations: access.AllOperations, Vehicles: v,
		Rate: access.Rate{Calls: 7, Window: time.Minute}, Expires: time.Now().Add(time.Hour),
	}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := k.CreateToken(timeout(t), tok); err != nil {
		t.Fatal(err)
	}
	return tok, secret
}

func tokensChange(t *testing.T, e *stream.Engine) {
	k, tokens, _ := keeper(t, e)
	tok, secret := issue(t, k, access.VehicleSet("carA"))
	g, err := tokens.Verify([]byte(secret), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if g.Developer != "Ada" || g.Rate != tok.Rate || !g.Expires.Equal(tok.Expires) || !g.Vehicles.Include("carA") || g.Vehicles.Include("carB") {
		t.Fatalf("stored %+v, got %+v", tok, g.Token)
	}
	if _, err := k.UpdateToken(timeout(t), tok.ID, func(t *access.Token) error {
		t.Revoked = time.Now()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := tokens.Verify([]byte(secret), time.Now()); !errors.Is(err, access.ErrRevoked) {
		t.Fatalf("after the revocation: %v", err)
	}
	if _, err := k.UpdateToken(timeout(t), "cstidNone", func(*access.Token) error { return nil }); !errors.Is(err, access.ErrNotFound) {
		t.Fatalf("an unknown token: %v", err)
	}
}

func largeSets(t *testing.T, e *stream.Engine) {
	k, tokens, _ := keeper(t, e)
	ids := make([]vehicle.ID, 100_000)
	for i := range ids {
		ids[i] = vehicle.ID(fmt.Sprintf("fleetcar%d", i))
	}
	tok, _ := issue(t, k, access.VehicleSet(ids...))
	check := func(tokens *access.Tokens, want int) {
		t.Helper()
		g, ok := tokens.Get(tok.ID)
		if !ok || g.Vehicles.Len() != want || !g.Vehicles.Include(ids[want-1]) {
			t.Fatalf("found %v; want a set of %d", ok, want)
		}
	}
	check(tokens, len(ids))
	for _, keep := range []int{50_000, 10, 70_000} {
		if _, err := k.UpdateToken(timeout(t), tok.ID, func(t *access.Token) error {
			t.Vehicles = access.VehicleSet(ids[:keep]...)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		check(tokens, keep)
	}
	_, again, _ := keeper(t, e) // another node, from the start
	check(again, 70_000)
}

func racingUpdates(t *testing.T, e *stream.Engine) {
	k, tokens, _ := keeper(t, e)
	tok, _ := issue(t, k, access.VehicleSet("car0"))
	var wg sync.WaitGroup
	const writers = 8
	for i := range writers {
		wg.Go(func() {
			if _, err := k.UpdateToken(timeout(t), tok.ID, func(t *access.Token) error {
				t.Vehicles = t.Vehicles.With(vehicle.ID(fmt.Sprintf("car%d", i+1)))
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if g, _ := tokens.Get(tok.ID); g.Vehicles.Len() != writers+1 {
		t.Fatalf("%d vehicles; want %d", g.Vehicles.Len(), writers+1)
	}
}

func sourcesChange(t *testing.T, e *stream.Engine) {
	k, _, sources := keeper(t, e)
	add := func() (string, error) {
		s, key, err := access.AddSource("gateway-1", access.AllVehicles(), time.Time{}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return key, k.CreateSource(timeout(t), s)
	}
	key, err := add()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sources.VerifyNamed("gateway-1", []byte(key), time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := add(); !errors.Is(err, access.ErrExists) {
		t.Fatalf("the same name again: %v", err)
	}
	remove := func() error {
		_, err := k.UpdateSource(timeout(t), "gateway-1", func(s *access.Source) error {
			s.Removed = time.Now()
			return nil
		})
		return err
	}
	if err := remove(); err != nil {
		t.Fatal(err)
	}
	if err := remove(); !errors.Is(err, access.ErrNotFound) {
		t.Fatalf("removed twice: %v", err)
	}
	if _, err := sources.Verify([]byte(key), time.Now()); err == nil {
		t.Fatal("the key of a removed source still counts")
	}
	key2, err := add()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sources.Verify([]byte(key), time.Now()); !errors.Is(err, access.ErrNotKnown) {
		t.Fatalf("the old key: %v", err)
	}
	if _, err := sources.Verify([]byte(key2), time.Now()); err != nil {
		t.Fatal(err)
	}
}

func auditOrder(t *testing.T, e *stream.Engine) {
	k, _, _ := keeper(t, e)
	for i := range 5 {
		if err := k.Audit(timeout(t), access.Event{Time: time.Now(), Actor: "admin", Action: "test", Object: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	events, err := k.AuditTail(timeout(t), 3)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"4", "3", "2"} {
		if i >= len(events) || events[i].Object != want {
			t.Fatalf("got %+v", events)
		}
	}
}
