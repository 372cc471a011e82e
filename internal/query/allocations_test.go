//go:build !race

package query_test

import (
	"io"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/query"
)

func TestQueryAllocatesNothing(t *testing.T) {
	f := newFixture(t)
	f.issue(t, "MANY_AN_HOUR", access.Credential{Vehicles: access.AllVehicles(),
		Rate: access.Rate{Calls: 900_000, Window: time.Hour}})
	f.AccessLog = openLogFor(t, query.AccessLogConfig{Out: io.Discard})
	c := start(t, f.Config).dial(t)
	t.Cleanup(func() { f.AccessLog.Close() })
	for name, target := range map[string]string{
		"answered":       drivingPath + "?access_token={{TOKEN}}&vid=CarJam",
		"throttle":       throttlePath + "?access_token={{TOKEN}}&vid=CarFaulty",
		"encoded":        drivingPath + "?access%5Ftoken={{TOKEN}}&vid=%43arJam",
		"unknown":        drivingPath + "?access_token={{TOKEN}}&vid=Nobody",
		"not granted":    drivingPath + "?access_token={{ONLY_NORMAL}}&vid=CarJam",
		"limited":        drivingPath + "?access_token={{MANY_AN_HOUR}}&vid=CarJam",
		"over the rate":  drivingPath + "?access_token={{TWO_A_MINUTE}}&vid=CarJam",
		"bad token":      drivingPath + "?access_token={{UNKNOWN}}&vid=CarJam",
		"sandbox":        drivingPath + "?access_token={{SANDBOX}}&vid=SandboxCycle",
		"no sandbox car": throttlePath + "?access_token={{SANDBOX}}&vid=CarJam",
		"pretended rate": drivingPath + "?access_token={{SANDBOX}}&vid=SandboxRateLimited",
		"no scope":       drivingPath + "?access_token={{THROTTLE}}&vid=CarJam",
		"replaced":       drivingPath + "?access_token={{REPLACED}}&vid=CarJam",
		"outgoing":       drivingPath + "?access_token={{OUTGOING}}&vid=CarJam",
		"no vid":         drivingPath + "?access_token={{TEN_AN_HOUR}}",
		"two vids":       drivingPath + "?vid=A&vid=%42&access%5Ftoken={{TEN_AN_HOUR}}",
		"bad escape":     drivingPath + "?vid=%&access_token={{TEN_AN_HOUR}}",
		"bad query":      drivingPath + "?access_token=%",
		"no path":        "/nothing",
		"a document":     "/",
	} {
		request := f.fill(t, get(target))
		c.ask(request)
		c.ask(request)
		asked, answer := []byte(request), make([]byte, len(c.ask(request).raw))
		if n := testing.AllocsPerRun(200, func() {
			if _, err := c.Write(asked); err != nil {
				t.Fatalf("the request: got %v, want no error", err)
			}
			if _, err := io.ReadFull(c, answer); err != nil {
				t.Fatalf("the answer: got %v, want no error", err)
			}
		}); n != 0 {
			t.Errorf("%s: got %v allocations, want none", name, n)
		}
	}
}
