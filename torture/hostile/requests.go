package hostile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"carstate/internal/access"
	"carstate/torture/row"
)

// talkers is how many connections are open at a time.
const talkers = 8

// patience is how long a conversation may take. Nothing waits for anything in it,
// so that only a hang, or a machine that is lost, takes so long.
const patience = 40 * time.Second

// exchange is what came of sending a stream.
type exchange struct {
	got   []byte
	reset bool // the connection was cut, and answers may be lost
	alone bool // nobody took the connection
	late  bool // sending took so long that a server need not have waited for it
	err   error
}

// dialFrom connects from an address of this machine.
func dialFrom(ctx context.Context, from, to string) (net.Conn, error) {
	d := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	return d.DialContext(ctx, "tcp", to)
}

// timedOut reports whether an error says that a deadline is over.
func timedOut(err error) bool {
	var network net.Error
	return errors.As(err, &network) && network.Timeout()
}

// talk sends the stream in pieces over a connection of its own, says that it is
// done, and reads to the end.
func talk(ctx context.Context, from, to string, stream []byte, rng *rand.Rand) (x exchange) {
	c, err := dialFrom(ctx, from, to)
	if err != nil {
		return exchange{alone: true, err: err}
	}
	defer c.Close()
	began := time.Now()
	if err := c.SetDeadline(began.Add(patience)); err != nil {
		return exchange{err: err}
	}
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

// send writes the stream at once or in pieces of random sizes, at times with a
// pause, so that they arrive as pieces.
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

// compare holds what came against what may. It returns "" or what is wrong, and how
// many requests were answered.
func (c *contract) compare(v *conversation, x exchange, by *caller, seen func(*answer) string) (wrong string, answered int) {
	got := x.got
	for at := 0; ; {
		for bytes.HasPrefix(v.stream[at:], []byte("\r\n")) { // RFC 9112, 2.2
			at += 2
		}
		stream := v.stream[at:]
		if len(stream) == 0 && len(got) > 0 {
			return "an answer came that nobody asked for: " + shown(got), answered
		} else if len(stream) == 0 {
			return "", answered
		}
		e := c.next(stream, v.sound[at], by)
		switch {
		case len(got) == 0 && (e.silence || x.reset && x.late):
			return "", answered
		case len(got) == 0 && x.reset:
			return "the connection was cut in place of an answer to " + shown(stream), answered
		case len(got) == 0:
			return "no answer came to " + shown(stream), answered
		}
		a, err := readAnswer(got, e)
		if err != nil {
			if x.reset && x.late {
				return "", answered
			}
			return fmt.Sprintf("%s: %s to %s", err, shown(got), shown(stream)), answered
		}
		o, why := e.match(a)
		if o == nil {
			return fmt.Sprintf("the answer %s: %s to %s", why, shown(got), shown(stream)), answered
		}
		if why := seen(a); why != "" {
			return why + ": " + shown(got), answered
		}
		if o.refused {
			if by.refused++; by.refused == 1 {
				by.since = time.Now()
			}
		}
		if o.unsure {
			by.forget()
		}
		answered++
		if got = a.rest; o.closes {
			if len(got) > 0 {
				return "something came after the last answer: " + shown(got), answered
			}
			return "", answered
		}
		at += e.size
	}
}

// match finds the allowed answer that this one is, or says why it is none.
func (e *expected) match(a *answer) (*outcome, string) {
	var wrong string
	for i := range e.outcomes {
		o := &e.outcomes[i]
		why := o.judge(a, e.noBody || e.anyBody && a.body == "")
		if why == "" {
			return o, ""
		}
		if wrong == "" || a.status == o.status {
			wrong = fmt.Sprintf("%s (wanted %d)", why, o.status)
		}
	}
	return nil, wrong
}

// shown is the begin of some bytes for a finding.
func shown(b []byte) string {
	const most = 240
	text := access.Redact(string(b))
	if len(text) > most {
		return fmt.Sprintf("%q… (%d bytes)", text[:most], len(b))
	}
	return fmt.Sprintf("%q", text)
}

// maxMessages is how many different messages all refusals together may have: they
// are fixed texts. One that repeated what was sent would have as many as requests.
const maxMessages = 60

// observed are the answers of a whole run: what no single one shows.
type observed struct {
	mu       sync.Mutex
	ids      map[string]bool // X-Request-Id
	messages map[string]bool
	statuses map[int]int
}

// note takes in an answer and says what is wrong with it beside the others.
func (o *observed) note(a *answer) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.statuses[a.status]++
	id := a.header.Get("X-Request-Id")
	if o.ids[id] {
		return "two answers have one X-Request-Id"
	}
	o.ids[id] = true
	if a.status != 200 && a.body != "" {
		o.messages[a.body] = true
		if len(o.messages) > maxMessages {
			return "the messages are no fixed texts: they repeat what was sent"
		}
	}
	return ""
}

