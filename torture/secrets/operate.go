package secrets

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"carstate/internal/nodeprocess"
)

// operate calls the admin API in all ways.
func (r *round) operate(ctx context.Context) error {
	for _, card := range r.cards {
		for _, i := range r.rng.Perm(len(calls)) {
			method, rest, _ := strings.Cut(r.fill(card, calls[i]), " ")
			path, body, _ := strings.Cut(rest, " ")
			for _, key := range []string{"Bearer " + r.admin.Key, "Bearer " + card.text, "Basic " + card.text, ""} {
				if key == "Bearer "+r.admin.Key && strings.Contains(calls[i], `"name":"TOKEN"`) && r.rng.IntN(4) > 0 {
					continue // once in a while is enough where something may be made
				}
				head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n", method, path)
				if key != "" {
					head += "Authorization: " + key + "\r\n"
				}
				if body != "" {
					head += fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
				}
				answer, err := r.send(ctx, nodeprocess.Admin, []byte(head+"\r\n"+body), nil)
				if err != nil {
					return err
				}
				r.look("the answer of the admin API to `"+calls[i]+"`", answer, r.secrets)
			}
		}
		answer, err := r.send(ctx, nodeprocess.Admin, []byte("GET / HTTP/1.1\r\nHost: "+card.text+"\r\nOrigin: http://"+card.text+"\r\nCookie: carstate-session="+card.text+"\r\nConnection: close\r\n\r\n"), nil)
		if err != nil {
			return err
		}
		r.look("the answers of the admin API", answer, r.secrets)
	}
	return nil
}

// secretPattern is what a secret looks like that a page shows.
var (
	secretPattern = regexp.MustCompile(`cs[a-z]*_[0-9A-Za-z]{36}`)
	markPattern   = regexp.MustCompile(`name="mark" value="([^"]+)"`)
	rotatePattern = regexp.MustCompile(`action="(/(?:tokens|sources|operators)/[^"]+/rotate)"`)
)

// browse uses the console as a person does: wrong keys, right ones, its forms.
func (r *round) browse(ctx context.Context) error {
	b := browser{r: r, client: &http.Client{Timeout: patience, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	for _, card := range r.cards[:given] { // the console hands out more meanwhile
		for _, form := range []url.Values{
			{"key": {card.text}, "next": {"/" + card.text}, "who": {card.text}},
			{"key": {card.text + "x"}, "next": {"//" + card.text}}, {card.text: {card.text}},
		} {
			if _, err := b.do(ctx, "POST", "/login?key="+card.text, form); err != nil {
				return err
			}
			b.cookie = ""
		}
	}
	for _, who := range []string{"the admin key", "a rotated operator's key"} {
		if _, err := b.do(ctx, "POST", "/login", url.Values{"key": {r.text(who)}, "next": {"/tokens"}}); err != nil {
			return err
		}
		if b.cookie == "" {
			return fmt.Errorf("%s did not open the console", who)
		}
		if err := b.pages(ctx); err != nil {
			return err
		}
		for _, card := range r.cards[:given] {
			if err := b.misuse(ctx, card.text); err != nil {
				return err
			}
		}
		if _, err := b.do(ctx, "POST", "/logout", nil); err != nil {
			return err
		}
	}
	return nil
}

// browser keeps a session's cookie.
type browser struct {
	r      *round
	client *http.Client
	cookie string
}

// do asks for a page and looks through it. A secret that it shows is one more to
// look for from then on.
func (b *browser) do(ctx context.Context, method, path string, form url.Values) (string, error) {
	req, err := http.NewRequestWithContext(ctx, method, b.r.node.URL(nodeprocess.Admin)+path, strings.NewReader(form.Encode()))
	if err != nil {
		return "", err
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if b.cookie != "" {
		req.Header.Set("Cookie", "carstate-session="+b.cookie)
	}
	b.r.a.Offered(1)
	resp, err := b.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	var head bytes.Buffer
	fresh := ""
	for _, c := range resp.Cookies() {
		fresh = c.Value
	}
	if err := resp.Header.Write(&head); err != nil {
		return "", err
	}
	text := append(head.Bytes(), page...)
	b.r.answered(text)
	b.r.look(fmt.Sprintf("a page of the console, %d `%s %s`", resp.StatusCode, method, path), text, b.r.secrets)
	if fresh != "" {
		b.cookie = fresh
		b.r.secrets.add("the cookie of a session", fresh, 0)
	}
	if resp.StatusCode == http.StatusCreated {
		for _, secret := range secretPattern.FindAllString(string(page), 1) {
			b.r.newSecret("a secret that the console handed out", secret)
			b.r.succeeded(method + " " + path)
		}
	}
	return string(page), nil
}

// pages goes through all pages, and the forms that hand out a secret.
func (b *browser) pages(ctx context.Context) error {
	for _, path := range []string{"/tokens", "/sources", "/operators"} {
		page, err := b.do(ctx, "GET", path, nil)
		if err != nil {
			return err
		}
		form := url.Values{"developer": {"Ada"}, "operation": {"throttle_system"}, "scope": {"all"}, "days": {"30"}, "name": {"n" + fmt.Sprint(b.r.rng.IntN(1e9))}}
		if mark := markPattern.FindStringSubmatch(page); mark != nil {
			form.Set("mark", mark[1])
		}
		for range 2 { // the second time it is refused
			if _, err := b.do(ctx, "POST", path, form); err != nil {
				return err
			}
		}
		if page, err = b.do(ctx, "GET", path, nil); err != nil {
			return err
		}
		if to := rotatePattern.FindStringSubmatch(page); to != nil && path != "/operators" {
			form.Del("mark")
			form.Set("mark", fmt.Sprint(b.r.rng.Uint64()))
			form.Set("overlap", "0")
			if _, err := b.do(ctx, "POST", to[1], form); err != nil {
				return err
			}
		}
	}
	for _, path := range []string{"/", "/vehicles", "/vehicles/" + b.r.vid, "/tokens", "/sources", "/operators", "/audit"} {
		if _, err := b.do(ctx, "GET", path, nil); err != nil {
			return err
		}
	}
	return nil
}

// misuse puts a secret into paths and forms that ask for something else.
func (b *browser) misuse(ctx context.Context, secret string) error {
	for _, path := range []string{"/audit?before=" + secret, "/" + secret, "/vehicles/" + secret, "/assets/" + secret} {
		if _, err := b.do(ctx, "GET", path, nil); err != nil {
			return err
		}
	}
	for path, form := range map[string]url.Values{
		"/vehicles": {"vid": {secret}}, "/tokens": {"developer": {secret}, "rate": {secret}, "scope": {"list"}, "vehicles": {secret}, "mark": {"m" + secret}},
		"/sources": {"name": {secret}, "scope": {"list"}, "vehicles": {secret}, "mark": {"n" + secret}}, "/operators": {"name": {secret}, "mark": {"o" + secret}},
		"/tokens/" + secret + "/revoke": nil, "/sources/" + secret + "/remove": nil, "/operators/" + secret + "/rotate": {"mark": {"p" + secret}},
		"/vehicles/" + secret + "/forget": {"vid": {secret}},
	} {
		if _, err := b.do(ctx, "POST", path, form); err != nil {
			return err
		}
	}
	return nil
}
