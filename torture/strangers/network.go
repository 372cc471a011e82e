package strangers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"carstate/bench/must"
	"carstate/internal/access"
	"carstate/internal/nodeprocess"
	"carstate/torture/mqtt"
	"carstate/torture/row"
)

// visit is a range of strangers who call one listener. A stranger is a caller that the service does
// not know, and has a number.
type visit struct {
	*row.Attempt
	what, addr string
	from, to   int
	answered   atomic.Int64
}

// visits sends a range of strangers to the listeners. Their numbers begin at the parameter from and
// end before the parameter to. All of them call the query listener, and a part of them call the
// other listeners.
func (k *known) visits(ctx context.Context, a *row.Attempt, from, to int) {
	for _, x := range []struct {
		what, listener string
		endpoint       endpoint // nil: the listener speaks MQTT
		part           int
	}{
		{"query", nodeprocess.Query, &k.query, 1},
		{"ingest", nodeprocess.Ingest, &k.ingest, 20},
		{"admin", nodeprocess.Admin, adminEndpoint{}, 100},
		{"MQTT", nodeprocess.MQTT, nil, 100},
	} {
		v := &visit{Attempt: a, what: x.what, addr: k.node.Address(x.listener), from: from / x.part, to: to / x.part}
		if x.endpoint != nil {
			v.each(ctx, crowdSize, func(ctx context.Context, first int) {
				v.crowd(ctx, x.endpoint, first, min(crowdSize, v.to-first))
			})
		} else {
			v.each(ctx, 1, v.car)
		}
		must.Do(ctx.Err())
		came, answered := v.to-v.from, int(v.answered.Load())
		a.Offered(came)
		a.Acknowledged(answered)
		if came != answered {
			must.Fail("%s: %d of %d were answered", x.what, answered, came)
		}
	}
}

// callers is the number of connections that strangers use at a time. crowdSize is the number of
// strangers that share one HTTP connection; by MQTT, each has its own.
const (
	callers   = 4
	crowdSize = 10_000
)

// each calls do for every step-th stranger of the visit, in several goroutines, until one call
// fails.
func (v *visit) each(ctx context.Context, step int, do func(ctx context.Context, i int)) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for i := range next {
				if err := must.Caught(func() { do(ctx, i) }); err != nil && ctx.Err() == nil {
					cancel(err)
				}
			}
		})
	}
	for i := v.from; i < v.to && ctx.Err() == nil; i += step {
		next <- i
	}
	close(next)
	all.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		must.Do(err)
	}
}

// ownAddress returns a loopback address for stranger i.
func ownAddress(i int) net.IP { return net.IPv4(127, byte(1+i>>16&0x3f), byte(i>>8), byte(i)) }

// dial connects from the address of stranger i. The connection may be used for a minute; after
// that, reads and writes fail.
func (v *visit) dial(ctx context.Context, i int) net.Conn {
	conn := must.Get((&net.Dialer{Timeout: 10 * time.Second, LocalAddr: &net.TCPAddr{IP: ownAddress(i)}}).DialContext(ctx,
		"tcp", v.addr))
	must.Do(conn.SetDeadline(time.Now().Add(time.Minute)))
	return conn
}

// crowd sends the requests of n strangers over one connection. It does not wait for an answer
// before it sends the next request.
func (v *visit) crowd(ctx context.Context, d endpoint, first, n int) {
	conn := v.dial(ctx, first)
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	sent := make(chan error, 1)
	go func() {
		r := rand.New(rand.NewPCG(v.Seed, uint64(first)))
		out := bufio.NewWriterSize(conn, 16<<10)
		for i := range n {
			_, _ = out.WriteString(d.ask(first+i, r)) // Flush returns an error
		}
		sent <- out.Flush()
	}()
	in := bufio.NewReaderSize(conn, 16<<10)
	if err := must.Caught(func() { v.listen(in, d, first, n) }); err != nil {
		must.Fail("a connection to %s broke: %w", v.addr, errors.Join(err, conn.Close(), <-sent))
	}
	if in.Buffered() > 0 {
		v.Wrong("%s: an answer without a request", v.what)
	}
	must.Do(<-sent)
}

