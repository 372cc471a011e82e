package hostile

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"carstate/internal/nodeprocess"
	"carstate/torture/cores"
	"carstate/torture/row"
)

// slowClients is how many of them slowhttptest has.
const slowClients = 4000

// rounds is how often an attack is made at most until others fare well: what the
// machine does besides can only make them fare worse.
const rounds = 3

// recoveries is how often others are measured at most after an attack.
const recoveries = 6

// heldWithin is how long slowhttptest gets to have half its clients connected. It
// opens some hundreds a second, fewer where each first asks for something.
const heldWithin = 15 * time.Second

// attack is one way to be slow.
type attack struct {
	name string
	// holds says that its connections last. A head that does not come is given 5 s,
	// so that of clients that are opened within seconds some always are being
	// replaced: what is wanted is half of them, all the time. Bodies are refused at
	// once and hold nothing: as many must have been refused.
	holds bool
	args  []string
}

// slow has thousands of slow clients at the query listener, and looks how others
// fare meanwhile and afterwards, compared with how they did before any attack.
func slow(ctx context.Context, w *world) (err error) {
	a := w.attempt
	connections, windows := share(a, slowClients, 100), share(a, 8, 1)
	judged := a.Count >= fullCount/5 // few windows and connections say nothing
	atRest, err := w.Descriptors()
	if err != nil {
		return err
	}
	// The attackers get a processor of their own: the kernel may be in the middle of
	// one of their calls, which look at thousands of connections, and not give the
	// processor to anybody else before that ends.
	parts, err := cores.Split(w.PID())
	if err != nil {
		return err
	}
	processor := parts.Number
	if processor >= 0 {
		set := func(s *cores.Set) error {
			return errors.Join(cores.Confine(w.PID(), s), cores.Confine(os.Getpid(), s))
		}
		if err := set(&parts.Others); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, set(&parts.All)) }()
	}
	p := newProbe(w)
	p.measure(ctx, 2) // the first requests warm both sides up
	before := row.Percentile(p.measure(ctx, windows), 0.5)
	a.Figure("p99 of good requests before any slow client", milliseconds(before), "ms")
	toBefore := func(d time.Duration) float64 {
		return math.Round(100*float64(d)/float64(max(before, 1))) / 100
	}
	url := w.URL(nodeprocess.Query)
	query := url + drivingPath + "?access_token=" + w.open[0].secret + "&vid=CarJam"
	for _, x := range []attack{
		{"heads sent slowly", true, []string{"-H", "-i", "1", "-x", "24", "-t", "GET", "-u", query}},
		{"bodies sent slowly", false, []string{"-B", "-i", "1", "-x", "10", "-s", "8192", "-t", "POST", "-u", query}},
		{"answers read slowly", true, []string{"-X", "-w", "512", "-y", "1024", "-n", "1", "-z", "32", "-k", "3", "-u", url + "/reference/swagger-ui-bundle.js"}},
	} {
		// A round in which too few were connected proves nothing, and counts only
		// if all were so.
		var with, after time.Duration
		held, enough := 0, false
		refused, err := w.refused(ctx, "")
		if err != nil {
			return err
		}
		for round := range rounds {
			u, err := w.under(ctx, p, windows, connections, processor, &x)
			if err != nil {
				return err
			}
			if err := w.settle(ctx, atRest); err != nil {
				return err
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			n := u.held - atRest
			m, ok := row.Percentile(u.p99, 0.5), !x.holds || n >= connections/2
			if round == 0 || ok && !enough || ok == enough && m < with {
				with, held, enough = m, n, ok
			}
			if enough && toBefore(with) <= 2 {
				break
			}
		}
		all, err := w.refused(ctx, "")
		if err != nil {
			return err
		}
		refused = all - refused
		for round := range recoveries {
			m := row.Percentile(p.measure(ctx, windows), 0.5)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if round == 0 || m < after {
				after = m
			}
			if toBefore(after) <= 2 {
				break
			}
		}
		a.Figure(x.name+": p99 of others meanwhile", milliseconds(with), "ms")
		if !judged {
			continue
		}
		if x.holds {
			a.Aimed(x.name+": connections at once, median", float64(held), "", fmt.Sprintf("≥ %d", connections/2), enough)
		} else {
			a.Aimed(x.name+": refused", refused, "", fmt.Sprintf("≥ %d", connections/2), refused >= float64(connections/2))
		}
		a.Aimed(x.name+": p99 of others meanwhile, to before", toBefore(with), "×", "≤ 2 ×", toBefore(with) <= 2)
		a.Aimed(x.name+": p99 of others afterwards, to before", toBefore(after), "×", "≤ 2 ×", toBefore(after) <= 2)
	}
	a.Offered(p.asked)
	a.Acknowledged(p.asked - len(p.failures))
	a.Figure("good requests beside slow clients", float64(p.asked), "")
	for i, err := range p.failures {
		if i < 5 {
			a.Wrong("beside slow clients: %v", err)
		}
	}
	a.Aimed("of them failed", float64(len(p.failures)), "", "0", len(p.failures) == 0)
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// underway is what was measured during an attack.
type underway struct {
	p99  []time.Duration // of others, by window
	held int             // descriptors that the node had meanwhile, median
}

// under measures while slowhttptest is at work, on a processor of its own if there is one.
func (w *world) under(ctx context.Context, p *probe, windows, connections, processor int, x *attack) (u underway, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// It opens as many files as its limit, and no more, without a word. Attackers
	// have machines of their own: this one gives them what nobody else wants.
	own := ""
	if processor >= 0 {
		own = "taskset -c " + strconv.Itoa(processor)
	}
	args := append([]string{"-c", `ulimit -n "$(ulimit -H -n)"; exec ` + own + ` chrt --idle 0 slowhttptest "$@"`, "slowhttptest",
		"-c", strconv.Itoa(connections), "-r", strconv.Itoa(connections/2 + 1), "-l", strconv.Itoa(int(heldWithin.Seconds()) + windows + 5), "-p", "3", "-v", "0"}, x.args...)
	var attacking sync.WaitGroup
	var failed error // of slowhttptest; to be read once it has ended
	attacking.Go(func() {
		// Where all of them are refused at once it ends early: then again.
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
		limit = 3 * time.Second // until they come in full number
	}
	// Where too few ever come it is measured all the same, and that is found.
	_ = nodeprocess.Until(ctx, limit, func(context.Context) error {
		n, err := w.Descriptors()
		if err == nil && n < connections/2+connections/20 {
			err = fmt.Errorf("%d of %d are connected", n, connections)
		}
		return err
	})
	var held []int
	measured := row.Every(ctx, 50*time.Millisecond, func() {
		if n, err := w.Descriptors(); err == nil {
			held = append(held, n)
		}
	})
	u.p99 = p.measure(ctx, windows)
	measured()
	cancel()
	attacking.Wait()
	if slices.Sort(held); len(held) > 0 {
		u.held = held[len(held)/2]
	}
	return u, failed
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
			switch {
			case ctx.Err() != nil:
			case timedOut(err):
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

// The probe asks in an open loop: each request is due at a time of its own and its
// delay counts from then, so that a stall delays all that fall into it.
const (
	probers   = 8
	probeRate = 400 // requests a second
	window    = time.Second
)

// probe asks a listener a good question again and again.
type probe struct {
	address string
	request string

	mu       sync.Mutex
	began    time.Time
	took     map[int][]time.Duration // by window
	asked    int
	failures []error
}

func newProbe(w *world) *probe {
	return &probe{address: w.Address(nodeprocess.Query), request: question(w, "CarNormal"), took: make(map[int][]time.Duration)}
}

// question is a good request.
func question(w *world, vid string) string {
	return "GET " + drivingPath + "?access_token=" + w.open[0].secret + "&vid=" + vid + " HTTP/1.1\r\nHost: localhost\r\n\r\n"
}

// measure asks for some windows and returns the 99th percentile of each.
func (p *probe) measure(ctx context.Context, windows int) (p99 []time.Duration) {
	clear(p.took)
	p.began = time.Now()
	until := p.began.Add(time.Duration(windows) * window)
	var all sync.WaitGroup
	for i := range probers {
		all.Go(func() {
			p.ask(ctx, until, time.Second*probers/probeRate, time.Duration(i)*time.Second/probeRate)
		})
	}
	all.Wait()
	for _, took := range p.took {
		p99 = append(p99, row.Percentile(took, 0.99))
	}
	return p99
}

// ask is one client with one connection.
func (p *probe) ask(ctx context.Context, until time.Time, every, offset time.Duration) {
	c := &connection{to: p.address}
	defer c.close()
	for due := p.began.Add(offset); due.Before(until) && ctx.Err() == nil; due = due.Add(every) {
		time.Sleep(time.Until(due))
		status, body, err := c.ask(ctx, p.request)
		if err == nil && (status != http.StatusOK || !strings.Contains(body, `"status":1`)) {
			err = fmt.Errorf("a good request got %d %.200q", status, body)
		}
		took := time.Since(due)
		if err != nil {
			c.close()
		}
		p.mu.Lock()
		p.asked++
		if err == nil {
			at := int(due.Sub(p.began) / window)
			p.took[at] = append(p.took[at], took)
		} else if ctx.Err() == nil {
			p.failures = append(p.failures, err)
		}
		p.mu.Unlock()
	}
}

// connection is that of an honest client, which connects when it has something to
// ask.
type connection struct {
	to   string
	conn net.Conn // nil: none
	in   *bufio.Reader
}

func (c *connection) ask(ctx context.Context, request string) (status int, body string, err error) {
	if c.conn == nil {
		if c.conn, err = (&net.Dialer{Timeout: patience}).DialContext(ctx, "tcp", c.to); err != nil {
			c.conn = nil
			return 0, "", err
		}
		c.in = bufio.NewReader(c.conn)
	}
	if err := c.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return 0, "", err
	}
	if _, err := io.WriteString(c.conn, request); err != nil {
		return 0, "", err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return 0, "", err
	}
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), errors.Join(err, resp.Body.Close())
}

func (c *connection) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}
