package access_test

import (
	"errors"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/test/testkit"
)

func TestRotate_OverlapsAndEnds(t *testing.T) {
	var table access.Tokens
	tok, first := issue(t, "d", noon)
	table.Put(tok)
	rotate := func(overlap time.Duration, at time.Time) string {
		t.Helper()
		secret, hash := access.NewSecret(tok.Kind)
		testkit.NoError(t, tok.Rotate(hash, overlap, at))
		table.Put(tok)
		return secret
	}
	is := func(secret string, at time.Time, want error) {
		t.Helper()
		g, err := table.Verify([]byte(secret), at)
		if !errors.Is(err, want) || errors.Is(want, access.ErrNotKnown) != (g == nil) ||
			g != nil && g.Name != tok.Name {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	second := rotate(24*time.Hour, noon)
	is(first, noon.Add(24*time.Hour-1), nil)
	is(first, noon.Add(24*time.Hour), access.ErrReplaced)
	is(second, noon.Add(24*time.Hour), nil)

	third := rotate(time.Hour, noon.Add(time.Minute)) // the first one must not outlive the second
	is(first, noon.Add(time.Hour+time.Minute-1), nil)
	is(first, noon.Add(time.Hour+time.Minute), access.ErrReplaced)
	is(second, noon.Add(time.Hour+time.Minute-1), nil)
	is(second, noon.Add(time.Hour+time.Minute), access.ErrReplaced)

	fourth := rotate(0, noon.Add(2*time.Minute)) // all end at once
	for _, secret := range []string{first, second, third} {
		is(secret, noon.Add(2*time.Minute), access.ErrReplaced)
	}
	is(fourth, noon.Add(2*time.Minute), nil)
	// A rotation whose response was lost is retried, possibly after a later one.
	if before := tok; tok.Rotate(tok.Hash, 0, noon.Add(3*time.Minute)) != nil || !reflect.DeepEqual(tok, before) {
		t.Errorf("a rotation to its own secret: got %+v, want %+v", tok, before)
	}
	fifth := rotate(time.Hour, noon.Add(4*time.Minute))
	testkit.NoError(t, tok.Rotate(access.HashOf(fourth), 0, noon.Add(4*time.Minute)))
	table.Put(tok)
	is(fourth, noon.Add(time.Hour), nil)
	is(fifth, noon.Add(time.Hour), nil)
	fourth = fifth
	if table.Len() != 1 {
		t.Errorf("the tokens: got %d, want 1", table.Len())
	}
	tok.Ended = noon
	table.Put(tok)
	is(fourth, noon, access.ErrRevoked)
}

// Older ones are dropped, so that a record does not grow without limit.
func TestRotateRemembersTheLast(t *testing.T) {
	var table access.Tokens
	tok, secret := issue(t, "d", noon)
	secrets := []string{secret}
	for i := range 20 {
		next, hash := access.NewSecret(tok.Kind)
		testkit.NoError(t, tok.Rotate(hash, time.Duration(i%2)*time.Hour, noon.Add(time.Duration(i)*time.Minute)))
		table.Put(tok)
		secrets = append(secrets, next)
	}
	later := noon.Add(2 * time.Hour)
	_, hash := access.NewSecret(tok.Kind)
	testkit.NoError(t, tok.Rotate(hash, time.Hour, later))
	table.Put(tok)
	for i, secret := range secrets {
		want := access.ErrNotKnown
		switch {
		case i == 20:
			want = nil // just now, with an overlap
		case i >= 20-8:
			want = access.ErrReplaced
		}
		if _, err := table.Verify([]byte(secret), later); !errors.Is(err, want) {
			t.Errorf("secret %d: got %v, want %v", i, err, want)
		}
	}
}

func TestRotateRefuses(t *testing.T) {
	_, hash := access.NewSecret(access.TokenKind)
	for name, tt := range map[string]struct {
		spoil   func(*access.Credential)
		overlap time.Duration
	}{
		"revoked":            {func(t *access.Credential) { t.Ended = noon }, 0},
		"expired":            {func(t *access.Credential) { t.Expires = noon }, 0},
		"negative":           {func(*access.Credential) {}, -1},
		"too long":           {func(*access.Credential) {}, access.MaxOverlap + 1},
		"too many at a time": {func(tok *access.Credential) { tok.Earlier = many(8) }, time.Hour},
	} {
		tok, _ := issue(t, "d", noon.Add(-time.Hour))
		tt.spoil(&tok)
		before := tok.Hash
		if err := tok.Rotate(hash, tt.overlap, noon); err == nil || tok.Hash != before {
			t.Errorf("%s: got %v, hash %x; want an error, hash %x", name, err, tok.Hash, before)
		}
	}
	tok, _ := issue(t, "d", noon.Add(-time.Hour))
	tok.Earlier = many(8)
	if err := tok.Rotate(hash, 0, noon); err != nil || len(tok.Earlier) != 8 {
		t.Errorf("no overlap: got %v, %d earlier secrets; want 8", err, len(tok.Earlier))
	}
	for _, e := range tok.Earlier {
		if e.Until.After(noon) {
			t.Errorf("no overlap: got an earlier secret until %v, want none after %v", e.Until, noon)
		}
	}
	src, _ := addSource(t, "s")
	if src.Expires = noon; src.Rotate(hash, 0, noon) == nil {
		t.Error("an expired source: got it rotated, want an error")
	}
}

func many(n int) (all []access.Earlier) {
	for i := range n {
		all = append(all, access.Earlier{Hash: access.Hash{byte(i)}, Until: noon.Add(time.Hour)})
	}
	return all
}

// Each secret is valid for its overlap, but not longer than any that was created after it.
func TestRotationKeepsItsWord(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var table access.Tokens
		tok, secret := issue(t, "d", noon)
		table.Put(tok)
		type promise struct {
			secret string
			until  time.Time
		}
		var promises []promise
		now := noon
		for range rapid.IntRange(1, 12).Draw(rt, "rotations") {
			now = now.Add(time.Duration(rapid.IntRange(0, 50).Draw(rt, "pause")) * time.Minute)
			overlap := time.Duration(rapid.IntRange(0, 100).Draw(rt, "overlap")) * time.Minute
			next, hash := access.NewSecret(access.TokenKind)
			if err := tok.Rotate(hash, overlap, now); err != nil {
				continue
			}
			if err := tok.Check(); err != nil {
				rt.Fatalf("the rotated token: got %v, want one that a start accepts", err)
			}
			table.Put(tok)
			promises = append(promises, promise{secret, now.Add(overlap)})
			for i := range promises {
				if promises[i].until.After(now.Add(overlap)) {
					promises[i].until = now.Add(overlap)
				}
			}
			secret = next
			for _, p := range promises {
				if _, err := table.Verify([]byte(p.secret), now); (err == nil) != now.Before(p.until) {
					rt.Fatalf("%v before the end: got %v, want it valid %t", p.until.Sub(now), err, now.Before(p.until))
				}
			}
			if _, err := table.Verify([]byte(secret), now); err != nil {
				rt.Fatalf("the newest secret: got %v, want no error", err)
			}
		}
	})
}

