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

	"carstate/bench/must"
	"carstate/internal/access"
	"carstate/internal/nodeprocess"
)

// talkers is the number of concurrent connections.
const talkers = 8

// patience is the time limit for everything that is sent and received over one connection. No
// request makes the service wait, so only a hang or an overloaded machine exceeds the limit.
const patience = 40 * time.Second

// exchange is the result of sending a stream.
type exchange struct {
	got   []byte
	reset bool // the connection was reset, so answers may be lost
	alone bool // the connection was not accepted
	late  bool // sending took so long that a server may have given up
	err   error
}

// dialFrom connects from an address of this machine.
func dialFrom(ctx context.Context, from, to string) (net.Conn, error) {
	d := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	return d.DialContext(ctx, "tcp", to)
}

// timedOut reports whether err means that a deadline has passed.
func timedOut(err error) bool {
	var network net.Error
	return errors.As(err, &network) && network.Timeout()
}

// talk sends the stream in pieces over a new connection, closes the sending side of the connection,
// and reads until the server closes it.
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

// send writes the stream at once or in pieces of random sizes, sometimes with pauses, so
// that the pieces arrive separately.
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

// compare compares the answers received in a conversation with those that the contract allows to
// the client, the parameter by. The function seen returns what else is wrong with an allowed
// answer, or "". The results are a description of the first wrong answer, or "", and the number of
// requests answered.
func (c *contract) compare(v *conversation, x exchange, by *caller, seen func(*answer) string) (wrong string,
	answered int) {
	got := x.got
	for at := 0; ; {
		for bytes.HasPrefix(v.stream[at:], []byte("\r\n")) { // RFC 9112, 2.2
			at += 2
		}
		stream := v.stream[at:]
		if len(stream) == 0 && len(got) > 0 {
			return "an answer without a request: " + shown(got), answered
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
				return "bytes after the last answer: " + shown(got), answered
			}
			return "", answered
		}
		at += e.size
	}
}

// match compares the answer with the allowed outcomes. It returns the outcome that the answer
// matches. If there is none, it returns nil and a text that says what is wrong with the answer.
func (e *expected) match(a *answer) (*outcome, string) {
	var wrong string
	for i := range e.outcomes {
		o := &e.outcomes[i]
		why := o.mismatch(a, e.noBody || e.anyBody && a.body == "")
		if why == "" {
			return o, ""
		}
		if wrong == "" || a.status == o.status {
			wrong = fmt.Sprintf("%s (wanted %d)", why, o.status)
		}
	}
	return nil, wrong
}

// shown returns the beginning of b for a finding, with secrets removed.
func shown(b []byte) string {
	const most = 240
	text := access.Redact(string(b))
	if len(text) > most {
		return fmt.Sprintf("%q… (%d bytes)", text[:most], len(b))
	}
	return fmt.Sprintf("%q", text)
}

// maxMessages is the maximum number of different messages in all refusals of a run. Messages must
// be fixed texts. One that repeated its input would be different for nearly every request.
const maxMessages = 60

// observed collects the answers of a whole run, for checks that concern several answers.
type observed struct {
	mu       sync.Mutex
	ids      map[string]bool // X-Request-Id
	messages map[string]bool
	statuses map[int]int
}

// note adds an answer, and returns what is wrong with it in comparison with the earlier answers, or
// "".
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
			return "the messages are not fixed texts: they repeat what was sent"
		}
	}
	return ""
}

// requests sends hostile requests to a query listener, and checks the answers against the
// contract.
func requests(ctx context.Context, w *world) {
	a, address, total := w.attempt, w.Address(nodeprocess.Query), w.attempt.Count
	var left, resets atomic.Int64
	var workers sync.WaitGroup
	all := &observed{ids: make(map[string]bool), messages: make(map[string]bool), statuses: make(map[int]int)}
	left.Store(int64(total))
	began := time.Now()
	for worker := range talkers {
		workers.Go(func() {
			rng := rand.New(rand.NewPCG(a.Seed, uint64(worker)))
			h, by := w.writer(worker, rng), new(caller)
			for n := 0; ctx.Err() == nil && left.Load() > 0; n++ {
				// The service limits refusals per address and minute. Use a new
				// address instead of waiting.
				if n == 0 || by.refused > maxRefused+8 || by.refused > 0 && time.Since(by.since) > 40*time.Second {
					by.address, by.refused = addressOf(worker, n), 0
				}
				v := h.conversation()
				x := talk(ctx, by.address, address, v.stream, rng)
				if ctx.Err() != nil {
					return
				}
				a.Offered(v.requests)
				wrong, answered := "", 0
				if x.err == nil {
					wrong, answered = w.compare(v, x, by, all.note)
				} else {
					wrong = x.err.Error()
				}
				left.Add(int64(-answered))
				a.Acknowledged(answered)
				if wrong != "" {
					a.Wrong("conversation %d of talker %d: %s", n, worker, wrong)
				}
				if x.reset { // the number of refusals counted for the address is uncertain
					resets.Add(1)
					by.forget()
				}
			}
		})
	}
	workers.Wait()
	must.Do(ctx.Err())
	a.Figure("hostile requests", float64(total)/time.Since(began).Seconds(), "1/s")
	a.Figure("connections that were cut off", float64(resets.Load()), "")
	a.Figure("different texts of refusals", float64(len(all.messages)), "")
	for _, status := range []int{200, 400, 401, 403, 404, 405, 414, 429, 431} {
		a.Figure(fmt.Sprintf("answers %d", status), float64(all.statuses[status]), "")
		if total >= 10_000 && all.statuses[status] == 0 {
			must.Fail("no request was answered with %d: the generator does not reach it", status)
		}
	}
}

// addressOf returns a local address for a talker, a different one for each n.
func addressOf(worker, n int) string {
	return fmt.Sprintf("127.%d.%d.%d", 16+worker+talkers*(n/62500%20), n/250%250, 1+n%250)
}

// readDocument reads a page of the documentation, plain and compressed.
func readDocument(url string) (d document) {
	for encoding, text := range map[string]*string{"identity": &d.plain, "gzip": &d.gzipped} {
		req := must.Get(http.NewRequest(http.MethodGet, url, nil))
		req.Header.Set("Accept-Encoding", encoding)
		resp := must.Get(http.DefaultTransport.RoundTrip(req))
		body := must.Get(io.ReadAll(resp.Body))
		must.Do(resp.Body.Close())
		if resp.StatusCode != http.StatusOK {
			must.Fail("the documentation at %s gets %d", url, resp.StatusCode)
		}
		*text = string(body)
	}
	return d
}
