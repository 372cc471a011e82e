package strangers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"carstate/internal/access"
	"carstate/internal/nodeprocess"
	"carstate/torture/row"
)

// callers is how many connections are open at once.
const callers = 4

// overNetwork sends strangers to all listeners of a node.
func overNetwork(ctx context.Context, a *row.Attempt, strangers int) error {
	n, err := nodeprocess.StartReady(ctx, nodeprocess.Options{
		Binary: a.Binary, Dir: filepath.Join(a.Dir, "data"), Flags: []string{"--trusted-proxies", "127.0.0.0/8"},
	}, time.Minute)
	if err != nil {
		return err
	}
	defer n.Kill()
	k, err := acquaint(ctx, n)
	if err != nil {
		return err
	}
	// The first few of each kind, so many that every listener sees some; then all.
	few := min(max(strangers/20, 4000), strangers/2)
	if err := k.visit(ctx, a, 0, few); err != nil || ctx.Err() != nil {
		return err
	}
	memory, before, err := state(ctx, n)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := k.visit(ctx, a, few, strangers); err != nil || ctx.Err() != nil {
		return err
	}
	a.Figure("over the network: all strangers came and went within", time.Since(began).Seconds(), "s")
	memoryAfter, after, err := state(ctx, n)
	if err != nil {
		return err
	}
	grew(a, "over the network", memoryAfter-memory, before, after)
	return k.farewell(ctx, a)
}

func state(ctx context.Context, n *nodeprocess.Node) (memory int64, series int, err error) {
	m, err := n.Metrics(ctx)
	if err != nil {
		return 0, 0, err
	}
	memory, err = n.Resident()
	return memory, len(m), err
}

// known is what a node knows, so that strangers can be told from it.
type known struct {
	node   *nodeprocess.Node
	query  queryDoor
	ingest ingestDoor
}

// acquaint gives a node two vehicles with answers, two tokens and two sources.
func acquaint(ctx context.Context, n *nodeprocess.Node) (*known, error) {
	k := &known{node: n, query: queryDoor{vid: "Car1", other: "X1"}}
	c, err := n.AdminClient()
	if err != nil {
		return nil, err
	}
	gateway, err := n.AddSource(ctx, "gateway")
	if err != nil {
		return nil, err
	}
	small, err := c.AddSource(ctx, "small", access.VehicleSet("Car1"), time.Time{})
	if err != nil {
		return nil, err
	}
	right, err := n.IssueToken(ctx, "Ada")
	if err != nil {
		return nil, err
	}
	granted, err := c.IssueToken(ctx, access.TokenRequest{Developer: "Bob", Operations: access.AllOperations, Vehicles: access.VehicleSet("Car1")})
	if err != nil {
		return nil, err
	}
	k.query.right, k.query.granted, k.ingest.key = right.AccessToken, granted.AccessToken, small.Key
	now := time.Now().UnixMilli()
	status, text, err := n.Post(ctx, gateway, fmt.Sprintf(`{"vid":"Car1","time":%d,"signals":{"Vehicle.Speed":50}}`+"\n"+`{"vid":"X1","time":%d,"signals":{"Vehicle.Speed":50}}`, now, now))
	if err != nil || status != http.StatusAccepted {
		return nil, fmt.Errorf("telemetry was not taken: %d %s %w", status, text, err)
	}
	return k, nodeprocess.Until(ctx, time.Minute, func(ctx context.Context) error { return k.answers(ctx) })
}

// answers reports whether both vehicles have an answer for who may ask.
func (k *known) answers(ctx context.Context) error {
	for _, vid := range []string{k.query.vid, k.query.other} {
		r, err := k.node.Ask(ctx, nodeprocess.DrivingPath, k.query.right, vid)
		if err != nil {
			return err
		}
		if r.HTTP != http.StatusOK || r.Status != 1 {
			return fmt.Errorf("%s is answered with %d %s", vid, r.HTTP, r.Body)
		}
	}
	return nil
}

