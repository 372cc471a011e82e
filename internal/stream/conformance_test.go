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
		"embedded": func(t *testing.T) stream.Config { return stream.Config{DataDir: t.TempDir(), Partitions: 4} },
		"external": func(t *testing.T) stream.Config {
			return stream.Config{URLs: streamtest.External(t), Partitions: 4}
		},
	}
	cases := map[string]func(*testing.T, *stream.Engine){
		"samples come back in order":          samplesInOrder,
		"states and cursor are one":           statesAndCursor,
		"a state is read by its vehicle":      stateOfOne,
		"only the last owner commits":         fencing,
		"feeds catch up and follow":           feedsFollow,
		"tokens are stored and change":        tokensChange,
		"large vehicle sets":                  largeSets,
		"racing updates all count":            racingUpdates,
		"sources are added, removed, renewed": sourcesChange,
		"secrets rotate on every node":        secretsRotate,
		"audit keeps the order":               auditOrder,
		"operators are added and removed":     operatorsChange,
		"the recent samples of one vehicle":   recentOfOne,
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

func stateOfOne(t *testing.T, e *stream.Engine) {
	ctx := timeout(t)
	const vehicles = 200
	first, err := e.Take(ctx, 0, "first")
	if err != nil {
		t.Fatal(err)
	}
	id := func(v int) vehicle.ID { return vehicle.ID(fmt.Sprintf("car%d", v)) }
	check := func(part *stream.Partition, at vehicle.UnixMilli) {
		t.Helper()
		var wg sync.WaitGroup
		for v := range vehicles {
			wg.Go(func() {
				s, ok, err := part.State(ctx, id(v))
				if err != nil || ok != (at != 0) || s.Time != at {
					t.Errorf("%s is at %d, stored %t, %v; want %d", id(v), s.Time, ok, err, at)
				}
			})
		}
		wg.Wait()
	}
	check(first, 0)
	var all map[vehicle.ID]vehicle.State
	for at := range int64(3) {
		all = make(map[vehicle.ID]vehicle.State)
		for v := range vehicles {
			all[id(v)] = vehicle.Observe(vehicle.State{}, sample(string(id(v)), at+1, float64(v)))
		}
		if err := first.Commit(ctx, uint64(at+1), all); err != nil {
			t.Fatal(err)
		}
		check(first, vehicle.UnixMilli(at+1))
	}
	second, err := e.Take(ctx, 0, "second")
	if err != nil {
		t.Fatal(err)
	}
	check(second, 3)
	if s, _, err := second.State(ctx, id(7)); err != nil || s != all[id(7)] {
		t.Errorf("stored %+v, read %+v, %v", all[id(7)], s, err)
	}
	// The same vehicle in another partition is another record.
	other, err := e.Take(ctx, 1, "second")
	if err != nil {
		t.Fatal(err)
	}
	check(other, 0)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, ok, err := second.State(ended, id(7)); ok || !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of its context: %t, %v", ok, err)
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
	// Of two vehicles: a state that is replaced before it was read may be left
	// out, since only the last one counts.
	commit("after", 21)
	commit("later", 22)
	for _, want := range []update{{"after", 21}, {"later", 22}} {
		if u := <-updates; u != want {
			t.Fatalf("got %v, want %v", u, want)
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

// secretsRotate rotates on one node and wants another, which learns of it from
// its feed, to follow.
func secretsRotate(t *testing.T, e *stream.Engine) {
	k, _, _ := keeper(t, e)
	_, tokens, sources := keeper(t, e) // another node
	tok, secret := issue(t, k, access.VehicleSet("carA"))
	src, key, err := access.AddSource("gateway-1", access.AllVehicles(), time.Time{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := k.CreateSource(timeout(t), src); err != nil {
		t.Fatal(err)
	}
	for _, overlap := range []time.Duration{time.Hour, 0} {
		nextSecret, hash := access.NewSecret(access.TokenKind)
		if _, err := k.UpdateToken(timeout(t), tok.ID, func(t *access.Token) error { return t.Rotate(hash, overlap, time.Now()) }); err != nil {
			t.Fatal(err)
		}
		nextKey, keyHash := access.NewSecret(access.SourceKind)
		if _, err := k.UpdateSource(timeout(t), "gateway-1", func(s *access.Source) error { return s.Rotate(keyHash, overlap, time.Now()) }); err != nil {
			t.Fatal(err)
		}
		within(t, 10*time.Second, func() bool {
			g, err := tokens.Verify([]byte(nextSecret), time.Now())
			_, keyErr := sources.Verify([]byte(nextKey), time.Now())
			return err == nil && g.ID == tok.ID && g.Vehicles.Include("carA") && keyErr == nil
		})
		_, err := tokens.Verify([]byte(secret), time.Now())
		_, keyErr := sources.Verify([]byte(key), time.Now())
		if (err == nil) != (overlap > 0) || (keyErr == nil) != (overlap > 0) {
			t.Errorf("with an overlap of %v the old ones: %v, %v", overlap, err, keyErr)
		}
	}
	_, again, _ := keeper(t, e) // a node that starts later
	if _, err := again.Verify([]byte(secret), time.Now()); !errors.Is(err, access.ErrReplaced) {
		t.Errorf("the first secret after it ended: %v", err)
	}
}

// within waits for a condition.
func within(t *testing.T, d time.Duration, ok func() bool) {
	t.Helper()
	tick, late := time.NewTicker(time.Millisecond), time.After(d)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("not within %v", d)
		}
	}
}

// Each node stores what it has counted; any node adds it up.
func TestUsageOfSeveralNodes(t *testing.T) {
	url := streamtest.External(t)
	now := time.Now()
	first := streamtest.Open(t, stream.Config{URLs: url, Partitions: 4, DataDir: t.TempDir()})
	second := streamtest.Open(t, stream.Config{URLs: url, Partitions: 4}) // without a directory
	k, _, _ := keeper(t, first)
	tok, _ := issue(t, k, access.AllVehicles())
	for round := range 3 {
		for _, e := range []*stream.Engine{first, second} {
			k, tokens, _ := keeper(t, e)
			g, ok := tokens.Get(tok.ID)
			if !ok {
				t.Fatal("the token is not known")
			}
			g.Count(access.ThrottleSystem, access.Answered, now)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			k.KeepUsage(ctx) // stores once and ends
		}
		_, tokens, _ := keeper(t, first) // a node that starts now
		u := tokens.Usage(tok.ID, now)
		if got := u.Since(0)[1][access.Answered]; got != int64(2*(round+1)) {
			t.Errorf("round %d: %d calls", round, got)
		}
	}
}

func auditOrder(t *testing.T, e *stream.Engine) {
	k, _, _ := keeper(t, e)
	if events, older, err := k.AuditPage(timeout(t), 0, 3); err != nil || len(events) != 0 || older != 0 {
		t.Fatalf("an empty audit: %v, %d, %v", events, older, err)
	}
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
	before, got := uint64(0), ""
	for _, want := range []string{"43", "21", "0"} {
		events, older, err := k.AuditPage(timeout(t), before, 2)
		if err != nil {
			t.Fatal(err)
		}
		got = ""
		for _, e := range events {
			got += e.Object
		}
		if got != want {
			t.Fatalf("the page before %d is %q, want %q", before, got, want)
		}
		before = older
	}
	if before != 0 {
		t.Fatalf("after the last page comes %d", before)
	}
}
