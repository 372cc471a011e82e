package query

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"example.org/carstate/bench/must"
	"example.org/carstate/internal/access"
	"example.org/carstate/internal/nodeprocess"
	"example.org/carstate/internal/vehicle"
)

// carstatePeer returns a function that starts the binary that users run, with all its features on:
// hashed tokens, expiry, grants, a rate limit on the token, metrics, request ids, and freshness,
// and with the access log if accessLog is true. The vehicles are added through the listener for
// telemetry.
func carstatePeer(accessLog bool) func(context.Context, *field, string) *peer {
	return func(ctx context.Context, f *field, name string) *peer {
		dir := filepath.Join(f.Dir, "carstate")
		flags := []string{}
		if accessLog {
			dir += "-log"
			flags = append(flags, "--access-log", dir+".access")
		}
		n := must.Get(nodeprocess.StartReady(ctx, nodeprocess.Options{Binary: f.Binary, Dir: dir, Flags: flags,
			Wrap: []string{"taskset", "--cpu-list", strconv.Itoa(f.core)}, Begin: begin}, time.Minute))
		p := f.add(&peer{name: name, addr: n.Address(nodeprocess.Query), targets: dir + ".targets", pid: n.PID(),
			stop: n.Kill})
		var ids []vehicle.ID
		for i := range vehiclesKnown {
			ids = append(ids, vidOf(i))
		}
		token := must.Get(must.Get(n.AdminClient()).IssueToken(ctx, access.Request{
			Developer: "bench", Operations: access.AllOperations, Vehicles: access.VehicleSet(ids...),
			Rate: access.Rate{Calls: 1_000_000, Window: time.Second}, Expires: time.Now().Add(access.DefaultTokenLife),
		})).AccessToken
		key := must.Get(n.AddSource(ctx, "bench"))
		writeTargets(p.targets, []string{token}, vehiclesKnown)
		var reported time.Time
		p.before = func(ctx context.Context) {
			if time.Since(reported) >= freshFor {
				reported = time.Now()
				reportAll(ctx, n, key, token, ids)
			}
		}
		p.before(ctx)
		return p
	}
}

// freshFor is the interval at which the vehicles report. It is shorter than the five minutes for
// which carstate regards a reading as fresh.
const freshFor = 2 * time.Minute

// reportAll sends a reading of every vehicle, so that all vehicles are fresh. It waits until the
// answers about the first and the last vehicle include their new readings, which must take at most
// 30 seconds for each.
func reportAll(ctx context.Context, n *nodeprocess.Node, key, token string, ids []vehicle.ID) {
	var b strings.Builder
	since := time.Now()
	for _, id := range ids {
		fmt.Fprintf(&b, `{"vid":"%s","time":%d,"signals":{"Vehicle.Speed":70,"Vehicle.OBD.EngineSpeed":2000}}`+"\n", id,
			since.UnixMilli())
	}
	if status, said := must.Get2(n.Post(ctx, key, b.String())); status != http.StatusAccepted {
		must.Fail("telemetry was not accepted: %d %s", status, said)
	}
	must.Do(n.AwaitAnswer(ctx, 30*time.Second, token, string(ids[0]), since))
	must.Do(n.AwaitAnswer(ctx, 30*time.Second, token, string(ids[len(ids)-1]), since))
}
