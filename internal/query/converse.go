package query

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"example.org/carstate/internal/listen"
)

// exchange is the memory that a connection needs only while it has a request in progress. Exchanges
// are pooled, so that a connection that waits for its next request holds none.
type exchange struct {
	request  request
	response response
	out      []byte // answers that are not sent yet
}

// The answers to pipelined requests are collected and sent together.
const (
	// sendAt is the size, in bytes, at which collected answers are sent. So the server holds at
	// most sendAt bytes and one more answer for a client that does not read.
	sendAt = 8 << 10
	// keepOut is the largest buffer of answers, in bytes, that is kept for further requests. A
	// larger buffer is freed.
	keepOut = 32 << 10
)

// conversation is a connection and the state of reading its requests. Only the goroutine of the
// connection uses it.
type conversation struct {
	s    *Server
	c    *listen.Conn
	wire net.Conn // c, or TLS over it
	peer netip.Addr

	lingers bool // close discards input for a while, so that the last answer arrives

	buf       []byte // buf[begin:end] has arrived and is not answered yet
	begin     int
	end       int
	scanned   int       // how many bytes of buf[begin:end] were searched for the end of a head
	answered  bool      // at least one request was answered
	now       time.Time // the time of the last answer
	readUntil time.Time // the deadlines that are set
	sendUntil time.Time
}

// serveConn answers the requests of a connection until either side ends it, and then closes it.
func (s *Server) serveConn(c *listen.Conn) {
	v := &conversation{s: s, c: c, wire: c, peer: c.Peer()}
	defer func() {
		if p := recover(); p != nil {
			s.report(p)
		}
		v.close()
	}()
	v.now = time.Now()
	v.readBy(v.now.Add(s.config.HeadTimeout))
	if s.config.TLS != nil {
		t := tls.Server(c, s.config.TLS)
		v.wire = t
		v.sendBy(v.now.Add(s.config.HeadTimeout))
		if s.guard.Ending() || t.Handshake() != nil {
			return
		}
		v.readBy(time.Now().Add(s.config.HeadTimeout))
	}
	for v.serveNext() {
	}
}

// Limits of the input that is discarded before a connection is closed (see close).
const (
	lingerTime  = 500 * time.Millisecond
	lingerBytes = 256 << 10
)

// close closes the connection. If the client may still be sending, it first closes only the sending
// side, and discards input for lingerTime or until lingerBytes have arrived. Otherwise the kernel's
// reset could overtake the last answer.
func (v *conversation) close() {
	if v.lingers {
		if t, ok := v.wire.(*tls.Conn); ok {
			_ = t.CloseWrite()
		}
		if v.c.CloseWrite() == nil {
			_ = v.c.SetReadDeadline(time.Now().Add(lingerTime))
			_, _ = io.CopyN(io.Discard, v.c, lingerBytes)
		}
	}
	_ = v.wire.Close()
}

func (v *conversation) readBy(t time.Time) {
	v.readUntil = t
	_ = v.wire.SetReadDeadline(t)
}

func (v *conversation) sendBy(t time.Time) {
	v.sendUntil = t
	_ = v.wire.SetWriteDeadline(t)
}

// serveNext waits for a request. It answers that request and all others that have arrived with it,
// and reports whether the connection stays open.
func (v *conversation) serveNext() bool {
	head, f := v.readHead()
	if f == nil && head == nil {
		return false
	}
	s := v.s
	e := s.exchanges.Get().(*exchange)
	goesOn := f == nil
	if f != nil {
		e.request = request{peer: v.peer}
		v.refuse(f, v.buf[v.begin:v.end], s.config.Now(), e)
		v.now = time.Now()
	}
	for head != nil {
		goesOn, head = v.respond(head, e), nil
		if goesOn {
			head = v.buffered()
		}
		if head != nil && len(e.out) >= sendAt {
			if goesOn = v.send(e.out); !goesOn {
				head = nil
			}
			e.out = e.out[:0]
		}
	}
	goesOn = v.send(e.out) && goesOn
	e.out, e.request = e.out[:0], request{}
	if cap(e.out) > keepOut {
		e.out = nil
	}
	s.exchanges.Put(e)
	return goesOn
}

