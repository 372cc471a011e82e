package hostile

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
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

	"example.org/carstate/bench/must"
	"example.org/carstate/internal/nodeprocess"
	"example.org/carstate/torture/row"
)

const (
	talkers = 8    // concurrent connections
	proxied = 4000 // conversations through each proxy
	// patience for one connection is exceeded only by a hang or an overloaded machine.
	patience = 40 * time.Second
)

type exchange struct {
	got   []byte
	reset bool // the connection was reset, so answers may be lost
	alone bool // the connection was not accepted
	late  bool // sending took so long that a server may have given up
	err   error
}

func dialFrom(ctx context.Context, from, to string) (net.Conn, error) {
	d := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	return d.DialContext(ctx, "tcp", to)
}

func timedOut(err error) bool {
	var network net.Error
	return errors.As(err, &network) && network.Timeout()
}

// talk sends the stream in pieces over a new connection, and reads until the server closes it.
func talk(ctx context.Context, from, to string, stream []byte, rng *rand.Rand) (x exchange) {
	c, err := dialFrom(ctx, from, to)
	if err != nil {
		return exchange{alone: true, err: err}
	}
	defer c.Close()
	began := time.Now()
	_ = c.SetDeadline(began.Add(patience))
	read := make(chan error, 1)
	go func() {
		var err error
		x.got, err = io.ReadAll(c)
		read <- err
	}()
	sent := send(c, stream, rng)
	if sent == nil {
		sent = c.(*net.TCPConn).CloseWrite()
	}
	x.late = time.Since(began) > 300*time.Millisecond
	err = <-read
	if timedOut(err) {
		x.err = fmt.Errorf("the connection does not end: after %s %d bytes had come", patience, len(x.got))
	} else {
		x.reset = err != nil || sent != nil
	}
	return x
}

// send writes the stream in up to 20 pieces of random sizes, sometimes with pauses of up to 2 ms.
func send(c io.Writer, stream []byte, rng *rand.Rand) error {
	pieces := []int{1, 1, 1, 2, 3, 20}[rng.IntN(6)]
	pauses := rng.IntN(8) == 0
	for ; len(stream) > 0; pieces-- {
		n := len(stream)
		if pieces > 1 {
			n = 1 + rng.IntN(len(stream))
		}
		if _, err := c.Write(stream[:n]); err != nil {
			return err
		}
		if stream = stream[n:]; pauses && len(stream) > 0 {
			time.Sleep(time.Duration(rng.IntN(2000)) * time.Microsecond)
		}
	}
	return nil
}

// requests sends hostile requests until it has as many right answers as the attempt's count.
func requests(ctx context.Context, w *world) {
	a, address, total := w.attempt, w.Address(nodeprocess.Query), w.attempt.Count
	var left, resets atomic.Int64
	var workers sync.WaitGroup
	all := new(row.Tally)
	left.Store(int64(total))
	began := time.Now()
	for worker := range talkers {
		workers.Go(func() {
			rng := a.Rand(worker)
			h := w.writer(worker, rng)
			for n := 0; ctx.Err() == nil && left.Load() > 0; n++ {
				v := h.conversation()
				x := talk(ctx, addressOf(worker, n), address, v.stream, rng)
				if ctx.Err() != nil {
					return
				}
				a.Offered(v.requests)
				wrong, answered := "", 0
				if x.err == nil {
					wrong, answered = w.compare(v, x, func(a *answer) string { return note(all, a) })
				} else {
					wrong = x.err.Error()
				}
				left.Add(int64(-answered))
				a.Acknowledged(answered)
				if wrong != "" {
					a.Wrong("conversation %d of talker %d: %s", n, worker, wrong)
				}
				if x.reset {
					resets.Add(1)
				}
			}
		})
	}
	workers.Wait()
	must.Do(ctx.Err())
	a.Figure("hostile requests", float64(total)/time.Since(began).Seconds(), "1/s")
	a.Figure("connections that were cut off", float64(resets.Load()), "")
	a.Figure(messages, float64(all.Of(messages)), "")
	for _, status := range []int{200, 400, 401, 403, 404, 405, 414, 431} {
		name := fmt.Sprintf("answers %d", status)
		a.Figure(name, float64(all.Of(name)), "")
		if total >= 10_000 && all.Of(name) == 0 {
			must.Fail("there are no %s: the generator does not reach them", name)
		}
	}
}

// addressOf returns a different loopback address for each n below 1.25 million.
func addressOf(worker, n int) string {
	return fmt.Sprintf("127.%d.%d.%d", 16+worker+talkers*(n/62500%20), n/250%250, 1+n%250)
}

func readDocument(url string) document {
	d := make(document)
	for _, encoding := range []string{"", "gzip"} {
		req := must.Get(http.NewRequest(http.MethodGet, url, nil))
		req.Header.Set("Accept-Encoding", cmp.Or(encoding, "identity"))
		resp := must.Get(http.DefaultTransport.RoundTrip(req))
		body := must.Get(io.ReadAll(resp.Body))
		must.Do(resp.Body.Close())
		if d[encoding] = string(body); resp.StatusCode != http.StatusOK {
			must.Fail("the documentation at %s gets %d", url, resp.StatusCode)
		}
	}
	return d
}

