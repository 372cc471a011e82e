//go:build go1.26

package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"example.org/carstate/client"
)

// No error to which err unwraps may contain the token.
func mustBeClean(t testing.TB, err error) {
	t.Helper()
	if strings.ContainsAny(err.Error(), "\r\n") || err.Error() == "" {
		t.Errorf("the error: got %q, want one line", err)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		mustHide(t, fmt.Sprintf(verb, err))
	}
	switch w := err.(type) {
	case interface{ Unwrap() error }:
		if w.Unwrap() != nil {
			mustBeClean(t, w.Unwrap())
		}
	case interface{ Unwrap() []error }:
		for _, e := range w.Unwrap() {
			mustBeClean(t, e)
		}
	}
}

func mustHide(t testing.TB, s string) {
	t.Helper()
	for _, form := range []string{token, url.QueryEscape(token), url.PathEscape(token), fmt.Sprintf("%x", token)} {
		if strings.Contains(s, form) {
			t.Errorf("got the token, want it nowhere: %s", s)
		}
	}
}

func TestClient_PrintsNoToken(t *testing.T) {
	c := client.New("https://cars.example/api", token, client.WithHTTPClient(&http.Client{}))
	type holder struct {
		Client  *client.Client
		private *client.Client
		Value   client.Client
	}
	h := holder{c, c, *c}
	for _, v := range []any{c, *c, h, &h, []any{c}, map[string]any{"c": h}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%p", "%t"} {
			mustHide(t, fmt.Sprintf(verb, v))
		}
		var log bytes.Buffer
		slog.New(slog.NewTextHandler(&log, nil)).Info("asking", "client", v)
		slog.New(slog.NewJSONHandler(&log, nil)).Info("asking", "client", v)
		mustHide(t, log.String())
		text, err := json.Marshal(v)
		if err != nil {
			t.Errorf("a client as JSON: got %v, want no error", err)
		}
		mustHide(t, string(text))
	}
	const want = "carstate client of https://cars.example/api, token hidden"
	for _, got := range []string{c.String(), c.GoString(), c.LogValue().String(), fmt.Sprintf("%#v", c)} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	// Here the token is in the wrong place.
	mustHide(t, client.New("https://cars.example/"+token, token).String())
}

func TestRedirect(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("a redirect: got a request to %s, want none", r.Host)
	}))
	defer elsewhere.Close()
	for code := http.StatusMultipleChoices; code <= http.StatusPermanentRedirect; code++ {
		service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", elsewhere.URL+"/?"+r.URL.RawQuery)
			w.WriteHeader(code)
		}))
		defer service.Close()
		follows := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return nil }}
		for _, c := range []*client.Client{
			client.New(service.URL, token),
			client.New(service.URL, token, client.WithHTTPClient(follows)),
		} {
			_, err := c.CarDrivingState(t.Context(), "Car1")
			if !errors.Is(err, client.ErrBadAnswer) || !strings.Contains(err.Error(), "redirect") {
				t.Errorf("status %d: got error %v, want ErrBadAnswer about a redirect", code, err)
			}
			mustBeClean(t, err)
		}
		if follows.CheckRedirect(nil, nil) != nil {
			t.Error("the caller's client: got a change, want it as before")
		}
	}
}

// A process reads the environment's proxy only once, so a child calls.
func TestEnvironmentProxy(t *testing.T) {
	if os.Getenv("HTTP_PROXY") != "" && os.Getenv("HTTP_PROXY") == os.Getenv("ASK_THROUGH") {
		for _, base := range []string{"http://cars.invalid", "https://cars.invalid"} {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			_, err := client.New(base, token, client.WithPatience(0)).CarDrivingState(ctx, "Car1")
			cancel()
			mustBeClean(t, err)
		}
		return
	}
	asked := make(chan string, 10)
	proxy := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.RequestURI
	}))
	defer proxy.Close()
	cmd := exec.Command(os.Args[0], "-test.run", "^TestEnvironmentProxy$")
	cmd.Env = append(os.Environ(), "ASK_THROUGH="+proxy.URL, "HTTP_PROXY="+proxy.URL, "HTTPS_PROXY="+proxy.URL,
		"NO_PROXY=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the process with a proxy: got %v, want no error\n%s", err, out)
	}
	close(asked)
	var got []string
	for line := range asked {
		got = append(got, line)
	}
	if len(got) != 1 || got[0] != "CONNECT cars.invalid:443" {
		t.Errorf("the requests to the proxy: got %q, want CONNECT cars.invalid:443 alone", got)
	}
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (f transport) option() client.Option {
	return client.WithHTTPClient(&http.Client{Transport: f})
}

func TestTalkativeTransport(t *testing.T) {
	for name, f := range map[string]transport{
		"text": func(r *http.Request) (*http.Response, error) {
			return nil, fmt.Errorf("GET %s:\n no", r.URL)
		},
		"wrapped": func(r *http.Request) (*http.Response, error) {
			return nil, fmt.Errorf("round: %w", &url.Error{Op: "Get", URL: r.URL.String(), Err: errors.New("no")})
		},
		"unescaped": func(r *http.Request) (*http.Response, error) {
			return nil, errors.New("the token " + r.URL.Query().Get("access_token") + " is not liked")
		},
	} {
		_, err := client.New("https://cars.example", token, f.option()).ThrottleSystem(t.Context(), "Car1")
		if !errors.Is(err, client.ErrUnreachable) {
			t.Errorf("%s: got error %v, want ErrUnreachable", name, err)
		}
		mustBeClean(t, err)
	}
}