// buffered returns the next request head in the buffer, or nil if the buffer has no complete one.
func (v *conversation) buffered() []byte {
	if v.scanned == 0 {
		v.begin = v.end - len(skipEmptyLines(v.buf[v.begin:v.end]))
	}
	n, scanned := headEnd(v.buf[v.begin:v.end], v.scanned)
	v.scanned = scanned
	if n == 0 {
		return nil
	}
	head := v.buf[v.begin : v.begin+n]
	v.begin += n
	return head
}

// readHead waits for a complete request head. It returns the head, or the failure to answer with.
// If both results are nil, the connection is to be closed without a further answer: the client has
// closed the connection or sends nothing, the connection was evicted, or the server shuts down.
func (v *conversation) readHead() ([]byte, *failure) {
	begun := v.end > v.begin // part of a head has arrived already
	if begun {
		v.readBy(time.Now().Add(v.s.config.HeadTimeout))
	} else {
		if v.begin, v.end = 0, 0; len(v.buf) > smallBuffer {
			v.buf = nil
		}
		if v.answered && overdue(v.readUntil, v.now, v.s.config.IdleTimeout) {
			v.readBy(v.now.Add(v.s.config.IdleTimeout))
		}
	}
	use := listen.Idle
	if !v.answered {
		use = listen.Silent
	}
	if !v.c.Become(use) || v.s.guard.Ending() {
		return nil, nil
	}
	for {
		if !v.makeRoom() {
			return nil, v.failureUnlessEvicted(failHeadSize)
		}
		n, err := v.wire.Read(v.buf[v.end:])
		v.end += n
		if head := v.buffered(); head != nil {
			if !v.c.Become(listen.Held) {
				return nil, nil
			}
			return head, nil
		}
		if err != nil {
			return nil, v.failureUnlessEvicted(v.readFailure(err))
		}
		if !begun && n > 0 {
			begun = true
			v.readBy(time.Now().Add(v.s.config.HeadTimeout))
		}
	}
}

// failureUnlessEvicted returns f, or nil if the connection was evicted: its request was not wrong.
func (v *conversation) failureUnlessEvicted(f *failure) *failure {
	if !v.c.Become(listen.Held) {
		return nil
	}
	return f
}

// overdue reports whether a deadline must be moved to the time now plus limit. It returns true if
// the present deadline is later than this time, or earlier by more than a quarter of limit. A
// smaller difference is ignored, because moving a deadline costs more time than a lookup in the
// fleet table.
func overdue(deadline, now time.Time, limit time.Duration) bool {
	left := deadline.Sub(now)
	return left < limit*3/4 || left > limit
}

// makeRoom makes space in the buffer for more of a head. If the head is too long, it returns false.
func (v *conversation) makeRoom() bool {
	switch {
	case v.buf == nil:
		v.buf = make([]byte, smallBuffer)
	case v.end < len(v.buf):
	case v.begin > 0:
		v.end = copy(v.buf, v.buf[v.begin:v.end])
		v.begin = 0
	case len(v.buf) < readBuffer:
		larger := make([]byte, readBuffer)
		copy(larger, v.buf)
		v.buf = larger
	default:
		return false
	}
	return true
}

// readFailure returns failSlow if err is a timeout, and otherwise failMalformed. If no part of a
// head had arrived, it returns nil, because the client then expects no answer.
func (v *conversation) readFailure(err error) *failure {
	if v.end == v.begin {
		return nil
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return failSlow
	}
	return failMalformed
}