func TestRotateOperator_EndsTheOldKeyOnEveryClock(t *testing.T) {
	var table access.Operators
	o, old := created(t, access.Credential{Kind: access.OperatorKind, Name: "ada"}, noon)
	_, hash := access.NewSecret(o.Kind)
	testkit.NoError(t, o.Rotate(hash, time.Hour, noon))
	table.Put(o)
	for _, now := range []time.Time{noon.Add(-48 * time.Hour), noon, noon.Add(time.Hour)} {
		if _, err := table.Verify([]byte(old), now); !errors.Is(err, access.ErrReplaced) {
			t.Errorf("the replaced key at %v: got %v, want %v", now, err, access.ErrReplaced)
		}
	}
}

// The rotation was not at a whole millisecond.
func TestCheck_LongestOverlap(t *testing.T) {
	tok, _ := issue(t, "d", noon)
	_, hash := access.NewSecret(access.TokenKind)
	testkit.NoError(t, tok.Rotate(hash, access.MaxOverlap, noon.Add(time.Millisecond-1)))
	testkit.NoError(t, tok.Check())
}

func TestIssue_MakesTheRequestedToken(t *testing.T) {
	at := noon.Add(123456789 * time.Nanosecond).In(time.FixedZone("", 3600))
	req := access.Credential{
		Kind:       access.TokenKind,
		Developer:  "Müller & Söhne 車",
		Operations: access.ThrottleSystem,
		Vehicles:   access.VehicleSet("A"),
		Rate:       access.Rate{Calls: 10, Window: time.Second},
		Expires:    at.Add(access.DefaultTokenLife),
	}
	tok, secret := created(t, req, at)
	if access.Check(access.TokenKind, []byte(secret)) != nil || tok.Hash != access.HashOf(secret) {
		t.Errorf("the token: got the secret %q and the hash %x, want its own", secret, tok.Hash)
	}
	if !regexp.MustCompile(`^cstid[0-9A-Za-z]{12}$`).MatchString(tok.Name) {
		t.Errorf("the ID: got %q, want cstid and 12 letters or digits", tok.Name)
	}
	if tok.Developer != req.Developer || tok.Operations != req.Operations || tok.Rate != req.Rate ||
		!tok.Vehicles.Include("A") {
		t.Errorf("the token: got %+v, want %+v", tok, req)
	}
	if tok.Created != noon.Add(123*time.Millisecond) || tok.Expires != tok.Created.Add(access.DefaultTokenLife) ||
		!tok.Ended.IsZero() {
		t.Errorf("the times: got %v, %v, %v; want %v, %v later, none", tok.Created, tok.Expires, tok.Ended,
			noon.Add(123*time.Millisecond), access.DefaultTokenLife)
	}

	req.Expires = time.Time{}
	if tok, _ = created(t, req, at); !tok.Expires.IsZero() {
		t.Errorf("a token that never expires: got %v, want no time", tok.Expires)
	}
}

