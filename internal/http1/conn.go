package http1

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"example.org/carstate/internal/listen"
)

// exchange is pooled: a connection has one only while a request is in progress.
type exchange struct {
	request Request
	answer  Handler
	out     []byte // not sent yet
}

// For a client that does not read, the server holds sendAt bytes and at most one answer more.
const sendAt = 8 << 10

// conversation belongs to its connection's goroutine.
type conversation struct {
	s    *Server
	c    *listen.Conn
	wire net.Conn // c, or TLS over it

	lingers bool // close discards input for a while, so that the last answer arrives

	buf       []byte // buf[begin:end] is not answered yet
	begin     int
	end       int
	scanned   int        // bytes of buf[begin:end] in which no end of a head was found
	waitsAs   listen.Use // Silent before the first answer, then Idle
	now       time.Time  // of the last answer
	readUntil time.Time  // the deadlines that are set
	sendUntil time.Time
}

func (s *Server) serveConn(c *listen.Conn) {
	v := &conversation{s: s, c: c, wire: c}
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
		if s.Guard.Ending() || t.Handshake() != nil {
			return
		}
		v.readBy(time.Now().Add(s.config.HeadTimeout))
	}
	for v.serveNext() {
	}
}

const (
	lingerTime  = 500 * time.Millisecond
	lingerBytes = 256 << 10
)

// close first closes only the sending side if the client may still be sending, lest the kernel's
// reset overtakes the last answer.
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

// serveNext answers all requests that have arrived, and reports whether the connection stays open.
func (v *conversation) serveNext() bool {
	head, fault := v.readHead()
	// An evicted connection gets no fault, because its request was not wrong.
	if !v.c.Become(listen.Held) || fault == None && head == nil {
		return false
	}
	e := v.s.exchanges.Get().(*exchange)
	e.request.Peer = v.c.Peer()
	if fault != None {
		v.respond(v.buf[v.begin:v.end], fault, e)
	}
	goesOn := v.answer(head, e)
	// Another connection gets e next: keep nothing of this one.
	e.request, e.out = Request{}, e.out[:0]
	v.s.exchanges.Put(e)
	return goesOn
}

func (v *conversation) answer(head []byte, e *exchange) (goesOn bool) {
	for ; head != nil; head = v.buffered() {
		if len(e.out) >= sendAt && !v.send(e) {
			return false
		}
		if goesOn = v.respond(head, None, e); !goesOn {
			break
		}
	}
	return v.send(e) && goesOn
}

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

// headEnd finds the end of the head at the start of b. If it has not arrived, end is 0, and next is
// the from of the next call.
//
// An empty line without CR also ends a head, which is then refused without waiting for CR LF.
func headEnd(b []byte, from int) (end, next int) {
	for {
		i := bytes.IndexByte(b[from:], '\n')
		if i < 0 {
			return 0, from
		}
		after := from + i + 1
		switch rest := b[after:]; {
		case len(rest) > 0 && rest[0] == '\n':
			return after + 1, 0
		case len(rest) > 1 && rest[0] == '\r' && rest[1] == '\n':
			return after + 2, 0
		case len(rest) == 0 || len(rest) == 1 && rest[0] == '\r':
			return 0, from
		}
		from = after
	}
}

// skipEmptyLines: empty lines may precede a request (RFC 9112, 2.2).
func skipEmptyLines(b []byte) []byte {
	for len(b) > 1 && b[0] == '\r' && b[1] == '\n' {
		b = b[2:]
	}
	return b
}

// readHead returns a head, or the fault to answer with, or neither if the connection is to be
// closed silently.
func (v *conversation) readHead() ([]byte, Fault) {
	begun := v.end > v.begin
	if begun {
		v.readBy(time.Now().Add(v.s.config.HeadTimeout))
	} else {
		if v.begin, v.end = 0, 0; len(v.buf) > smallBuffer {
			v.buf = nil
		}
		if v.waitsAs == listen.Idle && overdue(v.readUntil, v.now, v.s.config.IdleTimeout) {
			v.readBy(v.now.Add(v.s.config.IdleTimeout))
		}
	}
	if !v.c.Become(v.waitsAs) || v.s.Guard.Ending() {
		return nil, None
	}
	for {
		if !v.makeRoom() {
			return nil, HeadSize
		}
		n, err := v.wire.Read(v.buf[v.end:])
		v.end += n
		if head := v.buffered(); head != nil {
			return head, None
		}
		if err != nil {
			return nil, v.faultOf(err)
		}
		if !begun && n > 0 {
			begun = true
			v.readBy(time.Now().Add(v.s.config.HeadTimeout))
		}
	}
}