// visit sends the strangers from one number to another to the query listener, and
// a part of them to the others.
func (k *known) visit(ctx context.Context, a *row.Attempt, from, to int) error {
	for _, v := range []struct {
		what, listener string
		door           door
		part           int
	}{
		{"query", nodeprocess.Query, &k.query, 1},
		{"ingest", nodeprocess.Ingest, &k.ingest, 20},
		{"admin", nodeprocess.Admin, adminDoor{}, 100},
	} {
		if err := crowds(ctx, a, v.what, k.node.Address(v.listener), v.door, from/v.part, to/v.part, crowdSize, ownAddress); err != nil || ctx.Err() != nil {
			return err
		}
	}
	return k.cars(ctx, a, from/100, to/100)
}

// crowdSize is how many come over one connection.
const crowdSize = 10_000

// crowds sends strangers to a listener that speaks HTTP, size of them over each
// connection, which comes from the address that local gives its first stranger.
func crowds(ctx context.Context, a *row.Attempt, what, addr string, d door, from, to, size int, local func(i int) net.IP) error {
	var answered atomic.Int64
	err := eachOf(ctx, (to-from+size-1)/size, func(i int) error {
		first := from + i*size
		c := newCrowd(d, a.Seed, first, min(size, to-first))
		err := c.over(ctx, addr, local(first))
		answered.Add(int64(c.answered))
		if c.wrong != nil {
			a.Wrong("%s: %v", what, c.wrong)
		}
		return err
	})
	if err != nil || ctx.Err() != nil {
		return err
	}
	return tally(a, what, to-from, int(answered.Load()))
}

// eachOf does n things, several at once, until one fails.
func eachOf(ctx context.Context, n int, do func(i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := do(i); err != nil {
					cancel(err)
				}
			}
		})
	}
	all.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// ownAddress is a loopback address of stranger i's own.
func ownAddress(i int) net.IP { return net.IPv4(127, byte(1+i>>16&0x3f), byte(i>>8), byte(i)) }

// dial connects from a local address.
func dial(ctx context.Context, local net.IP, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: 10 * time.Second, LocalAddr: &net.TCPAddr{IP: local}}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return conn, conn.SetDeadline(time.Now().Add(visitTime))
}

// visitTime bounds how long a connection of strangers may last.
const visitTime = time.Minute

// over lets the crowd go over a connection.
func (c *crowd) over(ctx context.Context, addr string, local net.IP) error {
	conn, err := dial(ctx, local, addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	sent := make(chan error, 1)
	go func() {
		_, err := io.CopyBuffer(struct{ io.Writer }{conn}, struct{ io.Reader }{c}, make([]byte, 16<<10))
		sent <- err
	}()
	_, err = io.CopyBuffer(struct{ io.Writer }{c}, struct{ io.Reader }{conn}, make([]byte, 16<<10))
	if errors.Is(err, errAll) {
		err = nil
	} else {
		err = errors.Join(err, conn.Close())
	}
	if err := errors.Join(err, <-sent); err != nil && ctx.Err() == nil {
		return fmt.Errorf("a connection to %s broke: %w", addr, err)
	}
	return nil
}

// farewell looks whether the node still tells wrong tokens from right ones, and
// still bounds the wrong ones of one address.
func (k *known) farewell(ctx context.Context, a *row.Attempt) error {
	const tries = 200 // of which 100 are 401
	status := make(map[int]int)
	for range tries {
		unknown, _ := access.NewSecret(access.TokenKind)
		r, err := k.node.Ask(ctx, nodeprocess.DrivingPath, unknown, k.query.vid)
		if err != nil {
			return err
		}
		status[r.HTTP]++
	}
	if status[401] != 100 || status[429] != 100 {
		a.Wrong("of %d wrong tokens from one address %d got 401 and %d got 429", tries, status[401], status[429])
	}
	if err := k.answers(ctx); err != nil {
		a.Wrong("after the strangers, with a token that counts: %v", err)
	}
	c, err := k.node.AdminClient()
	if err != nil {
		return err
	}
	if _, err := c.Tokens(ctx); err != nil {
		a.Wrong("after the strangers, the right admin key: %v", err)
	}
	return nil
}
