package access_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/test/testkit"
)

func created(t testing.TB, r access.Credential, at time.Time) (access.Credential, string) {
	t.Helper()
	c, secret, err := access.New(r, at)
	testkit.NoError(t, err)
	return c, secret
}

func issue(t testing.TB, developer string, at time.Time) (access.Credential, string) {
	t.Helper()
	return created(t, access.Credential{Kind: access.TokenKind, Developer: developer, Operations: access.AllOperations,
		Vehicles: access.AllVehicles()}, at)
}

func addSource(t testing.TB, name string) (access.Credential, string) {
	t.Helper()
	return created(t, access.Credential{Kind: access.SourceKind, Name: name, Vehicles: access.AllVehicles()}, noon)
}

func TestTokensVerify(t *testing.T) {
	var table access.Tokens
	good, goodSecret := issue(t, "good", noon)
	expired, expiredSecret := issue(t, "expired", noon)
	expired.Expires = noon.Add(time.Minute)
	revoked, revokedSecret := issue(t, "revoked", noon)
	revoked.Ended = noon
	_, unknown := issue(t, "unknown", noon)
	key, _ := access.NewSecret(access.SourceKind)
	for _, tok := range []access.Credential{good, expired, revoked} {
		table.Put(tok)
	}

	mistyped := []byte(goodSecret)
	mistyped[10] ^= 1 // usually another letter or digit
	if mistyped[10]-'0' > 9 && mistyped[10]-'A' > 25 && mistyped[10]-'a' > 25 {
		mistyped[10] = '0'
	}
	for name, tt := range map[string]struct {
		secret string
		id     string
		err    error
	}{
		"good":       {goodSecret, good.Name, nil},
		"expired":    {expiredSecret, expired.Name, access.ErrExpired},
		"revoked":    {revokedSecret, revoked.Name, access.ErrRevoked},
		"unknown":    {unknown, "", access.ErrNotKnown},
		"empty":      {"", "", access.ErrMalformed},
		"cut off":    {goodSecret[:39], "", access.ErrMalformed},
		"mistyped":   {string(mistyped), "", access.ErrChecksum},
		"other kind": {key, "", access.ErrMalformed},
	} {
		g, err := table.Verify([]byte(tt.secret), noon.Add(time.Minute))
		if !errors.Is(err, tt.err) {
			t.Errorf("%s: got %v, want %v", name, err, tt.err)
		}
		if (g == nil) != (tt.id == "") || g != nil && g.Name != tt.id {
			t.Errorf("%s: got the grant %+v, want that of %q", name, g, tt.id)
		}
	}
	if table.Len() != 3 {
		t.Errorf("the tokens: got %d, want 3", table.Len())
	}
}

func TestTokensPutReplaces(t *testing.T) {
	var table access.Tokens
	tok, secret := issue(t, "d", noon)
	table.Put(tok)
	g, err := table.Verify([]byte(secret), noon)
	testkit.NoError(t, err)
	limit := access.Rate{Calls: 1, Window: time.Hour}
	g.Budget.Take(limit, 1, noon)

	tok.Ended = noon
	table.Put(tok)
	g, err = table.Verify([]byte(secret), noon)
	if !errors.Is(err, access.ErrRevoked) || table.Len() != 1 {
		t.Fatalf("a revoked token: got %v, %d in the table; want %v, 1", err, table.Len(), access.ErrRevoked)
	}
	if _, _, ok := g.Budget.Take(limit, 1, noon); ok {
		t.Error("the empty budget after an update of the record: got a call, want none")
	}
}

func TestTokensExpiring(t *testing.T) {
	var table access.Tokens
	for _, c := range []struct {
		expires, revoked time.Time
	}{
		{},
		{expires: noon.Add(-time.Second)},
		{expires: noon},
		{expires: noon.Add(time.Second)},
		{expires: noon.Add(time.Hour)},
		{expires: noon.Add(time.Hour + time.Second)},
		{expires: noon.Add(time.Second), revoked: noon},
	} {
		tok, _ := issue(t, "Ada", noon)
		tok.Expires, tok.Ended = c.expires, c.revoked
		table.Put(tok)
	}
	if n := table.Expiring(noon, noon.Add(time.Hour)); n != 2 {
		t.Errorf("the tokens that expire within the hour: got %d, want 2", n)
	}
}

