package hostile

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"example.org/carstate/bench/must"
	"example.org/carstate/internal/nodeprocess"
	"example.org/carstate/torture/row"
)

const (
	slowClients = 4000 // clients of slowhttptest
	rounds      = 3    // of an attack, at most; the best counts, as other load can only lengthen delays
	recoveries  = 6    // measurements after an attack, at most
	// slowhttptest opens some hundreds of connections a second.
	heldWithin = 15 * time.Second
)

type attack struct {
	name string
	// holds says that the service keeps the connections open, for 5 s if they wait for a head,
	// so half must be connected. The others are refused at once, so half must be refused.
	holds bool
	args  []string
}

// slow compares the delays of other clients during and after each attack of slow clients with those
// before.
func slow(ctx context.Context, w *world) {
	a := w.attempt
	connections, windows := share(a, slowClients, 100), share(a, 8, 1)
	aimed := a.Count >= fullCount/5 // with fewer windows and connections, the aims would prove nothing
	atRest := must.Get(w.Descriptors())
	// The attackers get a processor, because their system calls are not preempted.
	parts := row.Split(w.PID())
	processor := parts.Number
	if processor >= 0 {
		set := func(s *row.Processors) {
			row.Confine(w.PID(), s)
			row.Confine(os.Getpid(), s)
		}
		set(&parts.Others)
		defer set(&parts.All)
	}
	p := &probe{world: w}
	p.measure(ctx, 2) // the first requests warm up both sides
	before := p.measure(ctx, windows)
	a.Figure("p99 of good requests before any slow client", milliseconds(before), "ms")
	toBefore := func(d time.Duration) float64 {
		return math.Round(100*float64(d)/float64(max(before, 1))) / 100
	}
	url := w.URL(nodeprocess.Query)
	query := url + drivingPath + "?access_token=" + w.open[0].secret + "&vid=CarJam"
	for _, x := range []attack{
		{"heads sent slowly", true, []string{"-H", "-i", "1", "-x", "24", "-t", "GET", "-u", query}},
		{"bodies sent slowly", false, []string{"-B", "-i", "1", "-x", "10", "-s", "8192", "-t", "POST", "-u", query}},
		{"answers read slowly", true, []string{"-X", "-w", "512", "-y", "1024", "-n", "1", "-z", "32", "-k", "3", "-u", url +
			"/openapi.json"}},
	} {
		// A round with too few connections counts only if no round had enough.
		var with, after time.Duration
		held, enough := 0, false
		refused := w.refused(ctx, "")
		for round := range rounds {
			m, n := p.under(ctx, windows, connections, processor, &x)
			w.settle(ctx, atRest)
			must.Do(ctx.Err())
			n -= atRest
			ok := !x.holds || n >= connections/2
			if round == 0 || ok && !enough || ok == enough && m < with {
				with, held, enough = m, n, ok
			}
			if enough && toBefore(with) <= 2 {
				break
			}
		}
		refused = w.refused(ctx, "") - refused
		for round := range recoveries {
			m := p.measure(ctx, windows)
			must.Do(ctx.Err())
			if round == 0 || m < after {
				after = m
			}
			if toBefore(after) <= 2 {
				break
			}
		}
		a.Figure(x.name+": p99 of other clients during it", milliseconds(with), "ms")
		if !aimed {
			continue
		}
		if x.holds {
			a.AtLeast(x.name+": connections at once, median", float64(held), "", float64(connections/2))
		} else {
			a.AtLeast(x.name+": refused", refused, "", float64(connections/2))
		}
		a.AtMost(x.name+": p99 of other clients during it, relative to before", toBefore(with), "×", 2)
		a.AtMost(x.name+": p99 of other clients afterwards, relative to before", toBefore(after), "×", 2)
	}
	a.Offered(p.asked)
	a.Acknowledged(p.asked - len(p.failures))
	a.Figure("good requests during slow clients", float64(p.asked), "")
	for i, err := range p.failures {
		if i < 5 {
			a.Wrong("during slow clients: %v", err)
		}
	}
	a.None("of them failed", len(p.failures))
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// under measures the delays of other clients while slowhttptest attacks. held is the median of the
// node's open descriptors.
func (p *probe) under(ctx context.Context, windows, connections, processor int, x *attack) (
	p99 time.Duration, held int) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// slowhttptest reports no error at its limit of open files. Real attackers have their own
	// machines, so it gets only idle processor time.
	own := ""
	if processor >= 0 {
		own = "taskset -c " + strconv.Itoa(processor)
	}
	args := append([]string{"-c", `ulimit -n "$(ulimit -H -n)"; exec ` + own + ` chrt --idle 0 slowhttptest "$@"`,
		"slowhttptest", "-c", strconv.Itoa(connections), "-r", strconv.Itoa(connections/2 + 1),
		"-l", strconv.Itoa(int(heldWithin.Seconds()) + windows + 5), "-p", "3", "-v", "0"}, x.args...)
	var attacking sync.WaitGroup
	var failed error // error of slowhttptest; read after it has ended
	attacking.Go(func() {
		// It ends early if all clients are refused at once.
		for ctx.Err() == nil {
			out, err := exec.CommandContext(ctx, "sh", args...).CombinedOutput()
			if err != nil && ctx.Err() == nil {
				failed = fmt.Errorf("slowhttptest: %w: %.300s", err, out)
				cancel()
				return
			}
		}
	})
	limit := heldWithin
	if !x.holds {
		limit = 3 * time.Second // until all clients have begun
	}
	// If too few clients connect, the measurement continues, and the low number is a finding.
	_ = nodeprocess.Until(ctx, limit, func(context.Context) error {
		n, err := p.Descriptors()
		if err == nil && n < connections/2+connections/20 {
			err = fmt.Errorf("%d of %d are connected", n, connections)
		}
		return err
	})
	connected := row.Median(ctx, p.Descriptors)
	p99 = p.measure(ctx, windows)
	held = connected()
	cancel()
	attacking.Wait()
	must.Do(failed)
	return p99, held
}

