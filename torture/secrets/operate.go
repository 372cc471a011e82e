package secrets

import (
	"context"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"carstate/bench/must"
	"carstate/internal/nodeprocess"
)

// operate makes all calls of the admin API, with each secret.
func (r *round) operate(ctx context.Context) {
	for _, card := range r.cards {
		for _, i := range r.rng.Perm(len(calls)) {
			method, rest, _ := strings.Cut(r.fill(card, calls[i]), " ")
			path, body, _ := strings.Cut(rest, " ")
			for _, key := range []string{"Bearer " + r.admin.Key, "Bearer " + card.text, "Basic " + card.text, ""} {
				if key == "Bearer "+r.admin.Key && strings.Contains(calls[i], `"name":"TOKEN"`) && r.rng.IntN(4) > 0 {
					continue // now and then is enough for calls that create something
				}
				head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n", method, path)
				if key != "" {
					head += "Authorization: " + key + "\r\n"
				}
				if body != "" {
					head += fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
				}
				r.send(ctx, "the answer of the admin API to `"+calls[i]+"`", nodeprocess.Admin, head+"\r\n"+body,
					nil)
			}
		}
		r.send(ctx, "the answers of the admin API", nodeprocess.Admin,
			"GET / HTTP/1.1\r\nHost: "+card.text+"\r\nOrigin: http://"+card.text+
				"\r\nCookie: carstate-session="+card.text+"\r\nConnection: close\r\n\r\n", nil)
	}
}

// Patterns for finding values in a page and its header.
var (
	secretPattern = regexp.MustCompile(`cs[a-z]*_[0-9A-Za-z]{36}`)
	cookiePattern = regexp.MustCompile(`(?i)\r\nSet-Cookie: carstate-session=([^;\r]*); Path=([^;\r]*)`)
	markPattern   = regexp.MustCompile(`name="mark" value="([^"]+)"`)
	rotatePattern = regexp.MustCompile(`action="/s/\w+(/(?:tokens|sources|operators)/[^"]+/rotate)"`)
)

// browse uses the console like a person. It tries wrong keys, logs in with right keys, and submits
// forms.
func (r *round) browse(ctx context.Context) {
	for _, card := range r.cards[:given] { // a copy of the slice, since the console adds new secrets
		for _, form := range logins {
			b := browser{round: r}
			b.do(ctx, "POST /login?key="+card.text, r.fill(card, form))
		}
	}
	for _, who := range []string{"the admin key", "a rotated operator's key"} {
		b := browser{round: r}
		b.do(ctx, "POST /login", "next=/tokens&key="+r.text(who))
		if b.cookie == "" {
			must.Fail("%s did not open the console", who)
		}
		b.pages(ctx)
		for _, card := range r.cards[:given] {
			for _, page := range pages {
				method, rest, _ := strings.Cut(r.fill(card, page), " ")
				path, form, _ := strings.Cut(rest, " ")
				b.do(ctx, method+" "+path, form)
			}
		}
		b.do(ctx, "POST /logout", "")
	}
}

// browser keeps the cookie of a session, and the path with which its pages begin.
type browser struct {
	*round
	cookie string
	root   string
}

// do requests a page. A secret on the page is a new secret to search for.
func (b *browser) do(ctx context.Context, what, form string) string {
	// HTTP/1.0 has no chunked encoding, which could split a secret.
	method, path, _ := strings.Cut(what, " ")
	text := method + " " + b.root + strings.TrimSuffix(path, "/") + " HTTP/1.0\r\n" +
		"Host: " + b.node.Address(nodeprocess.Admin) + "\r\n" +
		"Connection: close\r\nCookie: carstate-session=" + b.cookie + "\r\n"
	if strings.HasPrefix(what, "POST ") {
		text += fmt.Sprintf("Content-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n", len(form))
	}
	answer := b.send(ctx, "a page of the console, `"+what+"`", nodeprocess.Admin, text+"\r\n"+form, nil)
	head, page, _ := strings.Cut(string(answer), "\r\n\r\n")
	if cookie := cookiePattern.FindStringSubmatch(head); cookie != nil {
		if b.cookie, b.root = cookie[1], cookie[2]; b.cookie != "" {
			b.secrets.add("the cookie of a session", b.cookie, 0)
		}
	}
	if strings.HasPrefix(head, "HTTP/1.0 201") {
		for _, secret := range secretPattern.FindAllString(page, 1) {
			b.newSecret("a secret that the console handed out", secret)
			b.succeeded(what)
		}
	}
	return page
}

// pages requests all pages, and submits the forms that create a secret.
func (b *browser) pages(ctx context.Context) {
	for _, path := range []string{"/tokens", "/sources", "/operators"} {
		page := b.do(ctx, "GET "+path, "")
		form := url.Values{"developer": {"Ada"}, "operation": {"throttle_system"}, "scope": {"all"}, "days": {"30"},
			"name": {"n" + fmt.Sprint(b.rng.IntN(1e9))}}
		if mark := markPattern.FindStringSubmatch(page); mark != nil {
			form.Set("mark", mark[1])
		}
		for range 2 { // the second time is refused
			b.do(ctx, "POST "+path, form.Encode())
		}
		page = b.do(ctx, "GET "+path, "")
		if to := rotatePattern.FindStringSubmatch(page); to != nil && path != "/operators" {
			form.Set("mark", fmt.Sprint(b.rng.Uint64()))
			form.Set("overlap", "0")
			b.do(ctx, "POST "+to[1], form.Encode())
		}
	}
	for _, path := range []string{"/", "/vehicles", "/vehicles/" + b.vid, "/tokens", "/sources", "/operators", "/audit"} {
		b.do(ctx, "GET "+path, "")
	}
}
