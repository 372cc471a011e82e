package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

// RunKeeper returns a record store that runs until the test ends, once its tables hold all stored
// records.
func RunKeeper(t *testing.T, e store.Engine, c store.Config) (*store.RecordStore, *access.Tables) {
	t.Helper()
	tables := new(access.Tables)
	k := store.NewRecordStore(e, c, tables)
	t.Cleanup(follow(t, k.Tokens.Run, k.Sources.Run))
	return k, tables
}

func create(t testing.TB, k *store.RecordStore, r access.Credential) (access.Credential, string) {
	t.Helper()
	c, secret, err := access.New(r, time.Now())
	testkit.NoError(t, err)
	testkit.NoError(t, k.Create(t.Context(), c))
	return c, secret
}

func update(t testing.TB, k *store.RecordStore, kind access.Kind, name string, change func(*access.Credential) error) {
	t.Helper()
	_, err := k.Update(t.Context(), kind, name, change)
	testkit.NoError(t, err)
}

// grants is a change for [store.RecordStore.Update].
func grants(ids ...vehicle.ID) func(*access.Credential) error {
	return func(c *access.Credential) error { c.Vehicles = access.VehicleSet(ids...); return nil }
}

// Issue stores a token that permits both operations, 7 calls a minute, for an hour.
func Issue(t testing.TB, k *store.RecordStore, v access.Vehicles) (access.Credential, string) {
	t.Helper()
	return create(t, k, access.Credential{Kind: access.TokenKind,
		Developer: "Ada", Operations: access.AllOperations, Vehicles: v,
		Rate: access.Rate{Calls: 7, Window: time.Minute}, Expires: time.Now().Add(time.Hour),
	})
}

func tokensChange(t *testing.T, e store.Engine) {
	k, tables := RunKeeper(t, e, store.Config{})
	tok, secret := Issue(t, k, access.VehicleSet("carA"))
	g, err := tables.Tokens.Verify([]byte(secret), time.Now())
	testkit.NoError(t, err)
	if g.Developer != "Ada" || g.Rate != tok.Rate || !g.Expires.Equal(tok.Expires) ||
		!g.Vehicles.Include("carA") || g.Vehicles.Include("carB") {
		t.Fatalf("got %+v, want %+v", g.Credential, tok)
	}
	update(t, k, access.TokenKind, tok.Name, end)
	if _, err := tables.Tokens.Verify([]byte(secret), time.Now()); !errors.Is(err, access.ErrRevoked) {
		t.Fatalf("after the revocation: got %v, want %v", err, access.ErrRevoked)
	}
	if _, err := k.Update(t.Context(), access.TokenKind, "cstidNone", end); !errors.Is(err, access.ErrNotFound) {
		t.Fatalf("an unknown token: got %v, want %v", err, access.ErrNotFound)
	}
}

func largeSets(t *testing.T, e store.Engine) {
	k, tables := RunKeeper(t, e, store.Config{})
	ids := make([]vehicle.ID, access.MaxNamed+2000)
	for i := range ids {
		ids[i] = vehicle.ID(fmt.Sprintf("car%0247d", i))
	}
	tok, _ := Issue(t, k, access.VehicleSet(ids[:access.MaxNamed]...))
	check := func(tables *access.Tables, want int) {
		t.Helper()
		g, ok := tables.Tokens.Get(tok.Name)
		if !ok || g.Vehicles.Len() != want || !g.Vehicles.Include(ids[want-1]) {
			t.Fatalf("the token: got it %t, want it with a set of %d vehicles", ok, want)
		}
	}
	check(tables, access.MaxNamed)
	for _, keep := range []int{5_000, 10, len(ids)} { // the last as in a token of an earlier version
		update(t, k, access.TokenKind, tok.Name, grants(ids[:keep]...))
		check(tables, keep)
	}
	_, again := RunKeeper(t, e, store.Config{}) // acts as another node, which reads the stream from the start
	check(again, len(ids))
}

