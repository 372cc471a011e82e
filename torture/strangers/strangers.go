// Package strangers is the row with very many unknown callers. The service must keep nothing of
// them.
package strangers

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"example.org/carstate/bench/must"
	"example.org/carstate/internal/access"
	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/torture/mqtt"
	"example.org/carstate/torture/row"
)

var Row = row.Row{
	Name: "strangers", Counts: "unknown tokens and vids over HTTP", CI: 1_000_000,
	Run: run,
}

func run(ctx context.Context, a *row.Attempt) {
	// Unknown tokens and unknown vehicles count.
	const counted = 2
	strangers := a.Count * kinds / counted
	n := must.Get(a.Start(ctx, "--trusted-proxies", "127.0.0.0/8"))
	defer n.Kill()
	k := fill(ctx, n)
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
	a.AtMost("memory used after them", float64(memoryAfter-memory)/(1<<20), "MiB", 16)
	a.Figure("series of metrics before and after", float64(seriesAfter), "")
	k.checkAfterwards(ctx, a)
}

func (k *known) size(ctx context.Context) (memory int64, series int) {
	m := must.Get(k.node.Metrics(ctx))
	return must.Get(k.node.Resident()), len(m)
}

const (
	ownCar   = "Car1"
	otherCar = "X1"
)

// Stranger i is of kind i modulo kinds.
const (
	unknownToken = iota
	malformedToken
	noToken
	unknownVehicle
	notGranted
	kinds
)

func (k *known) askQuery(i int, r *rand.Rand) string {
	path, param, token, vid := nodeprocess.DrivingPath, "access_token", "", ownCar
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
		token, vid = k.right, "X"+text(20, r)
	case notGranted:
		token, vid = k.granted, otherCar
	}
	return "GET " + path + "?" + param + "=" + token + "&vid=" + vid +
		" HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: " + address(i) + "\r\n\r\n"
}

