package hostile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"time"

	"carstate/internal/access"
)

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

// talk sends the stream in pieces over a connection of its own, says that it is
// done, and reads to the end.
func talk(ctx context.Context, from, to string, stream []byte, rng *rand.Rand) (x exchange) {
	d := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	nc, err := d.DialContext(ctx, "tcp", to)
	if err != nil {
		return exchange{alone: true, err: err}
	}
	defer nc.Close()
	c := nc.(*net.TCPConn)
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
		sent = c.CloseWrite()
	}
	x.late = time.Since(began) > 300*time.Millisecond
	err = <-read
	var network net.Error
	switch {
	case errors.As(err, &network) && network.Timeout():
		x.err = fmt.Errorf("the connection does not end: after %s %d bytes had come", patience, len(x.got))
	case err != nil || sent != nil:
		x.reset = true
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
func (c *contract) compare(stream []byte, x exchange, by *caller, seen func(*answer) string) (wrong string, answered int) {
	got := x.got
	for {
		e := c.next(stream, by)
		if e == nil {
			if len(got) > 0 {
				return "an answer came that nobody asked for: " + shown(got), answered
			}
			return "", answered
		}
		if len(got) == 0 {
			if e.silence || x.reset && x.late {
				return "", answered
			}
			if x.reset {
				return "the connection was cut in place of an answer to " + shown(stream), answered
			}
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
		by.took(o)
		answered++
		if got = a.rest; o.closes {
			if len(got) > 0 {
				return "something came after the last answer: " + shown(got), answered
			}
			return "", answered
		}
		stream = stream[e.size:]
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