func racingUpdates(t *testing.T, e store.Engine) {
	k, tables := RunKeeper(t, e, store.Config{})
	tok, _ := Issue(t, k, access.VehicleSet("car0"))
	var wg sync.WaitGroup
	const writers = 8
	for i := range writers {
		wg.Go(func() {
			if _, err := k.Update(testkit.Context(t), access.TokenKind, tok.Name, func(t *access.Credential) error {
				t.Vehicles = t.Vehicles.With(vehicle.ID(fmt.Sprintf("car%d", i+1)))
				return nil
			}); err != nil {
				t.Errorf("an update by writer %d: got %v, want no error", i, err)
			}
		})
	}
	wg.Wait()
	if g, _ := tables.Tokens.Get(tok.Name); g.Vehicles.Len() != writers+1 {
		t.Fatalf("the vehicles: got %d, want %d", g.Vehicles.Len(), writers+1)
	}
}

// A source and an operator are added, rotated, removed and added again. A node that starts later
// has the rotated secret, and then follows.
func namesChange(t *testing.T, e store.Engine) {
	k, tables := RunKeeper(t, e, store.Config{})
	verifySource := func(tables *access.Tables, key string) (*access.Grant, error) {
		return tables.Sources.VerifyNamed("gateway-1", []byte(key), time.Now())
	}
	verifyOperator := func(tables *access.Tables, key string) (*access.Grant, error) {
		return tables.Operators.Verify([]byte(key), time.Now())
	}
	for _, c := range []struct {
		access.Credential
		verify func(*access.Tables, string) (*access.Grant, error)
	}{
		{access.Credential{
			Kind: access.SourceKind, Name: "gateway-1", Vehicles: access.AllVehicles(), Strict: true,
		}, verifySource},
		{access.Credential{Kind: access.OperatorKind, Name: "ada"}, verifyOperator},
	} {
		is := func(when string, tables *access.Tables, key string, want error) {
			t.Helper()
			g, err := c.verify(tables, key)
			if !errors.Is(err, want) || err == nil && (g.Name != c.Name || g.Strict != c.Strict) {
				t.Errorf("%s, %s: got %+v, error %v; want %v", c.Name, when, g, err, want)
			}
		}
		stored, key := create(t, k, c.Credential)
		stored.Hash[0]++ // another key
		if err := k.Create(t.Context(), stored); !errors.Is(err, access.ErrExists) {
			t.Errorf("adding %s twice: got %v, want %v", c.Name, err, access.ErrExists)
		}
		is("its key", tables, key, nil)
		first, _ := tables.Of(c.Kind).Get(c.Name)
		key2 := rotate(t, k, c.Kind, c.Name, 0)
		is("the replaced key", tables, key, access.ErrReplaced)
		_, other := RunKeeper(t, e, store.Config{})
		is("the new key on another node", other, key2, nil)
		if g, ok := other.Of(c.Kind).Get(c.Name); !ok || g.Rotated.IsZero() {
			t.Errorf("%s on another node: got %+v, want that it was rotated", c.Name, g)
		}
		update(t, k, c.Kind, c.Name, end)
		if _, err := k.Update(t.Context(), c.Kind, c.Name, end); !errors.Is(err, access.ErrNotFound) {
			t.Errorf("removing %s twice: got %v, want %v", c.Name, err, access.ErrNotFound)
		}
		is("after the removal", tables, key2, access.ErrRevoked)
		testkit.Await(t, "the removal is known", func() bool {
			_, err := c.verify(other, key2)
			return errors.Is(err, access.ErrRevoked)
		})
		_, key3 := create(t, k, c.Credential)
		is("the old key", tables, key2, access.ErrNotKnown)
		is("the key of the same name", tables, key3, nil)
		create(t, k, access.Credential{Kind: c.Kind, Name: "other", Vehicles: c.Vehicles})
		again, _ := tables.Of(c.Kind).Get(c.Name)
		another, _ := tables.Of(c.Kind).Get("other")
		numbered := c.Kind == access.SourceKind
		if again.Number != first.Number || (first.Number != 0) != numbered || (another.Number != first.Number) != numbered {
			t.Errorf("%s: got number %d, later %d, and %d for another name; want the first one for the name, of sources only",
				c.Name, first.Number, again.Number, another.Number)
		}
	}
}