// requests sends hostile requests to a query listener, and judges what comes back
// by the contract.
func requests(ctx context.Context, a *row.Attempt, c *contract, newWriter func(worker int, rng *rand.Rand) *writer, address string, total int) error {
	var left, resets atomic.Int64
	var workers sync.WaitGroup
	all := &observed{ids: make(map[string]bool), messages: make(map[string]bool), statuses: make(map[int]int)}
	left.Store(int64(total))
	began := time.Now()
	for worker := range talkers {
		workers.Go(func() {
			rng := rand.New(rand.NewPCG(a.Seed, uint64(worker)))
			w, by := newWriter(worker, rng), new(caller)
			for n := 0; ctx.Err() == nil && left.Load() > 0; n++ {
				// Refusals are counted for a minute, and nobody waits for it to end.
				if n == 0 || by.refused > maxRefused+8 || by.refused > 0 && time.Since(by.since) > 40*time.Second {
					by.address, by.refused = addressOf(worker, n), 0
				}
				v := w.conversation()
				x := talk(ctx, by.address, address, v.stream, rng)
				if ctx.Err() != nil {
					return
				}
				a.Offered(v.requests)
				wrong, answered := "", 0
				if x.err == nil {
					wrong, answered = c.compare(v, x, by, all.note)
				} else {
					wrong = x.err.Error()
				}
				left.Add(int64(-answered))
				a.Acknowledged(answered)
				if wrong != "" {
					a.Wrong("conversation %d of talker %d: %s", n, worker, wrong)
				}
				if x.reset { // what was counted against the address is not certain any more
					resets.Add(1)
					by.forget()
				}
			}
		})
	}
	workers.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	a.Figure("hostile requests", float64(total)/time.Since(began).Seconds(), "1/s")
	a.Figure("connections that were cut off", float64(resets.Load()), "")
	a.Figure("different texts of refusals", float64(len(all.messages)), "")
	for _, status := range []int{200, 400, 401, 403, 404, 405, 414, 429, 431} {
		a.Figure(fmt.Sprintf("answers %d", status), float64(all.statuses[status]), "")
		if total >= 10_000 && all.statuses[status] == 0 {
			return fmt.Errorf("no request was answered with %d: the generator does not reach it", status)
		}
	}
	return nil
}

// addressOf is a talker's address of this machine, a new one for each n.
func addressOf(worker, n int) string {
	return fmt.Sprintf("127.%d.%d.%d", 16+worker+talkers*(n/62500%20), n/250%250, 1+n%250)
}

// readDocument reads a page of the documentation as a browser would, and as one
// that wants it compressed.
func readDocument(url string) (d document, err error) {
	for encoding, text := range map[string]*string{"identity": &d.plain, "gzip": &d.gzipped} {
		req, err := http.NewRequest(http.MethodGet, url, nil)
		if err != nil {
			return d, err
		}
		req.Header.Set("Accept-Encoding", encoding)
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			return d, err
		}
		body, err := io.ReadAll(resp.Body)
		if err = errors.Join(err, resp.Body.Close()); err != nil || resp.StatusCode != http.StatusOK {
			return d, fmt.Errorf("the documentation at %s gets %d: %w", url, resp.StatusCode, err)
		}
		*text = string(body)
	}
	return d, nil
}
