package query

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"carstate/bench/must"
	"carstate/internal/access"
	"carstate/internal/nodeprocess"
	"carstate/internal/vehicle"
)

// carstatePeer starts the binary that users run, with all its features on: hashed tokens, expiry,
// grants, a rate limit on the token, metrics, request ids, and freshness. Its vehicles are added
// through its own listener for telemetry.
func carstatePeer(accessLog bool) func(context.Context, *field, string) *peer {
	return func(ctx context.Context, f *field, name string) *peer {
		dir := filepath.Join(f.dir, "carstate")
		flags := []string{}
		if accessLog {
			dir += "-log"
			flags = append(flags, "--access-log", dir+".access")
		}
		n := startNode(ctx, f, dir, flags...)
		p := f.add(&peer{name: name, addr: n.Address(nodeprocess.Query),
			targets: filepath.Join(f.dir, filepath.Base(dir)+".targets"), running: n})
		var ids []vehicle.ID
		for id := range strings.FieldsSeq(string(must.Get(os.ReadFile(f.vehicles)))) {
			ids = append(ids, vehicle.ID(id))
		}
		token, key := n.admit(ctx, ids)
		var targets bytes.Buffer
		for i := range spread {
			fmt.Fprintf(&targets, "%s?access_token=%s&vid=%s\n", path, token, ids[i%len(ids)])
		}
		must.Do(os.WriteFile(p.targets, targets.Bytes(), 0o600))
		var reported time.Time
		p.before = func(ctx context.Context) {
			if time.Since(reported) >= freshFor {
				reported = time.Now()
				n.report(ctx, key, token, ids)
			}
		}
		p.before(ctx)
		return p
	}
}

// freshFor is the interval at which the vehicles report. It is shorter than the five minutes for
// which carstate regards a reading as fresh.
const freshFor = 2 * time.Minute

type node struct{ *nodeprocess.Node }

// startNode starts the binary on the processor core that is reserved for the measured server (see
// field), and waits until it is ready.
func startNode(ctx context.Context, f *field, dir string, flags ...string) node {
	return node{must.Get(nodeprocess.StartReady(ctx, nodeprocess.Options{Binary: f.binary, Dir: dir, Flags: flags,
		Wrap: []string{"taskset", "--cpu-list", strconv.Itoa(f.core)}, Begin: begin}, time.Minute))}
}

func (n node) stop() { _ = n.Stop() } // the measurement is complete, so an error does not matter

func (n node) cpu() spent { return cpuOf(n.PID()) }

// admit issues a token for the vehicles and adds a source.
func (n node) admit(ctx context.Context, ids []vehicle.ID) (token, key string) {
	c := must.Get(n.AdminClient())
	t := must.Get(c.IssueToken(ctx, access.Request{
		Developer: "bench", Operations: access.AllOperations, Vehicles: access.VehicleSet(ids...),
		Rate: access.Rate{Calls: 1_000_000, Window: time.Second}, Expires: time.Now().Add(access.DefaultTokenLife),
	}))
	return t.AccessToken, must.Get(n.AddSource(ctx, "bench"))
}

// report sends a reading of every vehicle, so that all vehicles are fresh. It waits until the
// answers about the first and the last vehicle include their new readings.
func (n node) report(ctx context.Context, key, token string, ids []vehicle.ID) {
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

// get requests url and returns an error unless the answer has the given status and body.
func get(ctx context.Context, url string, status int, body string) error {
	req, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return errors.New("no answer") // err is not returned: it contains the URL with its token
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil || resp.StatusCode != status || string(said) != body {
		return fmt.Errorf("unexpected answer: %s", resp.Status)
	}
	return nil
}
