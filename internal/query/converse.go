package query

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"runtime/debug"
	"time"

	"carstate/internal/netguard"
)

// exchange is what a connection needs while it has a request in progress. Exchanges
// are pooled, so that connections that wait hold none.
type exchange struct {
	request  request
	response response
	out      []byte // answers on their way to the connection
}

// Of answers to pipelined requests, sendAt bytes are sent at a time: a client that
// does not read makes us hold that much and one answer. Up to keepOut, the memory
// is kept for the next.
const (
	sendAt  = 8 << 10
	keepOut = 32 << 10
)

// conversation is the reading side of a connection.
type conversation struct {
	s    *Server
	c    *netguard.Conn
	wire net.Conn // c, or TLS over it
	peer netip.Addr

	busy    bool // the server was overloaded when the connection came
	counted bool // a request is counted as in progress
	lingers bool // the last answer must survive what else is arriving

	buf       []byte // what has arrived and is not answered yet is buf[begin:end]
	begin     int
	end       int
	scanned   int       // how much of that was searched for the end of a head
	answered  bool      // a request was
	now       time.Time // when the last one was
	readUntil time.Time // the deadlines that are set
	sendUntil time.Time
}

// converse answers the requests of a connection until one of the two sides ends it,
// and closes it. busy says that the server was overloaded when the connection came.
func (s *Server) converse(c *netguard.Conn, busy bool) {
	v := &conversation{s: s, c: c, wire: c, peer: c.Peer(), busy: busy}
	defer func() {
		if p := recover(); p != nil {
			s.report(p)
		}
		v.endRequest()
		v.close()
	}()
	v.now = time.Now()
	v.readBy(v.now.Add(s.headTimeout))
	if s.tls != nil {
		t := tls.Server(c, s.tls)
		v.wire = t
		v.sendBy(v.now.Add(s.headTimeout))
		if s.ending.Load() || t.Handshake() != nil {
			return
		}
		v.readBy(time.Now().Add(s.headTimeout))
	}
	for v.next() {
	}
}

// Limits of lingering.
const (
	lingerTime  = 500 * time.Millisecond
	lingerBytes = 256 << 10
)

// close closes the connection. A connection closed while data is still arriving is reset,
// and the reset can overtake the answer that says what was wrong. So the server says that
// it is done and reads a little longer where it refuses to read on.
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

// refusal says why the connection's first request is turned away; nil: it is answered. A
// connection that came in an overload is not refused once that is over.
func (v *conversation) refusal() *failure {
	if v.busy = v.busy && v.s.overloaded(); v.busy {
		return failBusy
	}
	if v.c.Crowded() {
		return failCrowded
	}
	return nil
}

// beginRequest counts a request as in progress.
func (v *conversation) beginRequest() {
	if !v.counted {
		v.counted = true
		v.s.inFlight.Add(1)
	}
}

func (v *conversation) endRequest() {
	if v.counted {
		v.counted = false
		v.s.inFlight.Add(-1)
	}
}

func (v *conversation) readBy(t time.Time) {
	v.readUntil = t
	_ = v.wire.SetReadDeadline(t)
}

func (v *conversation) sendBy(t time.Time) {
	v.sendUntil = t
	_ = v.wire.SetWriteDeadline(t)
}

