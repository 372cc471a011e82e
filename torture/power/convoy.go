package power

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"carstate/internal/nodeprocess"
	"carstate/torture/row"
)

// convoy is many cars that tell their throttle position once in their life and
// from then on only how fast they are, in batches as large as they get. Who loses
// a car's state and makes another one from its latest samples has forgotten the
// throttle.
type convoy struct {
	a          *row.Attempt
	rnd        *rand.Rand
	key, token string
	base       int64
	cars       [convoyCars]convoyCar
	newest     []int // that were sent last
}

// convoyCar is one of them. Times are seconds after the base.
type convoyCar struct {
	sent, acknowledged, throttle int64
	lost                         bool
}

const (
	convoyCars    = 20000
	convoyBatch   = 999  // samples that are stored together at most
	convoyChecked = 3000 // cars, those that sent last
	// convoyPace is the least time between two batches, so that what is folded
	// does not fall far behind what is stored.
	convoyPace = 50 * time.Millisecond
)

func newConvoy(a *row.Attempt) *convoy {
	return &convoy{a: a, rnd: rand.New(rand.NewPCG(a.Seed, 21)), base: time.Now().Add(-20 * time.Hour).Unix()}
}

// prepare gets the convoy its source and its token from a node that is ready.
func (c *convoy) prepare(ctx context.Context, n *nodeprocess.Node) (err error) {
	if c.key, err = n.AddSource(ctx, "convoy"); err != nil {
		return err
	}
	t, err := n.IssueToken(ctx, "convoy")
	c.token = t.AccessToken
	return err
}

// run lets the convoy drive until the context ends or the node does.
func (c *convoy) run(ctx context.Context, n *nodeprocess.Node) {
	pace := time.NewTicker(convoyPace)
	defer pace.Stop()
	for {
		select {
		case <-n.Ended():
			return
		case <-ctx.Done():
			return
		case <-pace.C:
		}
		first, count := c.rnd.IntN(convoyCars), 1+c.rnd.IntN(convoyBatch)
		var lines strings.Builder
		for i := range count {
			car := &c.cars[(first+i)%convoyCars]
			car.sent++
			c.newest = append(c.newest, (first+i)%convoyCars)
			throttle := ""
			if car.throttle == 0 {
				throttle = `,"Vehicle.OBD.ThrottlePosition":20`
			}
			fmt.Fprintf(&lines, "{\"vid\":\"convoy%d\",\"time\":%d,\"signals\":{\"Vehicle.Speed\":%d%s}}\n", (first+i)%convoyCars, (c.base+car.sent)*1000, 60+car.sent%20, throttle)
		}
		c.newest = c.newest[max(0, len(c.newest)-convoyChecked):]
		c.a.Offered(count)
		status, text, err := n.Post(ctx, c.key, lines.String())
		switch {
		case err != nil:
		case status == http.StatusAccepted:
			c.a.Acknowledged(count)
			for i := range count {
				car := &c.cars[(first+i)%convoyCars]
				car.acknowledged = car.sent
				if car.throttle == 0 {
					car.throttle = car.sent
				}
			}
		case status != http.StatusServiceUnavailable:
			c.a.Wrong("a POST of %d samples is answered with %d: %s", count, status, text)
		}
	}
}

// check asks for every car. The node has settled.
func (c *convoy) check(ctx context.Context, n *nodeprocess.Node) error {
	for _, i := range c.newest {
		car := &c.cars[i]
		if car.acknowledged == 0 || car.lost {
			continue
		}
		for _, ask := range []struct {
			path, what string
			at         int64
		}{{nodeprocess.DrivingPath, "speed", car.acknowledged}, {nodeprocess.ThrottlePath, "throttle position", car.throttle}} {
			a, err := n.Ask(ctx, ask.path, c.token, fmt.Sprintf("convoy%d", i))
			if err != nil {
				return err
			}
			if a.HTTP != http.StatusOK || a.Status != 1 || a.Modified.Unix() < c.base+ask.at {
				car.lost = true
				got := fmt.Sprintf("HTTP %d, status %d, %s", a.HTTP, a.Status, a.Reason)
				if a.Status == 1 {
					got = "one of " + a.Modified.UTC().Format(time.TimeOnly)
				}
				c.a.Lost("the %s of convoy%d of %s was acknowledged, and is: %s", ask.what, i, time.Unix(c.base+ask.at, 0).UTC().Format(time.TimeOnly), got)
			}
		}
	}
	return nil
}
