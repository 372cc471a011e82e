package query

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"carstate/internal/access"
	"carstate/internal/fleet"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"
)

// Config is what a [Server] needs. Tokens and Fleet are required; the zero value
// of everything else works.
type Config struct {
	Tokens *access.Tokens
	Fleet  *fleet.Table
	// MaxAge is how old a verdict may be and still answer; zero or less: any age.
	MaxAge time.Duration
	// Ready says why no query can be answered now; nil, or returning nil,
	// means ready. It is called for every query and must not block or
	// allocate. Its error is not shown to callers.
	Ready func() error
	// NoDocs turns the public documentation off: its paths get 404.
	NoDocs bool
	// TrustedProxies are the addresses of the proxies in front. Of a request
	// that comes from one, X-Forwarded-For says who sent it.
	TrustedProxies []netip.Prefix
	// MaxInFlight is how many requests may be in progress at once, from the
	// parsed head to the last byte of the answer; more get 503. Zero: 4096.
	MaxInFlight int
	// MaxConnections is how many connections may be open at once. A newer
	// one gets 503 to its first request and is closed; far beyond, it is
	// closed without an answer. A connection holds about 24 KiB. Zero: 16384.
	MaxConnections int
	// HeadTimeout is how long a request head, and before it a TLS handshake,
	// may take to arrive, and how long a new connection may stay silent.
	// Zero: 5 s.
	HeadTimeout time.Duration
	// WriteTimeout is how long an answer may take to be written. Zero: 5 s.
	WriteTimeout time.Duration
	// IdleTimeout is how long a connection may wait for its next request.
	// Zero: 60 s.
	IdleTimeout time.Duration

	TLS      *tls.Config           // nil: plain HTTP
	Now      func() time.Time      // nil: time.Now
	Log      *slog.Logger          // nil: nothing is logged
	Registry prometheus.Registerer // nil: nothing is registered
}

// readBuffer bounds what fasthttp reads of a head. It exceeds maxHead, so that
// nearly every head that is too long still gets an exact answer.
const readBuffer = maxHead + 1<<10

// spareConnections is how many connections beyond MaxConnections still get an
// answer that says so.
const spareConnections = 256

// Server answers queries. Make one with [New].
type Server struct {
	answerer  answerer
	metrics   *metrics
	now       func() time.Time
	log       *slog.Logger
	tls       *tls.Config
	fast      *fasthttp.Server
	exchanges sync.Pool // of *exchange

	maxInFlight    int64
	inFlight       atomic.Int64
	maxConnections int64

	mu        sync.Mutex // guards the fields below
	listeners []*listener
	stopped   bool
}

// ErrStopped is what [Server.Serve] returns after [Server.Shutdown].
var ErrStopped = errors.New("the query server was shut down")

