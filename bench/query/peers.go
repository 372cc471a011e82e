package query

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

// field holds what all peers share: the processor core on which each of them runs while it is
// measured, and the files of their data.
type field struct {
	dir      string
	self     string // this program
	binary   string // the built carstate
	core     int    // of the server
	tokens   string // file, one token per line
	vehicles string
	targets  string // file of the request targets for the generators
}

// peer is one server to be measured.
type peer struct {
	name    string
	addr    string
	targets string
	running
	// before is called before each run. If nil, nothing is called.
	before func(context.Context) error
}

// running is the process of a peer.
type running interface {
	stop()
	cpu() (spent, error)
}

// starters start the peers, in the order in which the result tables list them. Each starter returns
// a peer that answers requests, or an error of one line.
var starters = []struct {
	name  string
	start func(context.Context, *field, string) (*peer, error)
}{
	{"nginx return", nginxPeer("return")},
	{"nginx + lua", nginxPeer("lua")},
	{"carstate", carstatePeer(false)},
	{"carstate, access log on", carstatePeer(true)},
}

// startSelf runs this program as a server, which prints its address.
func (f *field) startSelf(ctx context.Context, name, targets string, args ...string) (*peer, error) {
	r, err := launch(ctx, name, f.core, f.dir, append([]string{f.self, "self"}, args...)...)
	if err != nil {
		return nil, err
	}
	addr, err := r.line()
	if err != nil {
		r.stop()
		return nil, err
	}
	return &peer{name: name, addr: addr, targets: targets, running: r}, nil
}

// nginxText is the configuration of nginx as a single process, which does the work of a worker and
// has no master.
//
//go:embed nginx.conf.tmpl
var nginxText string

var nginxConfig = template.Must(template.New("").Parse(nginxText))

// nginxPeer starts nginx with `return`, or with lua and shared dicts.
func nginxPeer(kind string) func(context.Context, *field, string) (*peer, error) {
	return func(ctx context.Context, f *field, name string) (*peer, error) {
		if _, err := os.Stat("/usr/lib/nginx/modules/ngx_http_lua_module.so"); err != nil {
			return nil, errors.New("nginx with lua is not installed: run 'apt-get install nginx-light libnginx-mod-http-lua' " +
				"and try again")
		}
		dir := filepath.Join(f.dir, "nginx-"+kind)
		port, err := freePort()
		if err = errors.Join(err, os.Mkdir(dir, 0o700)); err != nil {
			return nil, err
		}
		var config strings.Builder
		err = nginxConfig.Execute(&config, map[string]any{
			"Kind": kind, "Dir": dir, "Port": port, "Path": path, "Tokens": f.tokens, "Vehicles": f.vehicles,
			"Before": bodyBefore, "After": bodyAfter,
		})
		file := filepath.Join(dir, "nginx.conf")
		if err = errors.Join(err, os.WriteFile(file, []byte(config.String()), 0o600)); err != nil {
			return nil, err
		}
		r, err := launch(ctx, name, f.core, f.dir, "nginx", "-p", dir, "-c", file, "-e", "stderr")
		if err != nil {
			return nil, err
		}
		p := &peer{name: name, addr: fmt.Sprintf("127.0.0.1:%d", port), targets: f.targets, running: r}
		if err := accepts(ctx, p.addr); err != nil {
			p.stop()
			return nil, err
		}
		return p, nil
	}
}