// listen checks the answers to n strangers, and reports the first wrong one as a finding. It
// fails if an answer cannot be read.
func (v *visit) listen(in *bufio.Reader, d endpoint, first, n int) {
	reported := false
	for i := range n {
		resp := must.Get(http.ReadResponse(in, nil))
		body := must.Get(io.ReadAll(resp.Body))
		v.answered.Add(1)
		if err := d.check(first+i, resp, body); err != nil && !reported {
			reported = true
			v.Wrong("%s: %v", v.what, err)
		}
	}
}

// car connects by MQTT as a car with an unknown name and key. The listener must refuse it
// and close the connection.
func (v *visit) car(ctx context.Context, i int) {
	conn := v.dial(ctx, i)
	defer conn.Close()
	r := rand.New(rand.NewPCG(v.Seed, uint64(i)))
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

// known holds a node, and the tokens, vehicles and key that the node knows. Strangers use others,
// which the node does not know.
type known struct {
	node   *nodeprocess.Node
	query  queryEndpoint
	ingest ingestEndpoint
}

// fill gives a node two vehicles with answers, two tokens and two sources.
func fill(ctx context.Context, n *nodeprocess.Node) *known {
	k := &known{node: n, query: queryEndpoint{vid: "Car1", other: "X1"}}
	c := must.Get(n.AdminClient())
	gateway := must.Get(n.AddSource(ctx, "gateway"))
	k.ingest.key = must.Get(c.AddSource(ctx, access.Request{Name: "small", Vehicles: access.VehicleSet("Car1")})).Key
	k.query.right = must.Get(n.IssueToken(ctx, "Ada")).AccessToken
	k.query.granted = must.Get(c.IssueToken(ctx, access.Request{Developer: "Bob", Operations: access.AllOperations,
		Vehicles: access.VehicleSet("Car1")})).AccessToken
	now := time.Now().UnixMilli()
	status, text := must.Get2(n.Post(ctx, gateway,
		fmt.Sprintf(`{"vid":"Car1","time":%d,"signals":{"Vehicle.Speed":50}}`+"\n"+
			`{"vid":"X1","time":%d,"signals":{"Vehicle.Speed":50}}`, now, now)))
	if status != http.StatusAccepted {
		must.Fail("telemetry was not accepted: %d %s", status, text)
	}
	must.Do(k.answers(ctx))
	return k
}

// answers waits until each of the two vehicles has an answer.
func (k *known) answers(ctx context.Context) error {
	for _, vid := range []string{k.query.vid, k.query.other} {
		if err := k.node.AwaitAnswer(ctx, time.Minute, k.query.right, vid, time.Time{}); err != nil {
			return err
		}
	}
	return nil
}

// checkAfterwards checks that the node still distinguishes wrong tokens from right ones, and still
// limits the number of wrong tokens from one address.
func (k *known) checkAfterwards(ctx context.Context, a *row.Attempt) {
	const tries = 200 // 100 of them are answered with 401
	status := make(map[int]int)
	for range tries {
		unknown, _ := access.NewSecret(access.TokenKind)
		r := must.Get(k.node.Ask(ctx, nodeprocess.DrivingPath, unknown, k.query.vid))
		status[r.HTTP]++
	}
	if status[401] != 100 || status[429] != 100 {
		a.Wrong("of %d wrong tokens from one address %d got 401 and %d got 429", tries, status[401], status[429])
	}
	if err := k.answers(ctx); err != nil {
		a.Wrong("after the strangers, with a valid token: %v", err)
	}
	c := must.Get(k.node.AdminClient())
	if _, err := c.Tokens(ctx); err != nil {
		a.Wrong("after the strangers, the right admin key: %v", err)
	}
}