func TestIssueRefuses(t *testing.T) {
	good := access.Credential{
		Kind: access.TokenKind, Developer: "d", Operations: access.AllOperations, Vehicles: access.AllVehicles(),
	}
	for name, spoil := range map[string]func(*access.Credential){
		"no developer":      func(r *access.Credential) { r.Developer = "" },
		"a long one":        func(r *access.Credential) { r.Developer = strings.Repeat("d", 201) },
		"a line break":      func(r *access.Credential) { r.Developer = "a\nb" },
		"an escape":         func(r *access.Credential) { r.Developer = "a\x1b[31m" },
		"invalid UTF-8":     func(r *access.Credential) { r.Developer = "\xff" },
		"no operation":      func(r *access.Credential) { r.Operations = 0 },
		"unknown operation": func(r *access.Credential) { r.Operations = 8 | access.AllOperations },
		"expired":           func(r *access.Credential) { r.Expires = noon },
		"calls a day":       func(r *access.Credential) { r.Rate = access.Rate{Calls: 5, Window: 24 * time.Hour} },
		"calls at no time":  func(r *access.Credential) { r.Rate = access.Rate{Calls: 5} },
	} {
		r := good
		spoil(&r)
		if _, secret, err := access.New(r, noon); err == nil || secret != "" {
			t.Errorf("%s: got the secret %q, %v; want an error alone", name, secret, err)
		}
	}
}

func TestAddSource(t *testing.T) {
	good := access.Credential{Kind: access.SourceKind, Name: "gateway-7_b", Vehicles: access.VehicleSet("A"),
		Expires: noon.Add(time.Hour), Strict: true}
	src, key := created(t, good, noon)
	if access.Check(access.SourceKind, []byte(key)) != nil || src.Hash != access.HashOf(key) {
		t.Errorf("the source: got the key %q and the hash %x, want its own", key, src.Hash)
	}
	if src.Name != "gateway-7_b" || !src.Vehicles.Include("A") || src.Created != noon ||
		src.Expires != noon.Add(time.Hour) || !src.Strict {
		t.Errorf("got %+v, want the source that was asked for", src)
	}
	refused := func(why string, spoil func(*access.Credential)) {
		t.Helper()
		r := good
		spoil(&r)
		if _, key, err := access.New(r, noon); err == nil || key != "" {
			t.Errorf("%s: got the key %q, %v; want an error alone", why, key, err)
		}
	}
	for _, name := range []string{"", "a b", "a.b", "a/b", "a*", "a>", "é", "a\x00", strings.Repeat("a", 65)} {
		refused("the name "+name, func(r *access.Credential) { r.Name = name })
	}
	refused("a source without vehicles", func(r *access.Credential) { r.Vehicles = access.Vehicles{} })
	refused("a source that is over before it begins", func(r *access.Credential) { r.Expires = noon })
}