// Only an overdue deadline is moved, because moving one costs more than many an answer.
func overdue(deadline, now time.Time, limit time.Duration) bool {
	left := deadline.Sub(now)
	return left < limit*3/4 || left > limit
}

// The read buffer begins small, which suffices for nearly every head. The large one exceeds
// MaxHead, so that the answer to a head that is a little too long names the limit.
const (
	smallBuffer = 4 << 10
	readBuffer  = MaxHead + 1<<10
)

func (v *conversation) makeRoom() bool {
	switch {
	case v.buf == nil:
		v.buf = make([]byte, smallBuffer)
	case v.end < len(v.buf):
	case v.begin > 0:
		v.end = copy(v.buf, v.buf[v.begin:v.end])
		v.begin = 0
	case len(v.buf) < readBuffer:
		v.buf = append(v.buf, make([]byte, readBuffer-len(v.buf))...)
	default:
		return false
	}
	return true
}

// faultOf returns None if no part of a head had arrived: the client expects no answer.
func (v *conversation) faultOf(err error) Fault {
	switch {
	case v.end == v.begin:
		return None
	case errors.Is(err, os.ErrDeadlineExceeded):
		return Slow
	}
	return NotHTTP
}

// respond answers a head, or a fault. With a fault, the head may be incomplete, and the connection
// must be closed afterwards.
func (v *conversation) respond(head []byte, f Fault, e *exchange) (goesOn bool) {
	v.now = time.Now()
	w, f := v.ask(head, f, e)
	v.waitsAs = listen.Idle
	r := &e.request
	connection := ""
	switch {
	case f != None || r.closes || v.c.Excess() || r.isHTTP10() && !r.keepAlive:
		v.lingers = true // the client may have sent more, even without keep-alive
		connection = "close"
	case v.s.Guard.Ending():
		connection = "close"
	case r.isHTTP10():
		connection = "keep-alive"
	}
	e.out = w.appendHead(e.out, connection)
	goesOn = connection != "close"
	if bytes.HasPrefix(head, []byte("HEAD ")) {
		return goesOn
	}
	if w.Shared == nil {
		e.out = append(e.out, w.Body...)
		return goesOn
	}
	v.sendUntil = time.Time{} // a new deadline for out and Shared
	if !v.send(e) {
		return false
	}
	_, err := v.wire.Write(w.Shared)
	return err == nil && goesOn
}

func (v *conversation) ask(head []byte, f Fault, e *exchange) (w *Response, fault Fault) {
	r := &e.request
	defer func() {
		if p := recover(); p != nil {
			v.s.report(p)
			w, fault = e.answer(r, Broken, v.now), Broken
		}
	}()
	if f == None {
		f = r.Parse(head)
	}
	switch {
	case f != None:
	case v.c.Overloaded():
		f = Busy
	case v.c.Crowded():
		f = Crowded
	}
	return e.answer(r, f, v.now), f
}

func (v *conversation) send(e *exchange) bool {
	if len(e.out) == 0 {
		return true
	}
	if overdue(v.sendUntil, v.now, v.s.config.WriteTimeout) {
		v.sendBy(v.now.Add(v.s.config.WriteTimeout))
	}
	if !v.c.Send(v.now) {
		return false
	}
	_, err := v.wire.Write(e.out)
	e.out = e.out[:0]
	return err == nil
}

// No part of the request is logged, and a panic only if it is an error of the Go runtime.
func (s *Server) report(v any) {
	what := fmt.Sprintf("a %T", v)
	if e, ok := v.(runtime.Error); ok {
		what = e.Error()
	}
	s.config.Listen.Log.Error("cannot answer a request: this is a bug", "panic", what, "stack", string(debug.Stack()))
}
