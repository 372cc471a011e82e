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

	"carstate/internal/access"
	"carstate/internal/nodeprocess"
	"carstate/internal/vehicle"
)

// carstatePeer starts the binary that users run, with all its features on: hashed tokens, expiry,
// grants, a rate limit on the token, metrics, request ids, and freshness. Its vehicles are added
// through its own listener for telemetry.
func carstatePeer(accessLog bool) func(context.Context, *field, string) (*peer, error) {
	return func(ctx context.Context, f *field, name string) (_ *peer, err error) {
		dir := filepath.Join(f.dir, "carstate")
		flags := []string{}
		if accessLog {
			dir += "-log"
			flags = append(flags, "--access-log", dir+".access")
		}
		n, err := startNode(ctx, f, dir, flags...)
		if err != nil {
			return nil, err
		}
		p := &peer{name: name, addr: n.Address(nodeprocess.Query),
			targets: filepath.Join(f.dir, filepath.Base(dir)+".targets"), running: n}
		defer func() {
			if err != nil {
				p.stop()
			}
		}()
		text, err := os.ReadFile(f.vehicles)
		if err != nil {
			return nil, err
		}
		var ids []vehicle.ID
		for id := range strings.FieldsSeq(string(text)) {
			ids = append(ids, vehicle.ID(id))
		}
		token, key, err := n.admit(ctx, ids)
		if err != nil {
			return nil, err
		}
		var targets bytes.Buffer
		for i := range spread {
			fmt.Fprintf(&targets, "%s?access_token=%s&vid=%s\n", path, token, ids[i%len(ids)])
		}
		if err := os.WriteFile(p.targets, targets.Bytes(), 0o600); err != nil {
			return nil, err
		}
		var reported time.Time
		p.before = func(ctx context.Context) error {
			if time.Since(reported) < freshFor {
				return nil
			}
			reported = time.Now()
			return n.report(ctx, key, token, ids)
		}
		return p, p.before(ctx)
	}
}

// freshFor is the interval at which the vehicles report. It is shorter than the five minutes for
// which carstate regards a reading as fresh.
const freshFor = 2 * time.Minute

type node struct{ *nodeprocess.Node }

// startNode starts the binary on the processor core that is reserved for the measured server (see
// field), and waits until it is ready.
func startNode(ctx context.Context, f *field, dir string, flags ...string) (node, error) {
	n, err := nodeprocess.StartReady(ctx, nodeprocess.Options{Binary: f.binary, Dir: dir, Flags: flags,
		Wrap: []string{"taskset", "--cpu-list", strconv.Itoa(f.core)}, Begin: begin}, time.Minute)
	return node{n}, err
}

func (n node) stop() { _ = n.Stop() } // the measurement is complete, so an error does not matter

func (n node) cpu() (spent, error) { return cpuOf(n.PID()) }

// admit issues a token for the vehicles and adds a source.
func (n node) admit(ctx context.Context, ids []vehicle.ID) (token, key string, err error) {
	c, err := n.AdminClient()
	if err != nil {
		return "", "", err
	}
	t, err := c.IssueToken(ctx, access.Request{
		Developer: "bench", Operations: access.AllOperations, Vehicles: access.VehicleSet(ids...),
		Rate: access.Rate{Calls: 1_000_000, Window: time.Second}, Expires: time.Now().Add(access.DefaultTokenLife),
	})
	if err != nil {
		return "", "", err
	}
	key, err = n.AddSource(ctx, "bench")
	return t.AccessToken, key, err
}

// report sends a reading of every vehicle, so that all vehicles are fresh. It waits until the
// answers about the first and the last vehicle include their new readings.
func (n node) report(ctx context.Context, key, token string, ids []vehicle.ID) error {
	var b strings.Builder
	since := time.Now()
	for _, id := range ids {
		fmt.Fprintf(&b, `{"vid":"%s","time":%d,"signals":{"Vehicle.Speed":70,"Vehicle.OBD.EngineSpeed":2000}}`+"\n", id,
			since.UnixMilli())
	}
	status, said, err := n.Post(ctx, key, b.String())
	if err != nil || status != http.StatusAccepted {
		return errors.Join(err, fmt.Errorf("telemetry was not accepted: %d %s", status, said))
	}
	return errors.Join(n.AwaitAnswer(ctx, 30*time.Second, token, string(ids[0]), since),
		n.AwaitAnswer(ctx, 30*time.Second, token, string(ids[len(ids)-1]), since))
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
