package query

import (
	"bufio"
	"context"
	_ "embed"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"text/template"
	"time"

	"example.org/carstate/bench/must"
	"example.org/carstate/bench/report"
	"example.org/carstate/internal/access"
	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/internal/vehicle"
)

// Peers may not answer yet when start returns.
var starters = []struct {
	name  string
	start func(context.Context, *field, string) *peer
}{
	{"nginx return", nginxPeer("return")},
	{"nginx + lua", nginxPeer("lua")},
	{"carstate", carstatePeer(false)},
	{"carstate, access log on", carstatePeer(true)},
}

// A single process, which does the work of a worker.
//
//go:embed nginx.conf.tmpl
var nginxText string

var nginxConfig = template.Must(template.New("").Parse(nginxText))

// kind is the directive `return`, or a script that looks up token and vehicle.
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
		p := f.add(f.launch(ctx, name, f.core, "nginx", "-p", dir, "-c", file, "-e", "stderr"))
		p.addr = fmt.Sprintf("127.0.0.1:%d", port)
		return p
	}
}

// The released binary; the vehicles report through ingest.
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
		token := must.Get(must.Get(n.AdminClient()).IssueToken(ctx, access.Credential{
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

// Below the five minutes for which a reading is fresh.
const freshFor = 2 * time.Minute

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

type field struct {
	*report.Part
	self                      string
	core, generator           int    // cores
	tokens, vehicles, targets string // files
	started                   []*peer
}

func (f *field) add(p *peer) *peer {
	f.started = append(f.started, p)
	return p
}

func (f *field) stopAll() {
	for _, p := range f.started {
		p.stop()
	}
	f.started = nil
}

type peer struct {
	name, addr, targets string
	pid                 int
	out                 *bufio.Reader
	stop                func()
	before              func(context.Context) // may be nil
}

func (f *field) launch(ctx context.Context, name string, core int, argv ...string) *peer {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		must.Fail("%s is not installed: install its Debian package and try again", argv[0])
	}
	ctx, end := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, "taskset", append([]string{"--cpu-list", strconv.Itoa(core), path}, argv[1:]...)...)
	cmd.Dir, cmd.Stderr = f.Dir, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 6 * time.Second
	out := must.Get(cmd.StdoutPipe())
	if err := begin(cmd); err != nil {
		end()
		must.Fail("%s does not start: %w", name, err)
	}
	return &peer{name: name, targets: f.targets, pid: cmd.Process.Pid, out: bufio.NewReader(out), stop: func() {
		end()
		_ = cmd.Wait()
	}}
}

func (f *field) startSelf(ctx context.Context, name, targets string, args ...string) {
	p := f.add(f.launch(ctx, name, f.core, append([]string{f.self, "self"}, args...)...))
	line, err := p.out.ReadString('\n')
	if err != nil {
		must.Fail("%s does not run; see its output above", name)
	}
	p.targets, p.addr = targets, strings.TrimSpace(line)
}

// The process is killed when this one ends.
func begin(c *exec.Cmd) error {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return c.Start()
}

func freePort() int {
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func cores() (server, generator int) {
	var found []int
	for core := 0; core < 1024 && len(found) < 2; core++ {
		if exec.Command("taskset", "--cpu-list", strconv.Itoa(core), "true").Run() == nil {
			found = append(found, core)
		}
	}
	if len(found) < 2 {
		must.Fail("taskset and two processor cores are needed: one for the server, one for the generator")
	}
	return found[0], found[1]
}
