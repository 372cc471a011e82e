package matrix

import (
	"context"
	"fmt"
	"time"

	"carstate/internal/access"
	"carstate/internal/vehicle"
)

// limited tries tokens with a rate by themselves: what they are answered depends
// on how often they asked.
func (w *world) limited(ctx context.Context) error {
	const calls = 40
	for _, all := range []bool{true, false} {
		vehicles := access.VehicleSet(vehicle.ID(w.silent[0].vid))
		if all {
			vehicles = access.AllVehicles()
		}
		t, err := w.admin.IssueToken(ctx, access.TokenRequest{
			Developer: "Grace", Operations: access.CarDrivingState, Vehicles: vehicles, Rate: access.Rate{Calls: calls, Window: time.Hour},
		})
		if err != nil {
			return err
		}
		c, err := dial(w.node.Address("query-addr"))
		if err != nil {
			return err
		}
		defer c.close()
		ask := func(op operation, of *car) (*answer, error) {
			w.a.Offered(1)
			return c.ask("GET", op, "access_token="+t.AccessToken+"&vid="+of.vid, "")
		}
		began := time.Now()
		served := 0
		for i := range 3 * calls {
			if i%3 == 0 { // an operation that it has not costs nothing
				a, err := ask(throttle, w.reporting[i])
				if err != nil {
					return err
				}
				if a.status != 403 || a.header("RateLimit-Policy") == "" {
					w.a.Wrong("a limited token that lacks the operation was answered %d", a.status)
				}
				continue
			}
			a, err := ask(driving, w.reporting[i])
			if err != nil {
				return err
			}
			switch a.status {
			case 200:
				if served++; all == (a.header("Carstate-Reason") == "unknown") {
					w.a.Wrong("a limited token was answered for what it was not granted, or the other way round")
				}
			case 429:
				if a.header("Retry-After") == "" {
					w.a.Wrong("a token over its rate is not told how long to wait")
				}
			default:
				w.a.Wrong("a limited token was answered %d", a.status)
			}
		}
		// The budget refills evenly meanwhile.
		refilled := int(time.Since(began)/(time.Hour/calls)) + 1
		if served < calls || served > calls+refilled {
			w.a.Wrong("a token with %d calls an hour was served %d at once", calls, served)
		}
	}
	return nil
}

// guesses tries tokens that do not count, from one address.
func (w *world) guesses(context.Context) error {
	c, err := dial(w.node.Address("query-addr"))
	if err != nil {
		return err
	}
	defer c.close()
	const allowed = 100 // refusals a minute
	began := time.Now()
	told := 0
	for i := range allowed + 20 {
		secret, _ := access.NewSecret(access.TokenKind)
		a, err := c.ask("GET", driving, "access_token="+secret+"&vid="+w.reporting[0].vid, "192.0.2.1")
		if err != nil {
			return err
		}
		w.a.Offered(1)
		switch {
		case i < allowed && a.status != 401:
			w.a.Wrong("guess %d of one address was answered %d", i+1, a.status)
		case i >= allowed && a.status == 429:
			told++
		}
	}
	if told != 20 && time.Since(began) < time.Minute {
		w.a.Wrong("after %d guesses within a minute %d of 20 were told to wait", allowed, told)
	}
	// Whoever has a token from there is answered all the same.
	for _, h := range w.holders {
		if g := h.life(len(h.lives) - 1); !h.sandbox && h.expires.IsZero() && !g.revoked {
			a, err := c.ask("GET", driving, "access_token="+h.secrets[len(h.secrets)-1]+"&vid="+w.reporting[0].vid, "192.0.2.1")
			if err != nil {
				return err
			}
			if a.status != 200 && a.status != 403 {
				w.a.Wrong("a token that counts was answered %d because of others' guesses", a.status)
			}
			break
		}
	}
	return w.nothing(c)
}

// nothing asks without a token, in all the ways there are.
func (w *world) nothing(c *wire) error {
	for _, query := range []string{"vid=%s", "vid=%s&Access_Token=x", "vid=%s&token=x"} {
		a, err := c.ask("GET", throttle, fmt.Sprintf(query, w.reporting[0].vid), "192.0.2.2")
		if err != nil {
			return err
		}
		w.a.Offered(1)
		if a.status != 401 || a.header("WWW-Authenticate") != `Bearer realm="carstate"` {
			w.a.Wrong("a request without a token was answered %d", a.status)
		}
	}
	return nil
}
