package strangers

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
)

// crowd is strangers that come one after the other over one connection, each
// without waiting for the answer of the one before. Reading gives their requests,
// writing takes their answers. Reading and writing may go on at the same time.
type crowd struct {
	door     door
	first, n int // they are first, first+1, …
	random   *rand.Rand

	asked int    // touched by Read only
	rest  []byte // of a request that did not fit

	answered int // touched by Write only
	part     []byte
	wrong    error // of the first answer that was
}

func newCrowd(d door, seed uint64, first, n int) *crowd {
	return &crowd{door: d, first: first, n: n, random: rand.New(rand.NewPCG(seed, uint64(first)))}
}

// Read gives requests until all have asked.
func (c *crowd) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if len(c.rest) == 0 {
			if c.asked == c.n {
				break
			}
			c.rest = c.door.ask(c.rest[:0:cap(c.rest)], c.first+c.asked, c.random)
			c.asked++
		}
		k := copy(p[n:], c.rest)
		n += k
		if c.rest = c.rest[k:]; len(c.rest) == 0 {
			c.rest = nil
		}
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// errAll ends the reading of answers once all are there.
var errAll = errors.New("all are answered")

// Write takes answers, whole or in parts.
func (c *crowd) Write(p []byte) (int, error) {
	all := p
	if len(c.part) > 0 {
		c.part = append(c.part, p...)
		all = c.part
	}
	for {
		rest, ok, err := c.take(all)
		if err != nil {
			return 0, err
		}
		all = rest
		if !ok {
			break
		}
	}
	c.part = append(c.part[:0], all...)
	if c.answered == c.n {
		return len(p), errAll
	}
	return len(p), nil
}

// take judges the answer that b begins with. It reports false if that is not
// there as a whole.
func (c *crowd) take(b []byte) (rest []byte, ok bool, err error) {
	head, body, ok := bytes.Cut(b, []byte("\r\n\r\n"))
	if !ok {
		return b, false, nil
	}
	if len(head) < len("HTTP/1.1 200") {
		return b, false, errors.New("an answer is no HTTP")
	}
	status, err1 := strconv.Atoi(string(head[len("HTTP/1.1 "):len("HTTP/1.1 200")]))
	length, err2 := strconv.Atoi(value(head, "content-length"))
	if err := errors.Join(err1, err2); err != nil || c.answered == c.n {
		return b, false, fmt.Errorf("an answer cannot be read: %w", err)
	}
	if len(body) < length {
		return b, false, nil
	}
	if err := c.door.judge(c.first+c.answered, status, head, body[:length]); err != nil && c.wrong == nil {
		c.wrong = err
	}
	c.answered++
	return body[length:], true, nil
}
