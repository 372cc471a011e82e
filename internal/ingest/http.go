package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"carstate/internal/access"
	"carstate/internal/netguard"
)

// telemetryPath is the one path that the listener serves.
const telemetryPath = "/v1/telemetry"

// HTTP takes telemetry by POST /v1/telemetry.
//
//	202  something was accepted, and all of that is on disk
//	400  nothing was accepted, or the body cannot be read
//	401  no valid key; 403 nothing but other sources' vehicles
//	404, 405, 408, 413, 415  as usual; nothing was stored
//	429  over the source's rate: come back after Retry-After; nothing was stored
//	503  not now, or no room for it: come back after Retry-After; nothing was acknowledged
//
// The answer to a batch that was read is
//
//	{"accepted":2,"rejected":[{"line":3,"reason":"…"}],"ignored":["Vehicle.Sped"],"did_you_mean":{"Vehicle.Sped":"Vehicle.Speed"}}
//
// The list ends after 1,000 lines; only then "rejected_total" follows and says
// how many there were. "ignored" and what belongs to it are there only if the batch
// has signals that are not known. Every other answer is {"error":"…"}.
type HTTP struct {
	in     *intake
	server *http.Server
	room   *budget // the memory of the requests in work
	places *budget // the connections that have requests in work, which are not closed for newer ones
	guard  *netguard.Guard
}

// NewHTTP makes the listener's server. It serves nothing until [HTTP.Serve].
func NewHTTP(c Config) *HTTP {
	in := newIntake(c, "http")
	h := &HTTP{in: in, room: newBudget(in.MaxBytes), places: newBudget(in.MaxHTTPConnections)}
	in.gauge(h.room.taken)
	dropped := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "carstate_ingest_connections_dropped_total",
		Help: "HTTP connections that were closed because there were too many.",
	})
	in.Registry.MustRegister(dropped)
	h.guard = netguard.New(netguard.Config{
		Max: in.MaxHTTPConnections, SendBuffer: sendBuffer, Full: in.Overloaded, Dropped: dropped.Inc, Log: in.Log,
	})
	h.server = &http.Server{
		Handler:           http.HandlerFunc(h.handle),
		TLSConfig:         in.TLS,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       60 * time.Second, // a body's pace replaces it
		WriteTimeout:      90 * time.Second, // begins with the head: reading, storing and answering
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ConnContext:       h.arrive,
		ErrorLog:          slog.NewLogLogger(redactor{in.Log.Handler()}, slog.LevelDebug),
	}
	h.guard.Attach(h.server)
	return h
}

// sendBuffer is what the kernel keeps of answers that were not read yet, in bytes.
const sendBuffer = 32 << 10

// Serve serves l, with TLS if the configuration has it, until [HTTP.Shutdown].
// It always returns an error, which wraps [http.ErrServerClosed] after a
// Shutdown.
func (h *HTTP) Serve(l net.Listener) error {
	l = h.guard.Listener(l)
	if h.in.TLS != nil {
		return h.server.ServeTLS(l, "", "")
	}
	return h.server.Serve(l)
}

// Shutdown stops listening, lets the requests in work end until ctx does, and
// then cuts them off.
func (h *HTTP) Shutdown(ctx context.Context) error {
	h.guard.EndSilent()
	err := h.server.Shutdown(ctx)
	if err != nil {
		return errors.Join(err, h.server.Close())
	}
	return nil
}

// handle answers one request. It checks path, method, key, format, readiness
// and room, in this order, before it reads the body.
func (h *HTTP) handle(w http.ResponseWriter, r *http.Request) {
	start := h.in.Now()
	var o outcome
	// A sender is told that its samples are stored before its connection can be evicted.
	// Other answers have no such claim: a client without a key could keep them under way.
	netguard.Hold(r.Context())
	defer func() { netguard.Release(r.Context(), o == stored) }()
	w.Header().Set("Cache-Control", "no-store")
	ctx, span := h.in.span(r.Context(), "POST "+telemetryPath, start)
	o = h.answer(w, inSpan(ctx, r, span))
	h.in.observe(start, o)
	endSpan(span, o)
}

// httpConn is what is known of a connection.
type httpConn struct {
	late atomic.Bool // it came while there was too much to do, and that is still held against it

	mu     sync.Mutex // guards what follows
	inWork int        // its requests
	place  hold       // while there are some
}

// httpConnKey is where a request's context has its connection.
type httpConnKey struct{}

func connOf(request context.Context) *httpConn { return request.Value(httpConnKey{}).(*httpConn) }

// arrive is called for each connection that is accepted.
func (h *HTTP) arrive(ctx context.Context, _ net.Conn) context.Context {
	c := new(httpConn)
	c.late.Store(h.in.Overloaded())
	return context.WithValue(ctx, httpConnKey{}, c)
}

// refuses reports whether the connection of a request came too late. A request after
// the overload has ended is as welcome as any.
func (h *HTTP) refuses(c *httpConn) bool {
	if !c.late.Load() {
		return false
	}
	if h.in.Overloaded() {
		return true
	}
	c.late.Store(false)
	return false
}

// begin notes that a request of a source is in work, and reports whether the source's
// share of the connections allows that.
func (c *httpConn) begin(places *budget, source string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inWork == 0 {
		if !places.tryTake(source, 1) {
			return false
		}
		c.place = hold{places, source, 1}
	}
	c.inWork++
	return true
}

// end ends what begin began.
func (c *httpConn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inWork--; c.inWork == 0 {
		c.place.end()
	}
}