// A token is found at any time during writes of others, and never once revoked.
func TestTokensConcurrent(t *testing.T) {
	var table access.Tokens
	steady, secret := issue(t, "steady", noon)
	table.Put(steady)
	var writers, readers sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				g, err := table.Verify([]byte(secret), noon)
				if err != nil || g.Name != steady.Name {
					t.Errorf("the steady token: got %v, want the grant %s", err, steady.Name)
					return
				}
				g.Count(access.Answered, noon)
				table.All()
			}
		})
	}
	for range 4 {
		writers.Go(func() {
			for range 200 {
				tok, secret := issue(t, "d", noon)
				table.Put(tok)
				if _, err := table.Verify([]byte(secret), noon); err != nil {
					t.Errorf("a token after Put: got %v, want no error", err)
				}
				tok.Ended = noon
				table.Put(tok)
				if _, err := table.Verify([]byte(secret), noon); !errors.Is(err, access.ErrRevoked) {
					t.Errorf("a revoked token: got %v, want %v", err, access.ErrRevoked)
				}
				table.Put(steady)
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
	if table.Len() != 801 {
		t.Errorf("the tokens: got %d, want 801", table.Len())
	}
}

func TestSources_ListCountsNumbers(t *testing.T) {
	want := []string{"7", "010", "10", "gw", "gw-1", "gw-2", "gw-2b", "gw-10", "gw-10-3", "gw-10-20", "gw-11", "gx-1"}
	var table access.Sources
	for _, name := range slices.Backward(want) {
		s, _ := addSource(t, name)
		table.Put(s)
	}
	var got []string
	for _, s := range table.List() {
		got = append(got, s.Name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSources_VerifyAndList(t *testing.T) {
	var table access.Sources
	if _, ok := table.Get("a"); ok || len(table.List()) != 0 {
		t.Fatalf("an empty table: got a %t and %d sources, want none", ok, len(table.List()))
	}
	a, keyA := addSource(t, "a")
	b, keyB := addSource(t, "b")
	b.Expires = noon.Add(time.Minute)
	token, _ := access.NewSecret(access.TokenKind)
	sandbox, _ := access.NewSecret(access.SandboxKind)
	table.Put(b)
	table.Put(a)

	verify := func(name, key string, at time.Time, want error) {
		t.Helper()
		if _, err := table.Verify([]byte(key), at); !errors.Is(err, want) {
			t.Errorf("Verify of %s: got %v, want %v", name, err, want)
		}
		if _, err := table.VerifyNamed(name, []byte(key), at); !errors.Is(err, want) {
			t.Errorf("VerifyNamed of %s: got %v, want %v", name, err, want)
		}
	}
	verify("a", keyA, noon, nil)
	verify("b", keyB, noon, nil)
	verify("b", keyB, noon.Add(time.Minute), access.ErrExpired)
	verify("a", token, noon, access.ErrIsToken)
	verify("a", token[:9], noon, access.ErrIsToken)
	verify("a", sandbox, noon, access.ErrIsToken)
	verify("a", "csx_", noon, access.ErrMalformed)
	if s, err := table.VerifyNamed("b", []byte(keyA), noon); err == nil {
		t.Errorf("the key of a for b: got %v, want an error", s.Name)
	}

	a.Ended = noon
	table.Put(a)
	verify("a", keyA, noon, access.ErrRevoked)
	if s, ok := table.Get("a"); !ok || s.Ended != noon {
		t.Errorf("a removed source: got %t, %+v; want it until %v", ok, s, noon)
	}
	if list := table.List(); len(list) != 1 || list[0].Name != "b" {
		t.Errorf("the list: got %d sources, want b alone", len(list))
	}

	again, keyAgain := addSource(t, "a")
	table.Put(again)
	verify("a", keyAgain, noon, nil)
	verify("a", keyA, noon, access.ErrNotKnown)
	if list := table.List(); len(list) != 2 || list[0].Name != "a" || list[1].Name != "b" {
		t.Errorf("the list: got %d sources, want a and b in order", len(list))
	}
}

func TestUnreadCredential(t *testing.T) {
	var tables access.Tables
	lost, lostSecret := issue(t, "lost", noon)
	kept, keptSecret := issue(t, "kept", noon)
	_, unknown := issue(t, "unknown", noon)
	tables.Tokens.Put(lost)
	tables.Tokens.Put(kept)
	tables.Tokens.Lose(lost.Name)
	for secret, want := range map[string]error{lostSecret: access.ErrUnread, unknown: access.ErrUnread,
		keptSecret: nil} {
		if _, err := tables.Tokens.Verify([]byte(secret), noon); !errors.Is(err, want) {
			t.Errorf("the secret %s: got %v, want %v", secret, err, want)
		}
	}
	if _, ok := tables.Tokens.Get(lost.Name); ok || !tables.Unread() {
		t.Errorf("the lost token: got it listed %t, some unread %t; want false, true", ok, tables.Unread())
	}
	tables.Tokens.Put(lost) // as a version that can read it
	if _, err := tables.Tokens.Verify([]byte(unknown), noon); !errors.Is(err, access.ErrNotKnown) || tables.Unread() {
		t.Errorf("an unknown secret once all are read: got %v, some unread %t; want %v, false", err, tables.Unread(),
			access.ErrNotKnown)
	}
}
