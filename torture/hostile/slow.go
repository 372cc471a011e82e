package hostile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"carstate/internal/nodeprocess"
)

// slowClients is how many of them slowhttptest has.
const slowClients = 4000

// rounds is how often an attack is made at most until others fare well: what the
// machine does besides can only make them fare worse.
const rounds = 3

// slow has thousands of slow clients at the query listener, and looks how others
// fare meanwhile.
func slow(ctx context.Context, w *world) error {
	a := w.attempt
	connections, windows := share(a, slowClients, 100), share(a, 4, 1)
	atRest, err := w.Descriptors()
	if err != nil {
		return err
	}
	p := newProbe(w)
	p.measure(ctx, 1) // the first requests warm both sides up
	before := p.measure(ctx, windows)
	url := w.URL(nodeprocess.Query)
	query := url + drivingPath + "?access_token=" + w.open[0].secret + "&vid=CarJam"
	for _, attack := range []struct {
		name string
		args []string
	}{
		{"heads sent slowly", []string{"-H", "-i", "1", "-x", "24", "-t", "GET", "-u", query}},
		{"bodies sent slowly", []string{"-B", "-i", "1", "-x", "10", "-s", "8192", "-t", "POST", "-u", query}},
		{"answers read slowly", []string{"-X", "-w", "512", "-y", "1024", "-n", "1", "-z", "32", "-k", "3", "-u", url + "/reference/swagger-ui-bundle.js"}},
	} {
		var with, without time.Duration
		most, ratio := 0, 0.0
		for round := range rounds {
			meanwhile, peak, err := w.under(ctx, p, windows, connections, attack.args)
			if err != nil {
				return err
			}
			if err := w.settle(ctx, atRest); err != nil {
				return err
			}
			after := p.measure(ctx, windows)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			x, y := percentile(meanwhile, 0.5), percentile(append(before, after...), 0.5)
			before = after
			if r := float64(x) / float64(max(y, 1)); round == 0 || r < ratio {
				with, without, most, ratio = x, y, peak, r
			}
			if ratio <= 2 {
				break
			}
		}
		a.Figure(attack.name+": connections at once", float64(max(0, most-atRest)), "")
		a.Figure(attack.name+": p99 of others without", milliseconds(without), "ms")
		a.Figure(attack.name+": p99 of others meanwhile", milliseconds(with), "ms")
		if a.Count >= fullCount/5 { // of a few windows and connections it says nothing
			a.Aimed(attack.name+": the one to the other", float64(int(ratio*100))/100, "", "≤ 2", ratio <= 2)
		}
	}
	a.Offered(p.asked)
	a.Acknowledged(p.asked - len(p.failures))
	a.Figure("good requests beside slow clients", float64(p.asked), "")
	a.Figure("p99 over new connections beside slow clients", milliseconds(percentile(p.fresh, 0.99)), "ms")
	for i, err := range p.failures {
		if i < 5 {
			a.Wrong("beside slow clients: %v", err)
		}
	}
	a.Aimed("of them failed", float64(len(p.failures)), "", "0", len(p.failures) == 0)
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// under measures while slowhttptest is at work, and tells how many descriptors the
// node had at most.
func (w *world) under(ctx context.Context, p *probe, windows, connections int, args []string) (p99 []time.Duration, most int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// It opens as many files as its limit, and no more, without a word. Attackers
	// have machines of their own: this one gives them what nobody else wants.
	args = append([]string{"-c", `ulimit -n "$(ulimit -H -n)"; exec chrt --idle 0 slowhttptest "$@"`, "slowhttptest",
		"-c", strconv.Itoa(connections), "-r", strconv.Itoa(connections/2 + 1), "-l", strconv.Itoa(windows + 2), "-p", "3", "-v", "0"}, args...)
	var attack sync.WaitGroup
	attack.Go(func() {
		// Where all of them are refused at once it ends early: then again.
		for ctx.Err() == nil {
			out, failed := exec.CommandContext(ctx, "sh", args...).CombinedOutput()
			if failed != nil && ctx.Err() == nil {
				err = fmt.Errorf("slowhttptest: %w: %.300s", failed, out)
				return
			}
		}
	})
	enough := make(chan struct{}) // closed once as many as ever are connected
	var counting sync.WaitGroup
	counting.Go(func() {
		closed := false
		for begin := time.Now(); ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
			n, err := w.Descriptors()
			if err != nil {
				break
			}
			most = max(most, n)
			if !closed && (n >= connections || time.Since(begin) > 3*time.Second) {
				closed = true
				close(enough)
			}
		}
		if !closed {
			close(enough)
		}
	})
	<-enough
	p99 = p.measure(ctx, windows)
	cancel()
	counting.Wait()
	attack.Wait()
	return p99, most, err
}

// settle waits until the node has given back its descriptors.
func (w *world) settle(ctx context.Context, atRest int) error {
	const slack = 40 // connections that honest clients keep
	err := nodeprocess.Until(ctx, time.Minute, func(context.Context) error {
		n, err := w.Descriptors()
		if err == nil && n > atRest+slack {
			err = fmt.Errorf("%d descriptors are open, %d were", n, atRest)
		}
		return err
	})
	if err != nil && ctx.Err() == nil {
		w.attempt.Wrong("what the attackers held is not given back: %v", err)
		return nil
	}
	return err
}

// dawdle sends heads byte by byte, half heads, and nothing: each connection must
// end within the time that a head has, and who has said something is told why.
func dawdle(ctx context.Context, w *world) error {
	const headTimeout, slack = 5 * time.Second, 15 * time.Second
	a := w.attempt
	var all sync.WaitGroup
	for i := range share(a, 200, 30) {
		all.Go(func() {
			text := []string{"", "G", "GET " + drivingPath + "?vid=A", "HEAD / HTTP/1.1\r\nHost: a\r\n", "GET / HTTP/1.1\r\nHost: a\r\nX: ", "\r\n"}[i%6]
			c, err := net.Dial("tcp", w.Address(nodeprocess.Query))
			if err != nil {
				a.Wrong("a new client cannot connect: %v", err)
				return
			}
			defer c.Close()
			stop := context.AfterFunc(ctx, func() { _ = c.Close() })
			defer stop()
			began := time.Now()
			_ = c.SetDeadline(began.Add(headTimeout + slack))
			a.Offered(1)
			if i%2 == 1 && text != "" { // a byte now and then must not buy time
				go func() {
					for err := error(nil); err == nil; time.Sleep(500 * time.Millisecond) {
						_, err = io.WriteString(c, "x")
					}
				}()
			}
			_, _ = io.WriteString(c, text)
			got, err := io.ReadAll(c)
			var network net.Error
			switch {
			case ctx.Err() != nil:
			case errors.As(err, &network) && network.Timeout():
				a.Wrong("who sends %q, and then little, may stay for ever: %s", text, time.Since(began).Round(time.Second))
			case len(text) > 2 && !bytes.HasPrefix(got, []byte("HTTP/1.1 408 ")):
				a.Wrong("who sends %q and no more gets %.100q", text, got)
			case len(text) <= 2 && len(got) > 0 && !bytes.HasPrefix(got, []byte("HTTP/1.1 408 ")):
				a.Wrong("who sends %q gets %.100q", text, got)
			case text != "" && text[0] == 'H' && len(got) > 0 && !bytes.HasSuffix(got, []byte("\r\n\r\n")):
				a.Wrong("a slow HEAD gets a body: %.100q", got)
			default:
				a.Acknowledged(1)
			}
		})
	}
	all.Wait()
	return ctx.Err()
}
