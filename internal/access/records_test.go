package access_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/access"
)

func TestIssue_MakesTheRequestedToken(t *testing.T) {
	at := noon.Add(123456789 * time.Nanosecond).In(time.FixedZone("", 3600))
	req := access.Request{
		Kind:       access.TokenKind,
		Developer:  "Müller & Söhne 車",
		Operations: access.ThrottleSystem,
		Vehicles:   access.VehicleSet("A"),
		Rate:       access.Rate{Calls: 10, Window: time.Second},
		Expires:    at.Add(access.DefaultTokenLife),
	}
	tok, secret := created(t, req, at)
	if access.Check(access.TokenKind, []byte(secret)) != nil || tok.Hash != access.HashOf(secret) {
		t.Error("the secret is not the token's")
	}
	if !regexp.MustCompile(`^cstid[0-9A-Za-z]{12}$`).MatchString(tok.Name) {
		t.Errorf("ID %q", tok.Name)
	}
	if tok.Developer != req.Developer || tok.Operations != req.Operations || tok.Rate != req.Rate ||
		!tok.Vehicles.Include("A") {
		t.Errorf("the record is not what was asked for: %+v", tok)
	}
	if tok.Created != noon.Add(123*time.Millisecond) || tok.Expires != tok.Created.Add(access.DefaultTokenLife) ||
		!tok.Ended.IsZero() {
		t.Errorf("times: %v, %v, %v", tok.Created, tok.Expires, tok.Ended)
	}

	req.Expires = time.Time{}
	if tok, _ = created(t, req, at); !tok.Expires.IsZero() {
		t.Errorf("one that never expires: %v", tok.Expires)
	}
}

func TestIssueRefuses(t *testing.T) {
	good := access.Request{
		Kind: access.TokenKind, Developer: "d", Operations: access.AllOperations, Vehicles: access.AllVehicles(),
	}
	for name, spoil := range map[string]func(*access.Request){
		"no developer":      func(r *access.Request) { r.Developer = "" },
		"a long one":        func(r *access.Request) { r.Developer = strings.Repeat("d", 201) },
		"a line break":      func(r *access.Request) { r.Developer = "a\nb" },
		"an escape":         func(r *access.Request) { r.Developer = "a\x1b[31m" },
		"invalid UTF-8":     func(r *access.Request) { r.Developer = "\xff" },
		"no operation":      func(r *access.Request) { r.Operations = 0 },
		"unknown operation": func(r *access.Request) { r.Operations = 8 | access.AllOperations },
		"expired":           func(r *access.Request) { r.Expires = noon },
		"calls a day":       func(r *access.Request) { r.Rate = access.Rate{Calls: 5, Window: 24 * time.Hour} },
		"calls at no time":  func(r *access.Request) { r.Rate = access.Rate{Calls: 5} },
	} {
		r := good
		spoil(&r)
		if _, secret, err := access.New(r, noon); err == nil || secret != "" {
			t.Errorf("%s: issued", name)
		}
	}
}

func TestAddSource(t *testing.T) {
	good := access.Request{Kind: access.SourceKind, Name: "gateway-7_b", Vehicles: access.VehicleSet("A"),
		Expires: noon.Add(time.Hour), Strict: true}
	src, key := created(t, good, noon)
	if access.Check(access.SourceKind, []byte(key)) != nil || src.Hash != access.HashOf(key) {
		t.Error("the key is not the source's")
	}
	if src.Name != "gateway-7_b" || !src.Vehicles.Include("A") || src.Created != noon ||
		src.Expires != noon.Add(time.Hour) || !src.Strict {
		t.Errorf("got %+v, want the source that was asked for", src)
	}
	refused := func(why string, spoil func(*access.Request)) {
		t.Helper()
		r := good
		spoil(&r)
		if _, key, err := access.New(r, noon); err == nil || key != "" {
			t.Errorf("%s was accepted", why)
		}
	}
	for _, name := range []string{"", "a b", "a.b", "a/b", "a*", "a>", "é", "a\x00", strings.Repeat("a", 65)} {
		refused("the name "+name, func(r *access.Request) { r.Name = name })
	}
	refused("a source without vehicles", func(r *access.Request) { r.Vehicles = access.Vehicles{} })
	refused("a source that is over before it begins", func(r *access.Request) { r.Expires = noon })
}