// next waits for requests and answers those that have arrived. It reports whether
// the connection goes on.
func (v *conversation) next() bool {
	head, f := v.read()
	if f == nil && head == nil {
		return false
	}
	s := v.s
	e := s.exchanges.Get().(*exchange)
	goesOn := f == nil
	if f != nil {
		s.answerer.refuse(f, s.now(), &e.response)
		s.count(&request{peer: v.peer}, &e.response, s.now(), 0)
		v.now = time.Now()
		e.out = e.response.appendHead(e.out, "close")
		if !bytes.HasPrefix(v.buf[v.begin:v.end], []byte("HEAD ")) {
			e.out = append(e.out, e.response.body...)
		}
		v.lingers = true
	}
	for head != nil {
		goesOn, head = v.answer(head, e), nil
		if goesOn {
			// What was pipelined is answered together.
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

// buffered returns the next head if it has arrived as a whole, nil if not.
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

// read waits for a whole head. Neither a head nor a failure means that nobody asks
// anything more.
func (v *conversation) read() ([]byte, *failure) {
	begun := v.end > v.begin // part of a head is there already
	if begun {
		v.readBy(time.Now().Add(v.s.headTimeout))
	} else {
		if v.begin, v.end = 0, 0; len(v.buf) > smallBuffer {
			v.buf = nil
		}
		if v.answered && overdue(v.readUntil, v.now, v.s.idleTimeout) {
			v.readBy(v.now.Add(v.s.idleTimeout))
		}
	}
	use := netguard.Idle
	if !v.answered {
		use = netguard.Silent
	}
	if !v.c.Become(use) || v.s.ending.Load() {
		return nil, nil
	}
	for {
		if !v.room() {
			return nil, v.unlessEvicted(failHeadSize)
		}
		n, err := v.wire.Read(v.buf[v.end:])
		v.end += n
		if head := v.buffered(); head != nil {
			if !v.c.Become(netguard.Held) {
				return nil, nil
			}
			return head, nil
		}
		if err != nil {
			return nil, v.unlessEvicted(v.broken(err))
		}
		if !begun && n > 0 {
			begun = true
			v.readBy(time.Now().Add(v.s.headTimeout))
		}
	}
}

// unlessEvicted returns the failure to answer with, nil if the connection is to be closed
// because it was evicted: then nothing was wrong.
func (v *conversation) unlessEvicted(f *failure) *failure {
	if !v.c.Become(netguard.Held) {
		return nil
	}
	return f
}

// overdue reports whether a deadline has to be set anew. One is moved on only when a
// quarter of its time is over: moving it costs more than a look at the table.
func overdue(deadline, now time.Time, limit time.Duration) bool {
	left := deadline.Sub(now)
	return left < limit*3/4 || left > limit
}

// room makes sure that more can be read. It reports false where a head is longer
// than any that is answered.
func (v *conversation) room() bool {
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

// broken says what an error of reading means to whoever sent part of a head. To
// one that sent nothing there is nothing to say.
func (v *conversation) broken(err error) *failure {
	if v.end == v.begin {
		return nil
	}
	var network net.Error
	if errors.As(err, &network) && network.Timeout() {
		return failSlow
	}
	return failMalformed
}

// answer appends the answer to a head to e.out, and reports whether the connection
// goes on after it.
func (v *conversation) answer(head []byte, e *exchange) (goesOn bool) {
	s := v.s
	start := s.now()
	v.beginRequest()
	sent := len(e.out)
	defer func() {
		if p := recover(); p != nil {
			s.report(p)
			e.response = response{}
			s.answerer.refuse(failBroken, s.now(), &e.response)
			s.count(&e.request, &e.response, start, 0)
			e.out = e.response.appendHead(e.out[:sent], "close")
			if !bytes.HasPrefix(head, []byte("HEAD ")) {
				e.out = append(e.out, e.response.body...)
			}
			v.lingers = true
			goesOn = false
		}
	}()
	w := &e.response
	e.request = request{peer: v.peer, overloaded: s.inFlight.Load() > s.maxInFlight}
	f := e.request.split(head)
	if f == nil {
		f = v.refusal()
	}
	if f != nil {
		s.answerer.refuse(f, start, w)
	} else {
		s.answerer.answer(&e.request, start, w)
	}
	end := s.now()
	s.count(&e.request, w, start, end.Sub(start))
	if v.answered, v.now = true, end; s.otherTime {
		v.now = time.Now()
	}

	isHTTP10 := string(e.request.version) == "HTTP/1.0"
	connection := ""
	switch {
	case w.closes:
		v.lingers = true
		connection = "close"
	case s.ending.Load():
		connection = "close"
	case s.excess(v.c):
		v.lingers = true
		connection = "close"
	case isHTTP10 && !w.keepAlive:
		v.lingers = true // it may have sent more, in error
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

// sendDocument sends a document behind the answers before it. A document is large
// and its reader may be slow. It holds nothing but the connection, so it must not
// keep queries from being answered.
func (v *conversation) sendDocument(e *exchange) bool {
	v.endRequest()
	now := time.Now()
	v.sendBy(now.Add(max(documentTimeout, v.s.writeTimeout)))
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

// send writes answers. While that lasts they do not count as in progress: otherwise
// clients that do not read would have all others told that we are overloaded.
func (v *conversation) send(b []byte) bool {
	v.endRequest()
	if len(b) == 0 {
		return true
	}
	if overdue(v.sendUntil, v.now, v.s.writeTimeout) {
		v.sendBy(v.now.Add(v.s.writeTimeout))
	}
	if !v.c.Send(v.now) {
		return false
	}
	_, err := v.wire.Write(b)
	return err == nil
}

// count notes an answer in the metrics and in the access log.
func (s *Server) count(r *request, w *response, start time.Time, took time.Duration) {
	s.metrics.count(w, took)
	if s.accessLog != nil {
		s.accessLog.note(r, w, s.answerer.ids, clientOf(r.peer, r.headers, s.answerer.trusted), start, took)
	}
}

// report logs a bug that one request found and that must not take down all others.
// What is logged holds no part of the request: not even the value of a panic, unless
// the runtime made it.
func (s *Server) report(v any) {
	what := fmt.Sprintf("a %T", v)
	if e, ok := v.(runtime.Error); ok {
		what = e.Error()
	}
	s.log.Error("a query could not be answered: this is a bug", "panic", what, "stack", string(debug.Stack()))
}
