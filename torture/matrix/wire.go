package matrix

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// wire is a connection to the query listener that is kept. The answer's bytes
// are looked at as they come, which no client library lets us do.
type wire struct {
	conn net.Conn
	in   *bufio.Reader
	out  []byte
	got  answer
}

// patience is how long an answer may take on a machine that has better to do.
const patience = time.Minute

func dial(address string) (*wire, error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	return &wire{conn: c, in: bufio.NewReader(c)}, nil
}

func (w *wire) close() { _ = w.conn.Close() }

// answer is one as it came. It is valid until the next.
type answer struct {
	status int
	raw    []byte // the whole head
	names  []string
	values []string
	body   []byte
}

func (a *answer) header(name string) string {
	for i, n := range a.names {
		if n == name {
			return a.values[i]
		}
	}
	return ""
}

func (a *answer) time(name string) time.Time {
	t, _ := http.ParseTime(a.header(name))
	return t
}

// request is the text of a request. query holds what stands behind the question
// mark, from is whom the proxy in front would say that it speaks for.
func request(b []byte, method string, op operation, query, from string) []byte {
	b = fmt.Appendf(b, "%s %s?%s HTTP/1.1\r\nHost: carstate\r\n", method, operations[op].path, query)
	if from != "" {
		b = fmt.Appendf(b, "X-Forwarded-For: %s\r\n", from)
	}
	return append(b, "\r\n"...)
}

// ask sends a request and reads the answer.
func (w *wire) ask(method string, op operation, query, from string) (*answer, error) {
	w.out = request(w.out[:0], method, op, query, from)
	if err := w.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	if _, err := w.conn.Write(w.out); err != nil {
		return nil, err
	}
	return w.read(method == http.MethodHead)
}

func (w *wire) read(head bool) (*answer, error) {
	a := &w.got
	*a = answer{raw: a.raw[:0], names: a.names[:0], values: a.values[:0], body: a.body[:0]}
	for first := true; ; first = false {
		line, err := w.in.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		a.raw = append(a.raw, line...)
		text := strings.TrimSuffix(string(line), "\r\n")
		if first {
			if _, err := fmt.Sscanf(text, "HTTP/1.1 %d", &a.status); err != nil {
				return nil, errors.New("that is no HTTP")
			}
			continue
		}
		if text == "" {
			break
		}
		name, value, _ := strings.Cut(text, ": ")
		a.names, a.values = append(a.names, name), append(a.values, value)
	}
	length, err := strconv.Atoi(a.header("Content-Length"))
	if err != nil || head {
		return a, err
	}
	a.body = append(a.body, make([]byte, length)...)
	_, err = io.ReadFull(w.in, a.body)
	return a, err
}

// plain is the answer's bytes without what the contract lets differ: the date,
// the request's id and the vid that was asked for.
func (a *answer) plain(vid string) string {
	whole := bytes.Join([][]byte{a.raw, a.body}, nil)
	for _, name := range []string{"Date", "X-Request-Id"} {
		whole = bytes.Replace(whole, []byte(a.header(name)), []byte(name), 1)
	}
	return string(bytes.Replace(whole, []byte(vid), []byte("VID"), 1))
}
