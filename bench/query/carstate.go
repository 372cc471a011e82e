package query

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// carstatePeer is the binary that people run, with everything on: tokens hashed,
// expiry, grants, a rate limit on the token, metrics, request ids, freshness. It is
// filled through its own front door.
func carstatePeer(accessLog bool) func(context.Context, *field, string) (*peer, error) {
	return func(ctx context.Context, f *field, name string) (_ *peer, err error) {
		dir := filepath.Join(f.dir, "carstate")
		flags := []string{}
		if accessLog {
			dir += "-log"
			flags = append(flags, "--access-log", dir+".access")
		}
		c, err := startCarstate(ctx, f.binary, f.core, dir, flags...)
		if err != nil {
			return nil, err
		}
		p := &peer{name: name, addr: c.addr["query-addr"], targets: filepath.Join(f.dir, filepath.Base(dir)+".targets"), running: []*process{c.process}}
		defer func() {
			if err != nil {
				p.stop()
			}
		}()
		var token struct {
			Secret string `json:"access_token"`
		}
		err = c.command(ctx, &token, "token", "issue", "--developer", "bench", "--vehicles", "@"+f.vehicles, "--rate", "1000000/s", "--json")
		if err != nil {
			return nil, err
		}
		var source struct {
			Key string `json:"key"`
		}
		if err := c.command(ctx, &source, "source", "add", "bench", "--vehicles", "all", "--json"); err != nil {
			return nil, err
		}
		vehicles, err := os.ReadFile(f.vehicles)
		if err != nil {
			return nil, err
		}
		ids := strings.Fields(string(vehicles))
		var targets bytes.Buffer
		for i := range spread {
			fmt.Fprintf(&targets, "%s?access_token=%s&vid=%s\n", path, token.Secret, ids[i%len(ids)])
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
			return c.report(ctx, source.Key, token.Secret, ids)
		}
		return p, p.before(ctx)
	}
}

// freshFor is how often the vehicles report: within the five minutes for which
// carstate calls a reading fresh.
const freshFor = 2 * time.Minute

// service is a running carstate.
type service struct {
	*process
	binary string
	dir    string
	addr   map[string]string // by flag without dashes
}

// startCarstate runs the binary on free ports.
func startCarstate(ctx context.Context, binary string, core int, dir string, flags ...string) (*service, error) {
	args := []string{binary, "serve", "--data-dir", dir, "--log-format", "json"}
	for _, a := range []string{"query", "ingest", "mqtt", "admin"} {
		args = append(args, "--"+a+"-addr", "127.0.0.1:0")
	}
	// The log goes where it can be read without a pipe that could fill up.
	log := dir + ".log"
	r, err := launch("carstate", core, filepath.Dir(dir), nil,
		append([]string{"sh", "-c", `exec "$0" "$@" 2>` + log}, append(args, flags...)...)...)
	if err != nil {
		return nil, err
	}
	c := &service{process: r, binary: binary, dir: dir, addr: map[string]string{}}
	err = until(ctx, func() error {
		said, err := os.ReadFile(log)
		if err != nil {
			return err
		}
		for line := range bytes.Lines(said) {
			var l struct{ Msg, For, Address string }
			if json.Unmarshal(line, &l) == nil && l.Msg == "listening" {
				c.addr[l.For] = l.Address
			}
		}
		select {
		case <-r.ended:
			return fmt.Errorf("carstate ended: %s", bytes.TrimSpace(said))
		default:
		}
		if c.addr["admin-addr"] == "" {
			return errors.New("carstate does not listen yet")
		}
		return get(ctx, "http://"+c.addr["admin-addr"]+"/readyz", http.StatusOK, "")
	})
	if err != nil {
		r.stop()
		return nil, err
	}
	return c, nil
}

// command runs one of carstate's commands that print JSON.
func (c *service) command(ctx context.Context, into any, args ...string) error {
	cmd := exec.CommandContext(ctx, c.binary, append(args, "--data-dir", c.dir, "--admin-addr", c.addr["admin-addr"])...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("carstate %s: %w: %s", args[0], err, strings.TrimSpace(said.String()))
	}
	return json.Unmarshal(out, into)
}

// report sends a reading of every vehicle and waits until the last one is answered,
// so that all are fresh.
func (c *service) report(ctx context.Context, key, token string, ids []string) error {
	var b bytes.Buffer
	now := time.Now().UnixMilli()
	for _, id := range ids {
		fmt.Fprintf(&b, `{"vid":"%s","time":%d,"signals":{"Vehicle.Speed":70,"Vehicle.OBD.EngineSpeed":2000}}`+"\n", id, now)
	}
	req, err := http.NewRequestWithContext(ctx, "POST", "http://"+c.addr["ingest-addr"]+"/v1/telemetry", &b)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	said, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusAccepted {
		return fmt.Errorf("telemetry was not taken: %s %s", resp.Status, said)
	}
	for _, id := range []string{ids[0], ids[len(ids)-1]} {
		url := fmt.Sprintf("http://%s%s?access_token=%s&vid=%s", c.addr["query-addr"], path, token, id)
		if err := until(ctx, func() error { return get(ctx, url, http.StatusOK, bodyBefore+id+bodyAfter) }); err != nil {
			return err
		}
	}
	return nil
}

// until asks again until there is no error, for half a minute.
func until(ctx context.Context, ask func() error) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	every := time.NewTicker(20 * time.Millisecond)
	defer every.Stop()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited too long: %w", err)
		case <-every.C:
		}
	}
}

// get wants an answer of that status and body; an empty body is any.
func get(ctx context.Context, url string, status int, body string) error {
	req, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return errors.New("no answer") // the error would repeat the URL
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil || resp.StatusCode != status || body != "" && string(said) != body {
		return fmt.Errorf("the answer is %s and not as expected", resp.Status)
	}
	return nil
}