func (h *HTTP) answer(w http.ResponseWriter, r *http.Request) outcome {
	c := connOf(r.Context())
	if h.refuses(c) {
		w.Header().Set("Connection", "close")
		return failLater(w, "the service is overloaded")
	}
	if h.in.Excess(netguard.ConnOf(r.Context())) {
		w.Header().Set("Connection", "close")
	}
	if r.URL.EscapedPath() != telemetryPath {
		return fail(w, http.StatusNotFound, "there is nothing here: telemetry goes to POST "+telemetryPath)
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return fail(w, http.StatusMethodNotAllowed, "telemetry is sent by POST")
	}
	ready := h.in.Ready() // before the key is looked up: a table may be filled meanwhile
	source, err := h.authenticate(w, r)
	if ready != nil && errors.Is(err, access.ErrNotKnown) || errors.Is(err, access.ErrUnread) {
		// The table of sources may not be filled yet, or a newer version wrote the source. A
		// sender that is told that its key is wrong gives up.
		w.Header().Del("WWW-Authenticate")
		return failLater(w, notYet)
	}
	if err != nil {
		return fail(w, http.StatusUnauthorized, err.Error())
	}
	f, err := formatOf(r.Header)
	if err != nil {
		w.Header().Set("Accept", "application/x-ndjson, application/json")
		w.Header().Set("Accept-Encoding", "gzip")
		return fail(w, http.StatusUnsupportedMediaType, err.Error())
	}
	if h.in.ReadOnly() {
		return failLater(w, readOnly)
	}
	if ready != nil {
		return failLater(w, notYet)
	}
	if r.ContentLength > MaxBody {
		return fail(w, http.StatusRequestEntityTooLarge, errBodyTooLarge.text)
	}
	if !h.withinRate(w, source, 0) {
		h.in.refuse(source, access.OverRate, 1)
		return failRate(w, source.Rate)
	}
	if !c.begin(h.places, source.Name) {
		h.in.refuse(source, access.NoRoom, 1)
		return failLater(w, noRoom)
	}
	defer c.end()
	o := h.in.origin(source, "")
	o.room = &hold{of: h.room, source: source.Name}
	defer o.room.end()
	var b *batch
	if err = errNoRoom; o.room.cover(requestBytes) {
		b, err = h.read(w, r, f, o)
	}
	samples := 1
	if b != nil {
		samples = max(b.size(), 1)
	}
	if !h.withinRate(w, source, samples) {
		h.in.refuse(source, access.OverRate, samples)
		return failRate(w, source.Rate)
	}
	if errors.Is(err, errNoRoom) {
		h.in.refuse(source, access.NoRoom, 1)
		return failLater(w, noRoom)
	}
	if err != nil {
		return h.unreadable(w, source, err)
	}
	return h.keep(w, r, b)
}

// notYet tells a sender that the node is starting, or stores nothing at present.
const notYet = "telemetry cannot be taken yet"

// readOnly tells a sender that an operator has switched telemetry off.
const readOnly = "this node is read-only for maintenance: send the same again later"

// noRoom tells a sender that the memory is used up, or its source's share of it.
const noRoom = "too much telemetry is in work, of all or of this source; nothing of this request counts as accepted"

// challenge begins the WWW-Authenticate of each answer to a key that does not do, or to none.
const challenge = `Bearer realm="carstate-ingest"`

// authenticate finds the source of the request's key. On failure it sets the
// challenge and returns words for the caller.
func (h *HTTP) authenticate(w http.ResponseWriter, r *http.Request) (*access.Grant, error) {
	values := r.Header["Authorization"]
	if len(values) == 0 {
		w.Header().Set("WWW-Authenticate", challenge)
		return nil, errors.New("a source's key is needed: Authorization: Bearer KEY")
	}
	scheme, key, _ := strings.Cut(values[0], " ")
	if len(values) > 1 || !strings.EqualFold(scheme, "Bearer") || strings.TrimSpace(key) == "" {
		w.Header().Set("WWW-Authenticate", challenge) // RFC 6750 calls that no error of a token
		return nil, errors.New("the Authorization header must be Bearer and a source's key")
	}
	w.Header().Set("WWW-Authenticate", challenge+`, error="invalid_token"`)
	s, err := h.in.Sources.Verify([]byte(strings.TrimSpace(key)), h.in.Now())
	if err != nil {
		return nil, fmt.Errorf("the source's key is refused: %w", err)
	}
	w.Header().Del("WWW-Authenticate")
	return s, nil
}

// keep stores the batch and answers. The answer says 202 only when everything
// accepted is on disk.
func (h *HTTP) keep(w http.ResponseWriter, r *http.Request, b *batch) outcome {
	if err := h.in.store(r.Context(), b); err != nil {
		return failLater(w, "telemetry cannot be stored now; nothing of this request counts as accepted")
	}
	total := b.rejectedTotal()
	if b.accepted == 0 && total == 0 {
		return fail(w, http.StatusBadRequest, "the body holds no sample")
	}
	answer := struct {
		Accepted int         `json:"accepted"`
		Rejected []rejection `json:"rejected"`
		Total    int         `json:"rejected_total,omitempty"`
		report
	}{b.accepted, b.rejected, 0, b.ignored.report()}
	if answer.Rejected == nil {
		answer.Rejected = []rejection{}
	}
	if total > len(b.rejected) {
		answer.Total = total
	}
	switch {
	case b.accepted > 0:
		writeJSON(w, http.StatusAccepted, answer)
		return stored
	case b.refused[access.NotAllowed]+b.refused[access.WasForgotten]+b.refused[access.VehicleLimit] == total:
		if b.refused[access.NotAllowed] > 0 {
			w.Header().Set("WWW-Authenticate", challenge+`, error="insufficient_scope"`)
		}
		writeJSON(w, http.StatusForbidden, answer)
		return unauthorised
	}
	writeJSON(w, http.StatusBadRequest, answer)
	return rejected
}
