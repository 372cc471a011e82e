// Package strangers is a row (one test) of the torture, with very many unknown callers. Their
// tokens, vehicles, keys and names do not exist, and each caller has an address of its own. The row
// checks that the service keeps no data about them.
package strangers

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"time"

	"carstate/bench/must"
	"carstate/internal/access"
	"carstate/internal/nodeprocess"
	"carstate/torture/defects"
	"carstate/torture/row"
)

//go:embed row.md.tmpl
var prose string

// Row is row 7 of the torture: very many callers that the service does not know.
var Row = row.Row{
	Number: 7, Name: "strangers", Title: "Strangers in great numbers", Text: prose,
	Counts: "unknown tokens and vids over HTTP", CI: 1_000_000, Long: 10_000_000,
	Controls: defects.Controls("strangers", "unbounded-strangers", "series-by-vehicle"),
	Run:      run,
}

func run(ctx context.Context, a *row.Attempt) {
	// counted is the number of kinds of strangers that are part of the row's count: those with
	// an unknown token, and those that query an unknown vehicle.
	const counted = 2
	strangers := a.Count * kinds / counted
	n := must.Get(a.Start(ctx, "--trusted-proxies", "127.0.0.0/8"))
	defer n.Kill()
	k := fill(ctx, n)
	// Measure twice: after the first few strangers of each kind, enough that every listener
	// sees some, and after all strangers.
	few := min(max(strangers/20, 4000), strangers/2)
	k.visits(ctx, a, 0, few)
	memory, series := k.size(ctx)
	began := time.Now()
	k.visits(ctx, a, few, strangers)
	a.Figure("duration of all strangers", time.Since(began).Seconds(), "s")
	memoryAfter, seriesAfter := k.size(ctx)
	if series != seriesAfter {
		a.Wrong("there were %d series of metrics, then %d", series, seriesAfter)
	}
	a.AtMost("memory used after them", float64(memoryAfter-memory)/(1<<20), "MiB", 16) // of all strangers together
	a.Figure("series of metrics before and after", float64(seriesAfter), "")
	k.checkAfterwards(ctx, a)

}

// size returns the node's memory and its number of metric series.
func (k *known) size(ctx context.Context) (memory int64, series int) {
	m := must.Get(k.node.Metrics(ctx))
	return must.Get(k.node.Resident()), len(m)
}

// endpoint is a listener that speaks HTTP, with the requests that strangers (callers that the
// service does not know) send to it. ask returns the request of stranger i. check returns an error
// if the answer to that request is wrong.
type endpoint interface {
	ask(i int, r *rand.Rand) string
	check(i int, a *http.Response, body []byte) error
}

// queryEndpoint is the query listener behind a proxy that it trusts.
type queryEndpoint struct {
	right   string // a valid token
	granted string // a token that is valid only for vid
	vid     string // a vehicle with an answer
	other   string // another vehicle with an answer; like unknown vehicles, it begins with X
}

// The kinds of strangers. Stranger i is of kind i modulo kinds.
const (
	unknownToken = iota
	malformedToken
	noToken
	unknownVehicle
	notGranted
	kinds
)

func (d *queryEndpoint) ask(i int, r *rand.Rand) string {
	path, param, token, vid := nodeprocess.DrivingPath, "access_token", "", d.vid
	if i%2 == 1 {
		path = nodeprocess.ThrottlePath
	}
	switch i % kinds {
	case unknownToken:
		token, _ = access.NewSecret(access.TokenKind)
	case malformedToken:
		token = text(1+r.IntN(60), r)
	case noToken:
		param = "token"
	case unknownVehicle:
		token, vid = d.right, "X"+text(20, r)
	case notGranted:
		token, vid = d.granted, d.other
	}
	return "GET " + path + "?" + param + "=" + token + "&vid=" + vid +
		" HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: " + address(i) + "\r\n\r\n"
}

func (d *queryEndpoint) check(i int, a *http.Response, body []byte) error {
	want, challenge, begins := 401, `Bearer realm="carstate", error="invalid_token"`, `{"code":401,"msg":"invalid_token: `
	switch i % kinds {
	case noToken:
		challenge = `Bearer realm="carstate"`
	case unknownVehicle, notGranted:
		want, challenge, begins = 200, "", `{"code":200,"msg":"success","data":{"vid":"X`
		if a.Header.Get("Carstate-Reason") != "unknown" || !bytes.Contains(body, []byte(`"status":0`)) {
			return errors.New("an unknown vehicle has an answer")
		}
	}
	if !bytes.HasPrefix(body, []byte(begins)) {
		return fmt.Errorf("a stranger of kind %d got %d %.80q", i%kinds, a.StatusCode, body)
	}
	return refused(a, want, challenge)
}

// refused returns an error unless the answer to a stranger has the status want and the given
// challenge (header WWW-Authenticate).
func refused(a *http.Response, want int, challenge string) error {
	if got := a.Header.Get("Www-Authenticate"); a.StatusCode != want || got != challenge {
		return fmt.Errorf("a stranger got %d, challenged with %q, not %d", a.StatusCode, got, want)
	}
	return nil
}

// ingestEndpoint is the ingest listener.
type ingestEndpoint struct{ key string } // of a source that may send for one vehicle only

func (d *ingestEndpoint) ask(i int, r *rand.Rand) string {
	key := d.key
	if i%2 == 0 {
		key, _ = access.NewSecret(access.SourceKind)
	}
	body := fmt.Sprintf(`{"vid":"X%s","time":%d,"signals":{"Vehicle.Speed":50}}`, text(20, r), time.Now().UnixMilli())
	return fmt.Sprintf("POST /v1/telemetry HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
		"Authorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", key, len(body), body)
}

func (d *ingestEndpoint) check(i int, a *http.Response, _ []byte) error {
	if i%2 == 1 {
		return refused(a, 403, `Bearer realm="carstate-ingest", error="insufficient_scope"`)
	}
	return refused(a, 401, `Bearer realm="carstate-ingest", error="invalid_token"`)
}

// adminEndpoint is the admin listener. Each second, it answers a few requests with wrong keys with
// status 401, and the others with status 429.
type adminEndpoint struct{}

func (adminEndpoint) ask(int, *rand.Rand) string {
	key, _ := access.NewSecret(access.AdminKind)
	return "GET /v1/tokens HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + key + "\r\n\r\n"
}

func (adminEndpoint) check(_ int, a *http.Response, _ []byte) error {
	if a.StatusCode == 401 && a.Header.Get("Www-Authenticate") != "" || a.StatusCode == 429 &&
		a.Header.Get("Retry-After") != "" {
		return nil
	}
	return fmt.Errorf("the admin listener answered a wrong key with %d", a.StatusCode)
}

// text returns n random characters.
func text(n int, r *rand.Rand) string {
	const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	b := make([]byte, n)
	for i := range b {
		b[i] = base62[r.IntN(len(base62))]
	}
	return string(b)
}

// address returns the address of stranger i. It is different for each stranger, and IPv4 and IPv6
// addresses alternate.
func address(i int) string {
	spread := uint32(i) * 2654435761 // multiplication by an odd number is injective
	if i%2 == 0 {
		return netip.AddrFrom4([4]byte{byte(spread >> 24), byte(spread >> 16), byte(spread >> 8), byte(spread)}).String()
	}
	return fmt.Sprintf("2001:db8:%x:%x::1", spread>>16, spread&0xffff)
}
