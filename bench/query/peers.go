package query

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"carstate/bench/must"
	"carstate/bench/report"
)

// field holds what all peers (the measured servers) share: the processor core on which each of them
// runs while it is measured, and the files of their data.
type field struct {
	*report.Part
	self      string // this program
	core      int    // of the server
	generator int    // the core of the generator
	tokens    string // file, one token per line
	vehicles  string
	targets   string // file of the request targets for the generators

	started []*peer // they are stopped by stopAll
}

// add adds a peer that is starting.
func (f *field) add(p *peer) *peer {
	f.started = append(f.started, p)
	return p
}

// stopAll stops all peers.
func (f *field) stopAll() {
	for _, p := range f.started {
		p.stop()
	}
	f.started = nil
}

// peer is one server to be measured: carstate, or one with which it is compared.
type peer struct {
	name    string
	addr    string
	targets string
	pid     int
	stop    func()
	// before is called before each run. If nil, nothing is called.
	before func(context.Context)
}

// starters start the peers, in the order in which the result tables list them. The peers
// answer requests soon after.
var starters = []struct {
	name  string
	start func(context.Context, *field, string) *peer
}{
	{"nginx return", nginxPeer("return")},
	{"nginx + lua", nginxPeer("lua")},
	{"carstate", carstatePeer(false)},
	{"carstate, access log on", carstatePeer(true)},
}

// startSelf runs this program as a server, which prints its address.
func (f *field) startSelf(ctx context.Context, name, targets string, args ...string) *peer {
	r := launch(ctx, name, f.core, f.Dir, append([]string{f.self, "self"}, args...)...)
	p := f.add(&peer{name: name, targets: targets, pid: r.cmd.Process.Pid, stop: r.stop})
	p.addr = r.line()
	return p
}

// nginxText is the configuration of nginx as a single process, which does the work of a worker and
// has no master.
//
//go:embed nginx.conf.tmpl
var nginxText string

var nginxConfig = template.Must(template.New("").Parse(nginxText))

// nginxPeer starts nginx with `return`, or with lua and shared dicts.
func nginxPeer(kind string) func(context.Context, *field, string) *peer {
	return func(ctx context.Context, f *field, name string) *peer {
		if _, err := os.Stat("/usr/lib/nginx/modules/ngx_http_lua_module.so"); err != nil {
			must.Fail("nginx with lua is not installed: run 'apt-get install nginx-light libnginx-mod-http-lua' and try again")
		}
		dir, port := filepath.Join(f.Dir, "nginx-"+kind), freePort()
		must.Do(os.Mkdir(dir, 0o700))
		var config strings.Builder
		must.Do(nginxConfig.Execute(&config, map[string]any{
			"Kind": kind, "Dir": dir, "Port": port, "Path": path, "Tokens": f.tokens, "Vehicles": f.vehicles,
			"Before": bodyBefore, "After": bodyAfter,
		}))
		file := filepath.Join(dir, "nginx.conf")
		must.Do(os.WriteFile(file, []byte(config.String()), 0o600))
		r := launch(ctx, name, f.core, f.Dir, "nginx", "-p", dir, "-c", file, "-e", "stderr")
		return f.add(&peer{name: name, addr: fmt.Sprintf("127.0.0.1:%d", port), targets: f.targets,
			pid: r.cmd.Process.Pid, stop: r.stop})
	}
}