// New makes a server. It opens nothing and starts nothing.
func New(c Config) *Server {
	s := &Server{
		answerer: answerer{
			tokens:  c.Tokens,
			fleet:   c.Fleet,
			maxAge:  c.MaxAge,
			ready:   c.Ready,
			ids:     newRequestIDs(),
			trusted: c.TrustedProxies,
			refused: newRefusals(),
		},
		metrics:        newMetrics(c.Registry),
		now:            c.Now,
		log:            c.Log,
		maxInFlight:    int64(orDefault(c.MaxInFlight, 4096)),
		maxConnections: int64(orDefault(c.MaxConnections, 16384)),
	}
	if !c.NoDocs {
		s.answerer.docs = newDocuments(c.MaxAge)
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if c.TLS != nil {
		s.tls = c.TLS.Clone()
		s.tls.NextProtos = []string{"http/1.1"}
	}
	s.exchanges.New = func() any { return newExchange() }
	s.fast = &fasthttp.Server{
		Handler:        s.serve,
		ErrorHandler:   s.serveError,
		HeaderReceived: s.headerReceived,
		ConnState:      s.connState,

		// By default fasthttp logs the head of a request that it cannot
		// read, and some of its errors quote the request line even with
		// SecureErrorLogMessage. Nothing it has to say may be printed.
		SecureErrorLogMessage: true,
		Logger:                discard{},

		ReadBufferSize:               readBuffer,
		MaxRequestBodySize:           1, // zero would mean the default of 4 MiB
		DisablePreParseMultipartForm: true,
		ReadTimeout:                  orDefault(c.HeadTimeout, 5*time.Second),
		WriteTimeout:                 orDefault(c.WriteTimeout, 5*time.Second),
		IdleTimeout:                  orDefault(c.IdleTimeout, time.Minute),
		NoDefaultServerHeader:        true,
		NoDefaultDate:                true,
		CloseOnShutdown:              true,

		// Over this limit fasthttp answers with a text of its own. Ours
		// is lower and comes first.
		Concurrency: int(s.maxConnections) + 2*spareConnections,
	}
	return s
}

func orDefault[T int | time.Duration](v, d T) T {
	if v > 0 {
		return v
	}
	return d
}

// Serve answers the connections of ln until [Server.Shutdown], and returns nil
// then. It closes ln.
func (s *Server) Serve(ln net.Listener) error {
	l := newListener(ln, s.tls, s.maxConnections, s.metrics.dropped, s.log)
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		return errors.Join(ErrStopped, l.Close())
	}
	s.listeners = append(s.listeners, l)
	s.mu.Unlock()
	if err := s.fast.Serve(l); err != nil {
		return fmt.Errorf("the query listener failed: %w", err)
	}
	return nil
}

// Shutdown stops accepting, lets requests in progress finish, and closes
// connections once they are idle. Connections that are left when ctx ends are
// cut, and the error of ctx is returned.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.stopped = true
	listeners := s.listeners
	s.mu.Unlock()
	var closed error
	for _, l := range listeners {
		closed = errors.Join(closed, l.Close())
		l.closeSilent()
	}
	if err := s.fast.ShutdownWithContext(ctx); err != nil {
		for _, l := range listeners {
			l.cut()
		}
		return err
	}
	return closed
}

// exchange is what one request needs. Exchanges are pooled.
type exchange struct {
	request  request
	response response
	date     bytes.Reader
	dateBuf  *bufio.Reader
}

func newExchange() *exchange {
	e := new(exchange)
	e.dateBuf = bufio.NewReaderSize(&e.date, 64)
	return e
}

// serve is fasthttp's handler.
func (s *Server) serve(ctx *fasthttp.RequestCtx) {
	start := s.now()
	c := connOf(ctx.Conn())
	c.begin(&s.inFlight)
	e := s.exchanges.Get().(*exchange)
	defer s.recover(ctx)
	h := &ctx.Request.Header
	e.request = request{
		method:     h.Method(),
		target:     h.RequestURI(),
		version:    h.Protocol(),
		headers:    h.RawHeaders(),
		peer:       c.peer,
		overloaded: s.inFlight.Load() > s.maxInFlight,
	}
	if c.crowded {
		s.answerer.refuse(failCrowded, start, &e.response)
	} else {
		s.answerer.answer(&e.request, start, &e.response)
	}
	s.metrics.count(&e.response, s.now().Sub(start))
	if e.response.shared != nil {
		// A document is large and its reader may be slow. It holds nothing
		// but the connection, so it must not keep queries from being
		// answered.
		c.end(&s.inFlight)
	}
	e.send(ctx)
	e.request = request{}
	s.exchanges.Put(e)
}