func behindNginx(ctx context.Context, w *world) {
	w.behind(ctx, "nginx", "-p DIR -c DIR/config -e stderr")
}
func behindHAProxy(ctx context.Context, w *world) { w.behind(ctx, "haproxy", "-db -f DIR/config") }

// behind sends smuggled requests through a proxy, which has its own parser, while other clients of
// the proxy send good ones: each must receive its own answer.
func (w *world) behind(ctx context.Context, program, args string) {
	a := w.attempt
	address, stop := w.startProxy(ctx, program, args)
	defer stop()
	invalid := w.refused(ctx, `"invalid_request"`)
	attacking, stopAttack := context.WithCancel(ctx)
	defer stopAttack()
	var left, asked, refused atomic.Int64
	left.Store(int64(share(a, proxied, 200)))
	var attackers, askers sync.WaitGroup
	for i := range 4 {
		attackers.Go(func() {
			rng := a.Rand(2000 + i)
			for h := w.writer(i, rng); left.Add(-1) >= 0 && ctx.Err() == nil; {
				stream := []byte(pick(h, "", h.sound()) + h.smuggle() + h.sound())
				x := talk(ctx, addressOf(60, i), address, stream, rng)
				if ctx.Err() != nil {
					return
				}
				a.Offered(1)
				if x.err != nil {
					a.Wrong("through %s: %v: %s", program, x.err, shown(stream))
				}
			}
		})
		askers.Go(func() {
			h := w.writer(i, a.Rand(3000+i))
			h.name = "p" + h.name
			c := &row.Conn{To: address, Limit: patience}
			defer c.Close()
			for attacking.Err() == nil {
				vid := h.nobody()
				status, got, err := c.Ask(ctx, question(drivingPath, w.open[0], vid))
				asked.Add(1)
				switch {
				case err != nil:
					a.Wrong("through %s, a good request is lost: %v", program, err)
				case status == http.StatusBadGateway || status == http.StatusGatewayTimeout:
					refused.Add(1)
				case status != http.StatusOK || !strings.HasPrefix(got, `{"code":200,"msg":"success","data":{"vid":"`+vid+`",`):
					a.Wrong("through %s, a query for %s receives %d %.200q", program, vid, status, got)
					return
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
		must.Fail("%s answers no request", program)
	}
	a.Figure("good requests through "+program+", during smuggling", float64(asked.Load()), "")
	// Requests that the proxy itself refuses do not test the service.
	through := w.refused(ctx, `"invalid_request"`)
	a.Figure("requests through "+program+" that the service refused as invalid", through-invalid, "")
	if through == invalid {
		a.Wrong("behind %s the service had nothing to refuse: smuggling was not tried", program)
	}
	// The service closes a connection after ambiguous bytes. A request that the proxy is about
	// to send over it is tried over others that it keeps, which may be closed, too; then it
	// answers 502.
	part := 100 * float64(refused.Load()) / float64(asked.Load())
	a.AtMost("of them answered by "+program+" with 502 or 504", part, "%", 1)
	must.Do(ctx.Err())
}

// refused returns how many queries the node has refused, for a reason or ("") for any.
func (w *world) refused(ctx context.Context, reason string) (sum float64) {
	for name, n := range must.Get(w.Metrics(ctx)) {
		if strings.HasPrefix(name, "carstate_queries_total{") && strings.Contains(name, reason) &&
			!strings.Contains(name, `"answered"`) {
			sum += n
		}
	}
	return sum
}

// startProxy starts a proxy and waits until it listens. DIR in its arguments is its directory.
func (w *world) startProxy(ctx context.Context, program, args string) (address string, stop func()) {
	dir := filepath.Join(w.attempt.Dir, program)
	must.Do(os.Mkdir(dir, 0o755))
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))
	address = l.Addr().String()
	format := must.Get(files.ReadFile(program + ".conf"))
	config := fmt.Sprintf(string(format), dir, w.Address(nodeprocess.Query), address)
	must.Do(l.Close(), os.WriteFile(filepath.Join(dir, "config"), []byte(config), 0o600))
	running, end := context.WithCancel(ctx)
	cmd := exec.CommandContext(running, program, strings.Fields(strings.ReplaceAll(args, "DIR", dir))...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // its workers end with it
	cmd.WaitDelay = 10 * time.Second
	var said bytes.Buffer
	cmd.Stderr = &said
	must.Do(cmd.Start())
	stop = func() {
		end()
		_ = cmd.Wait() // it was ended on purpose
	}
	if err := nodeprocess.Until(ctx, 10*time.Second, func(ctx context.Context) error {
		c, err := dialFrom(ctx, "127.0.0.1", address)
		if err == nil {
			err = c.Close()
		}
		return err
	}); err != nil {
		stop()
		must.Fail("%s does not listen: %w: %.300s", program, err, said.String())
	}
	return address, stop
}