// settle waits until the node has closed the attackers' descriptors.
func (w *world) settle(ctx context.Context, atRest int) {
	const slack = 40 // connections of honest clients
	err := nodeprocess.Until(ctx, time.Minute, func(context.Context) error {
		n, err := w.Descriptors()
		if err == nil && n > atRest+slack {
			err = fmt.Errorf("%d descriptors are open, %d were", n, atRest)
		}
		return err
	})
	must.Do(ctx.Err())
	if err != nil {
		w.attempt.Wrong("the descriptors of the attackers are not closed: %v", err)
	}
}

// dawdle opens connections that send a head byte by byte, in part, or not at all. Each must be
// closed, with status 408 after more than two bytes.
func dawdle(ctx context.Context, w *world) {
	const headTimeout, slack = 5 * time.Second, 15 * time.Second
	a := w.attempt
	var all sync.WaitGroup
	for i := range share(a, 200, 30) {
		all.Go(func() {
			text := []string{"", "G", "GET " + drivingPath + "?vid=A", "HEAD / HTTP/1.1\r\nHost: a\r\n",
				"GET / HTTP/1.1\r\nHost: a\r\nX: ", "\r\n"}[i%6]
			c, err := dialFrom(ctx, "127.0.0.1", w.Address(nodeprocess.Query))
			if err != nil {
				a.Wrong("a new client cannot connect: %v", err)
				return
			}
			defer c.Close()
			defer context.AfterFunc(ctx, func() { _ = c.Close() })()
			began := time.Now()
			_ = c.SetDeadline(began.Add(headTimeout + slack))
			a.Offered(1)
			if i%2 == 1 && text != "" { // single bytes must not extend the time limit
				go func() {
					for err := error(nil); err == nil; time.Sleep(500 * time.Millisecond) {
						_, err = io.WriteString(c, "x")
					}
				}()
			}
			_, _ = io.WriteString(c, text)
			got, err := io.ReadAll(c)
			switch {
			case ctx.Err() != nil:
			case timedOut(err):
				a.Wrong("a client that sends %q, and then little, is not disconnected: %s", text,
					time.Since(began).Round(time.Second))
			case (len(text) > 2 || len(got) > 0) && !bytes.HasPrefix(got, []byte("HTTP/1.1 408 ")):
				a.Wrong("a client that sends only %q receives %.100q", text, got)
			case text != "" && text[0] == 'H' && len(got) > 0 && !bytes.HasSuffix(got, []byte("\r\n\r\n")):
				a.Wrong("a slow HEAD receives a body: %.100q", got)
			default:
				a.Acknowledged(1)
			}
		})
	}
	all.Wait()
	must.Do(ctx.Err())
}

const (
	probers   = 8
	probeRate = 400
)

type probe struct {
	*world
	asked    int
	failures []error
}

// measure returns the median of the 99th percentiles of each second.
func (p *probe) measure(ctx context.Context, windows int) time.Duration {
	request := question(drivingPath, p.open[0], "CarNormal")
	clients := make([]row.Send, probers)
	for i := range clients {
		c := &row.Conn{To: p.Address(nodeprocess.Query), Limit: patience}
		defer c.Close()
		clients[i] = func(ctx context.Context) error {
			status, body, err := c.Ask(ctx, request)
			if err == nil && (status != http.StatusOK || !strings.Contains(body, `"status":1`)) {
				err = fmt.Errorf("a good request got %d %.200q", status, body)
			}
			return err
		}
	}
	return row.Percentile(row.Measure(ctx, windows, probeRate, clients, func(err error) {
		if p.asked++; err != nil {
			p.failures = append(p.failures, err)
		}
	}), 0.5)
}