func checkQuery(i int, a *http.Response, body []byte) error {
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

func refused(a *http.Response, want int, challenge string) error {
	if got := a.Header.Get("Www-Authenticate"); a.StatusCode != want || got != challenge {
		return fmt.Errorf("a stranger got %d, challenged with %q, not %d", a.StatusCode, got, want)
	}
	return nil
}

func (k *known) askIngest(i int, r *rand.Rand) string {
	key := k.key
	if i%2 == 0 {
		key, _ = access.NewSecret(access.SourceKind)
	}
	body := fmt.Sprintf(`{"vid":"X%s","time":%d,"signals":{"Vehicle.Speed":50}}`, text(20, r), time.Now().UnixMilli())
	return row.Upload(key, "application/json", len(body)) + body
}

func checkIngest(i int, a *http.Response, _ []byte) error {
	if i%2 == 1 {
		return refused(a, 403, `Bearer realm="carstate-ingest", error="insufficient_scope"`)
	}
	return refused(a, 401, `Bearer realm="carstate-ingest", error="invalid_token"`)
}

func askAdmin(int, *rand.Rand) string {
	key, _ := access.NewSecret(access.AdminKind)
	return "GET /v1/tokens HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + key + "\r\n\r\n"
}

func checkAdmin(_ int, a *http.Response, _ []byte) error {
	return refused(a, 401, `Bearer realm="carstate-admin", error="invalid_token"`)
}

func text(n int, r *rand.Rand) string {
	const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	b := make([]byte, n)
	for i := range b {
		b[i] = base62[r.IntN(len(base62))]
	}
	return string(b)
}

func address(i int) string {
	spread := uint32(i) * 2654435761 // multiplication by an odd number is injective
	if i%2 == 0 {
		return netip.AddrFrom4([4]byte{byte(spread >> 24), byte(spread >> 16), byte(spread >> 8), byte(spread)}).String()
	}
	return fmt.Sprintf("2001:db8:%x:%x::1", spread>>16, spread&0xffff)
}

type visit struct {
	what, listener string
	part           int // one stranger in part comes here
	ask            func(i int, r *rand.Rand) string
	check          func(i int, a *http.Response, body []byte) error

	*row.Attempt
	addr     string
	from, to int
	answered atomic.Int64
}

func (k *known) visits(ctx context.Context, a *row.Attempt, from, to int) {
	for _, v := range []*visit{
		{what: "query", listener: nodeprocess.Query, part: 1, ask: k.askQuery, check: checkQuery},
		{what: "ingest", listener: nodeprocess.Ingest, part: 20, ask: k.askIngest, check: checkIngest},
		{what: "admin", listener: nodeprocess.Admin, part: 100, ask: askAdmin, check: checkAdmin},
		{what: "MQTT", listener: nodeprocess.MQTT, part: 100},
	} {
		v.Attempt, v.addr, v.from, v.to = a, k.node.Address(v.listener), from/v.part, to/v.part
		if v.ask != nil {
			v.each(ctx, crowdSize, v.crowd)
		} else {
			v.each(ctx, 1, v.car)
		}
		must.Do(ctx.Err())
		came, answered := v.to-v.from, int(v.answered.Load())
		a.Offered(came)
		a.Acknowledged(answered)
		if came != answered {
			must.Fail("%s: %d of %d were answered", v.what, answered, came)
		}
	}
}

const (
	callers   = 4
	crowdSize = 10_000
)

func (v *visit) each(ctx context.Context, step int, do func(ctx context.Context, i int)) {
	must.Together(ctx, callers, func(ctx context.Context, c int) {
		for i := v.from + c*step; i < v.to && ctx.Err() == nil; i += callers * step {
			do(ctx, i)
		}
	})
}

func (v *visit) dial(ctx context.Context, i int) net.Conn {
	d := net.Dialer{Timeout: 10 * time.Second,
		LocalAddr: &net.TCPAddr{IP: net.IPv4(127, byte(1+i>>16&0x3f), byte(i>>8), byte(i))}}
	conn := must.Get(d.DialContext(ctx, "tcp", v.addr))
	must.Do(conn.SetDeadline(time.Now().Add(time.Minute)))
	return conn
}

func (v *visit) crowd(ctx context.Context, first int) {
	n := min(crowdSize, v.to-first)
	conn := v.dial(ctx, first)
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	sent := make(chan error, 1)
	go func() {
		r := v.Rand(first)
		out := bufio.NewWriterSize(conn, 16<<10)
		for i := range n {
			_, _ = out.WriteString(v.ask(first+i, r))
		}
		sent <- out.Flush()
	}()
	in := bufio.NewReaderSize(conn, 16<<10)
	if err := must.Caught(func() { v.listen(in, first, n) }); err != nil {
		must.Fail("a connection to %s broke: %w", v.addr, errors.Join(err, conn.Close(), <-sent))
	}
	if in.Buffered() > 0 {
		v.Wrong("%s: an answer without a request", v.what)
	}
	must.Do(<-sent)
}

func (v *visit) listen(in *bufio.Reader, first, n int) {
	reported := false
	for i := range n {
		resp := must.Get(http.ReadResponse(in, nil))
		body := must.Get(io.ReadAll(resp.Body))
		v.answered.Add(1)
		if err := v.check(first+i, resp, body); err != nil && !reported {
			reported = true
			v.Wrong("%s: %v", v.what, err)
		}
	}
}

func (v *visit) car(ctx context.Context, i int) {
	conn := v.dial(ctx, i)
	defer conn.Close()
	r := v.Rand(i)
	login := mqtt.Login{Protocol: "MQTT", Version: byte(4 + i%2), Flags: 2, KeepAlive: 60, ID: text(12, r),
		User: text(8, r)}
	login.Key, _ = access.NewSecret(access.SourceKind)
	must.Get(conn.Write(login.Packet()))
	answer, err := io.ReadAll(io.LimitReader(conn, 1<<10))
	if len(answer) < 4 || answer[0] != 0x20 {
		must.Fail("an unknown car received %d bytes instead of a CONNACK: %w", len(answer), err)
	}
	// MQTT 3.1.1: 4 bad user name or password, 5 not authorised; MQTT 5: 0x86, 0x87.
	if code := answer[3]; code != 4 && code != 5 && code != 0x86 && code != 0x87 {
		v.Wrong("an unknown car was answered with %#x", code)
	}
	v.answered.Add(1)
}

type known struct {
	node    *nodeprocess.Node
	right   string
	granted string // valid only for ownCar
	key     string // may send for ownCar only
}

func fill(ctx context.Context, n *nodeprocess.Node) *known {
	c, one := must.Get(n.AdminClient()), access.VehicleSet(ownCar)
	gateway := must.Get(n.AddSource(ctx, "gateway"))
	k := &known{node: n, right: must.Get(n.IssueToken(ctx, "Ada")).AccessToken}
	k.key = must.Get(c.AddSource(ctx, access.Credential{Name: "small", Vehicles: one, Rate: access.NoRate})).Key
	k.granted = must.Get(c.IssueToken(ctx, access.Credential{Developer: "Bob", Operations: access.AllOperations,
		Vehicles: one})).AccessToken
	row.Feed(ctx, n, gateway, fmt.Sprintf(`{"vid":"Car1","time":%[1]d,"signals":{"Vehicle.Speed":50}}`+"\n"+
		`{"vid":"X1","time":%[1]d,"signals":{"Vehicle.Speed":50}}`, time.Now().UnixMilli()))
	must.Do(k.answers(ctx))
	return k
}

func (k *known) answers(ctx context.Context) error {
	for _, vid := range []string{ownCar, otherCar} {
		if err := k.node.AwaitAnswer(ctx, time.Minute, k.right, vid, time.Time{}); err != nil {
			return err
		}
	}
	return nil
}

func (k *known) checkAfterwards(ctx context.Context, a *row.Attempt) {
	if err := k.answers(ctx); err != nil {
		a.Wrong("after the strangers, with a valid token: %v", err)
	}
	if _, err := must.Get(k.node.AdminClient()).Tokens(ctx); err != nil {
		a.Wrong("after the strangers, the right admin key: %v", err)
	}
}
