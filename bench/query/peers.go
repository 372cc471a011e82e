package query

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"example.org/carstate/bench/must"
)

// starters start the peers, in the order in which the result tables list them. When such a function
// returns, the peer may not answer requests yet.
var starters = []struct {
	name  string
	start func(context.Context, *field, string) *peer
}{
	{"nginx return", nginxPeer("return")},
	{"nginx + lua", nginxPeer("lua")},
	{"carstate", carstatePeer(false)},
	{"carstate, access log on", carstatePeer(true)},
}

// nginxText is the configuration of nginx as a single process, which does the work of a worker and
// has no master.
//
//go:embed nginx.conf.tmpl
var nginxText string

var nginxConfig = template.Must(template.New("").Parse(nginxText))

// nginxPeer returns a function that starts nginx. If kind is "return", nginx answers every request
// with its directive `return`. If kind is "lua", it looks up token and vehicle with lua, in shared
// dicts.
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
