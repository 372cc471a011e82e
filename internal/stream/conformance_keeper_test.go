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
	"carstate/internal/testkit"
	"carstate/internal/vehicle"
)

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
	if err := k.CreateToken(testkit.Context(t), tok); err != nil {
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
	if _, err := k.UpdateToken(testkit.Context(t), tok.ID, func(t *access.Token) error {
		t.Revoked = time.Now()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := tokens.Verify([]byte(secret), time.Now()); !errors.Is(err, access.ErrRevoked) {
		t.Fatalf("after the revocation: %v", err)
	}
	if _, err := k.UpdateToken(testkit.Context(t), "cstidNone", func(*access.Token) error { return nil }); !errors.Is(err, access.ErrNotFound) {
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
		if _, err := k.UpdateToken(testkit.Context(t), tok.ID, func(t *access.Token) error {
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
			if _, err := k.UpdateToken(testkit.Context(t), tok.ID, func(t *access.Token) error {
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
		return key, k.CreateSource(testkit.Context(t), s)
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
		_, err := k.UpdateSource(testkit.Context(t), "gateway-1", func(s *access.Source) error {
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
	if err := k.CreateSource(testkit.Context(t), src); err != nil {
		t.Fatal(err)
	}
	for _, overlap := range []time.Duration{time.Hour, 0} {
		nextSecret, hash := access.NewSecret(access.TokenKind)
		if _, err := k.UpdateToken(testkit.Context(t), tok.ID, func(t *access.Token) error { return t.Rotate(hash, overlap, time.Now()) }); err != nil {
			t.Fatal(err)
		}
		nextKey, keyHash := access.NewSecret(access.SourceKind)
		if _, err := k.UpdateSource(testkit.Context(t), "gateway-1", func(s *access.Source) error { return s.Rotate(keyHash, overlap, time.Now()) }); err != nil {
			t.Fatal(err)
		}
		testkit.Await(t, "the change is known", func() bool {
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
	if events, older, err := k.AuditPage(testkit.Context(t), 0, 3); err != nil || len(events) != 0 || older != 0 {
		t.Fatalf("an empty audit: %v, %d, %v", events, older, err)
	}
	for i := range 5 {
		if err := k.Audit(testkit.Context(t), access.Event{Time: time.Now(), Actor: "admin", Action: "test", Object: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	events, _, err := k.AuditPage(testkit.Context(t), 0, 3)
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
		events, older, err := k.AuditPage(testkit.Context(t), before, 2)
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