// Another node accepts new secrets once its feed has delivered them. The first ones stay valid
// during an overlap, and are refused after a rotation without one.
func secretsRotate(t *testing.T, e store.Engine) {
	k, _ := RunKeeper(t, e, store.Config{})
	_, tables := RunKeeper(t, e, store.Config{}) // acts as another node
	tok, secret := Issue(t, k, access.VehicleSet("carA"))
	_, key := create(t, k, access.Credential{Kind: access.SourceKind, Name: "gateway-1", Vehicles: access.AllVehicles()})
	for _, overlap := range []time.Duration{time.Hour, 0} {
		nextSecret := rotate(t, k, access.TokenKind, tok.Name, overlap)
		nextKey := rotate(t, k, access.SourceKind, "gateway-1", overlap)
		testkit.Await(t, "the change is known", func() bool {
			g, err := tables.Tokens.Verify([]byte(nextSecret), time.Now())
			_, keyErr := tables.Sources.Verify([]byte(nextKey), time.Now())
			return err == nil && g.Name == tok.Name && g.Vehicles.Include("carA") && keyErr == nil
		})
		_, err := tables.Tokens.Verify([]byte(secret), time.Now())
		_, keyErr := tables.Sources.Verify([]byte(key), time.Now())
		if (err == nil) != (overlap > 0) || (keyErr == nil) != (overlap > 0) {
			t.Errorf("overlap %v, the old token and key: got %v, %v, want them valid during it", overlap, err, keyErr)
		}
	}
	_, again := RunKeeper(t, e, store.Config{}) // acts as a node that starts later
	if _, err := again.Tokens.Verify([]byte(secret), time.Now()); !errors.Is(err, access.ErrReplaced) {
		t.Errorf("the first secret after it ended: got %v, want %v", err, access.ErrReplaced)
	}
}

func rotate(t *testing.T, k *store.RecordStore, kind access.Kind, name string, overlap time.Duration) (secret string) {
	t.Helper()
	secret, hash := access.NewSecret(kind)
	update(t, k, kind, name, func(c *access.Credential) error { return c.Rotate(hash, overlap, time.Now()) })
	return secret
}

func auditOrder(t *testing.T, e store.Engine) {
	k, _ := RunKeeper(t, e, store.Config{})
	if events, older, err := k.AuditPage(testkit.Context(t), 0, 3); err != nil || len(events) != 0 || older != 0 {
		t.Fatalf("an empty audit: got %v, older %d, error %v, want nothing", events, older, err)
	}
	for i := range 5 {
		testkit.NoError(t, k.Audit(
			testkit.Context(t),
			access.Event{Time: time.Now(), Actor: "admin", Action: "test", Object: fmt.Sprint(i)},
		))
	}
	events, _, err := k.AuditPage(testkit.Context(t), 0, 3)
	testkit.NoError(t, err)
	for i, want := range []string{"4", "3", "2"} {
		if i >= len(events) || events[i].Object != want {
			t.Fatalf("got %+v, want events 4, 3 and 2", events)
		}
	}
	before := uint64(0)
	for _, want := range [][]string{{"4", "3"}, {"2", "1"}, {"0"}} {
		events, older, err := k.AuditPage(testkit.Context(t), before, 2)
		testkit.NoError(t, err)
		var got []string
		for _, e := range events {
			got = append(got, e.Object)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("the page before %d is %q, want %q", before, got, want)
		}
		before = older
	}
	if before != 0 {
		t.Fatalf("after the last page: got older %d, want 0", before)
	}
}