// respond appends the answer to a request head to e.out. If it is a document, respond also sends
// e.out and the document. goesOn reports whether the connection stays open.
func (v *conversation) respond(head []byte, e *exchange) (goesOn bool) {
	s := v.s
	start := s.config.Now()
	sent := len(e.out)
	defer func() {
		if p := recover(); p != nil {
			s.report(p)
			e.response, e.out = response{}, e.out[:sent]
			v.refuse(failBroken, head, start, e)
			goesOn = false
		}
	}()
	w := &e.response
	e.request = request{peer: v.peer}
	f := e.request.split(head)
	switch {
	case f != nil:
	case v.c.Overloaded(): // accepted during an overload that still lasts
		f = failBusy
	case v.c.Crowded(): // accepted beyond MaxConnections, and too many are still open
		f = failCrowded
	}
	if f != nil {
		s.answerer.refuseHead(f, start, w)
	} else {
		s.answerer.answer(&e.request, start, w)
	}
	end := s.config.Now()
	s.recordAnswer(&e.request, w, start, end.Sub(start))
	if v.answered, v.now = true, end; s.otherTime {
		v.now = time.Now()
	}

	isHTTP10 := string(e.request.version) == "HTTP/1.0"
	connection := ""
	switch {
	case w.closes || v.c.Excess() || isHTTP10 && !w.keepAlive:
		v.lingers = true // the client may have sent more, even if it did not ask for keep-alive
		connection = "close"
	case s.guard.Ending():
		connection = "close"
	case isHTTP10:
		connection = "keep-alive"
	}
	e.out = w.appendHead(e.out, connection)
	goesOn = connection != "close"
	if string(e.request.method) == "HEAD" {
		return goesOn
	}
	if w.shared != nil {
		return v.sendDocument(e) && goesOn
	}
	e.out = append(e.out, w.body...)
	return goesOn
}

// refuse appends the answer with the failure f to e.out, and records it. The connection must be
// closed after it. head is the head as far as it has arrived; start is when the answer began.
func (v *conversation) refuse(f *failure, head []byte, start time.Time, e *exchange) {
	v.s.answerer.refuseHead(f, v.s.config.Now(), &e.response)
	v.s.recordAnswer(&e.request, &e.response, start, 0)
	e.out = e.response.appendHead(e.out, "close")
	if !bytes.HasPrefix(head, []byte("HEAD ")) {
		e.out = append(e.out, e.response.body...)
	}
	v.lingers = true
}

// sendDocument sends e.out and then a document, and reports whether it wrote all of them.
func (v *conversation) sendDocument(e *exchange) bool {
	now := time.Now()
	v.sendBy(now.Add(v.s.config.WriteTimeout))
	defer func() { e.out = e.out[:0] }()
	if !v.c.Send(now) {
		return false
	}
	if _, err := v.wire.Write(e.out); err != nil {
		return false
	}
	_, err := v.wire.Write(e.response.shared)
	v.sendUntil = time.Time{}
	return err == nil
}

// send writes b within Config.WriteTimeout, and reports whether it wrote all of it.
func (v *conversation) send(b []byte) bool {
	if len(b) == 0 {
		return true
	}
	if overdue(v.sendUntil, v.now, v.s.config.WriteTimeout) {
		v.sendBy(v.now.Add(v.s.config.WriteTimeout))
	}
	if !v.c.Send(v.now) {
		return false
	}
	_, err := v.wire.Write(b)
	return err == nil
}

func (s *Server) recordAnswer(r *request, w *response, start time.Time, took time.Duration) {
	s.metrics.observe(w, took)
	if s.config.AccessLog != nil {
		s.config.AccessLog.logAnswer(r, w, s.answerer.client(r), start, took)
	}
}

// report logs a panic during a request; the process continues. No part of the request is logged,
// and the value of the panic only if it is an error of the Go runtime.
func (s *Server) report(v any) {
	what := fmt.Sprintf("a %T", v)
	if e, ok := v.(runtime.Error); ok {
		what = e.Error()
	}
	s.config.Log.Error("cannot answer a query: this is a bug", "panic", what, "stack", string(debug.Stack()))
}