// serveError is called where fasthttp could not read a request. Its error may
// quote the request line, so it is looked at but never printed.
func (s *Server) serveError(ctx *fasthttp.RequestCtx, err error) {
	f := failMalformed
	var small *fasthttp.ErrSmallBuffer
	var network net.Error
	switch {
	case errors.As(err, &small):
		f = failHeadSize
	case errors.As(err, &network) && network.Timeout():
		f = failSlow
		// Where nothing of a head was read, the error comes unwrapped.
		// Nobody asked anything, so there is nothing to answer.
		if _, silent := err.(net.Error); silent {
			ctx.Conn().Close()
			return
		}
	}
	// fasthttp sets no deadline for writing this answer, and the last one
	// may have passed.
	ctx.Conn().SetWriteDeadline(time.Now().Add(s.fast.WriteTimeout))
	e := s.exchanges.Get().(*exchange)
	s.answerer.refuse(f, s.now(), &e.response)
	s.metrics.count(&e.response, 0)
	e.send(ctx)
	ctx.Response.SkipBody = ctx.IsHead()
	s.exchanges.Put(e)
}

// recover keeps a bug that one request finds from taking down all others. What
// is logged holds no part of the request: not even the value of a panic, unless
// the runtime made it.
func (s *Server) recover(ctx *fasthttp.RequestCtx) {
	v := recover()
	if v == nil {
		return
	}
	what := fmt.Sprintf("a %T", v)
	if e, ok := v.(runtime.Error); ok {
		what = e.Error()
	}
	s.log.Error("a query could not be answered: this is a bug", "panic", what, "stack", string(debug.Stack()))
	e := newExchange()
	s.answerer.refuse(failBroken, s.now(), &e.response)
	s.metrics.count(&e.response, 0)
	e.send(ctx)
}

// send copies the answer to fasthttp's response.
func (e *exchange) send(ctx *fasthttp.RequestCtx) {
	out, w := &ctx.Response.Header, &e.response
	ctx.Response.SetStatusCode(w.status)
	for i := range w.headers {
		h := &w.headers[i]
		if h.name == "Date" {
			e.sendDate(out, h.value)
			continue
		}
		// SetCanonical takes the name as it is; Set would write
		// "Www-Authenticate" and "Ratelimit".
		out.SetCanonical([]byte(h.name), h.value)
	}
	if w.shared != nil {
		ctx.Response.SetBodyRaw(w.shared)
	} else {
		ctx.Response.SetBody(w.body)
	}
	if w.closes {
		ctx.Response.SetConnectionClose()
		connOf(ctx.Conn()).linger.Store(true)
	}
}

// sendDate sets the Date header. fasthttp drops a Date that is set, in favour of
// one that it refreshes once a second and that can therefore be older than the
// verdict; but it keeps one that it has read itself.
func (e *exchange) sendDate(out *fasthttp.ResponseHeader, value []byte) {
	w := &e.response
	start := len(w.scratch)
	w.scratch = append(append(append(w.scratch, "Date: "...), value...), "\r\n\r\n"...)
	e.date.Reset(w.scratch[start:])
	e.dateBuf.Reset(&e.date)
	if err := out.ReadTrailer(e.dateBuf); err != nil {
		panic("fasthttp does not read a Date header any more")
	}
}

// chunked is what fasthttp calls the length of a chunked body.
const chunked = -1

// headerReceived runs when a head was read and before its body would be. A
// request that announces a body is going to be refused for its raw head, so the
// body is not waited for, and no "100 Continue" is sent.
func (s *Server) headerReceived(h *fasthttp.RequestHeader) (c fasthttp.RequestConfig) {
	if n := h.ContentLength(); n > 0 || n == chunked {
		h.SetContentLength(0)
	}
	h.Del(fasthttp.HeaderExpect)
	if s.answerer.documentAt(h.RequestURI()) != nil {
		c.WriteTimeout = max(documentTimeout, s.fast.WriteTimeout)
	}
	return c
}

// connState keeps the count of requests in progress: begun by the handler, ended
// when fasthttp has written the answer or the connection is gone.
func (s *Server) connState(c net.Conn, state fasthttp.ConnState) {
	if state == fasthttp.StateIdle || state == fasthttp.StateClosed {
		connOf(c).end(&s.inFlight)
	}
}

// discard is fasthttp's logger.
type discard struct{}

// Printf prints nothing.
func (discard) Printf(string, ...any) {}
