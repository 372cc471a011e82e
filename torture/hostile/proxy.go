package hostile

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"carstate/bench/must"
	"carstate/internal/nodeprocess"
)

// proxied is the number of conversations through each proxy.
const proxied = 4000

// proxy is a program between clients and the service that has its own HTTP parser.
type proxy struct {
	program string
	config  string // format string with a directory, the service's address and a port
	args    func(dir, file string) []string
}

//go:embed nginx.conf
var nginxConfig string

//go:embed haproxy.cfg
var haproxyConfig string

var proxies = []proxy{
	{"nginx", nginxConfig, func(dir, file string) []string { return []string{"-p", dir, "-c", file, "-e", "stderr"} }},
	{"haproxy", haproxyConfig, func(_, file string) []string { return []string{"-db", "-f", file} }},
}

func behindProxies(ctx context.Context, w *world) {
	for _, p := range proxies {
		p.behind(ctx, w)
		must.Do(ctx.Err())
	}
}

// behind sends smuggled requests through the proxy, while other clients send correct requests
// through the same proxy. Each correct request must receive its own answer.
func (p *proxy) behind(ctx context.Context, w *world) {
	a := w.attempt
	address, stop := p.start(ctx, w)
	defer stop()
	invalid := w.refused(ctx, `"invalid_request"`)
	attacking, stopAttack := context.WithCancel(ctx)
	defer stopAttack()
	var left, asked, refused atomic.Int64
	left.Store(int64(share(a, proxied, 200)))
	var attackers, askers sync.WaitGroup
	for i := range 4 {
		attackers.Go(func() {
			rng := rand.New(rand.NewPCG(a.Seed, uint64(2000+i)))
			for h := w.writer(i, rng); left.Add(-1) >= 0 && ctx.Err() == nil; {
				stream := []byte(pick(h, "", h.sound()) + h.smuggle() + h.sound())
				x := talk(ctx, addressOf(60, i), address, stream, rng)
				if ctx.Err() != nil {
					return
				}
				a.Offered(1)
				if x.err != nil {
					a.Wrong("through %s: %v: %s", p.program, x.err, shown(stream))
				}
			}
		})
		askers.Go(func() {
			h := w.writer(i, rand.New(rand.NewPCG(a.Seed, uint64(3000+i))))
			h.name = "p" + h.name
			c := &connection{to: address}
			defer c.close()
			for attacking.Err() == nil {
				vid := h.nobody()
				status, got, err := c.ask(ctx, question(w, vid))
				asked.Add(1)
				switch {
				case err != nil:
					a.Wrong("through %s, a good request is lost: %v", p.program, err)
				case status == http.StatusBadGateway || status == http.StatusGatewayTimeout:
					refused.Add(1)
				case status != http.StatusOK || !strings.HasPrefix(got, `{"code":200,"msg":"success","data":{"vid":"`+vid+`",`):
					a.Wrong("through %s, a query for %s receives %d %.200q", p.program, vid, status, got)
					return
				}
				if status != http.StatusOK {
					c.close()
				}
			}
		})
	}
	attackers.Wait()
	stopAttack()
	askers.Wait()
	a.Offered(int(asked.Load()))
	a.Acknowledged(int(asked.Load() - refused.Load()))
	must.Do(ctx.Err())
	if asked.Load() == refused.Load() {
		must.Fail("%s answers no request", p.program)
	}
	a.Figure("good requests through "+p.program+", during smuggling", float64(asked.Load()), "")
	// Requests that the proxy itself refuses do not test the service.
	through := w.refused(ctx, `"invalid_request"`)
	a.Figure("requests through "+p.program+" that the service refused as invalid", through-invalid, "")
	if through == invalid {
		a.Wrong("behind %s the service had nothing to refuse: smuggling was not tried", p.program)
	}
	// The service must close a connection after bytes that two parsers could interpret
	// differently. A request that a proxy is about to send over that connection is then sent
	// over another connection, which the service may have closed as well. The proxy tries all
	// connections that it keeps, and then answers 502. With four connections and four
	// attackers, a 502 is rare. There is no other reason for a lost answer.
	part := 100 * float64(refused.Load()) / float64(asked.Load())
	a.AtMost("of them answered by "+p.program+" with 502 or 504", part, "%", 1)
	must.Do(ctx.Err())
}

// refused returns how many queries the node has refused with the given reason, or with any reason
// if the parameter reason is "".
func (w *world) refused(ctx context.Context, reason string) (sum float64) {
	for name, n := range must.Get(w.Metrics(ctx)) {
		if strings.HasPrefix(name, "carstate_queries_total{") && strings.Contains(name, reason) &&
			!strings.Contains(name, `"answered"`) {
			sum += n
		}
	}
	return sum
}

// start starts the proxy and waits until it listens.
func (p *proxy) start(ctx context.Context, w *world) (address string, stop func()) {
	dir := filepath.Join(w.attempt.Dir, p.program)
	must.Do(os.Mkdir(dir, 0o755))
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))
	port := l.Addr().(*net.TCPAddr).Port
	config := fmt.Sprintf(p.config, dir, w.Address(nodeprocess.Query), port)
	if os.Geteuid() == 0 && p.program == "nginx" {
		config = "user root;\n" + config
	}
	file := filepath.Join(dir, "config")
	must.Do(l.Close(), os.WriteFile(file, []byte(config), 0o600))
	running, end := context.WithCancel(ctx)
	cmd := exec.CommandContext(running, p.program, p.args(dir, file)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // its workers end with it
	cmd.WaitDelay = 10 * time.Second
	var said bytes.Buffer
	cmd.Stderr = &said
	must.Do(cmd.Start())
	stop = func() {
		end()
		_ = cmd.Wait() // it was ended on purpose
	}
	address = l.Addr().String()
	err := nodeprocess.Until(ctx, 10*time.Second, func(ctx context.Context) error {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err == nil {
			err = c.Close()
		}
		return err
	})
	if err != nil {
		stop()
		must.Fail("%s does not listen: %w: %.300s", p.program, err, said.String())
	}
	return address, stop
}
