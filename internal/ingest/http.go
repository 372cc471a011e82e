package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/listen"
	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/telemetry"
)

const telemetryPath = "/v1/telemetry"

// HTTP receives telemetry, and serves the documents; see docs/openapi.json.
type HTTP struct {
	*listen.Server
	in     *intake
	memory *quota   // bytes of requests in progress
	turns  sync.Map // source to turn
	slots  *quota   // connections with a request in progress
}

func NewHTTP(c Config) *HTTP {
	in := newIntake(c, "http")
	h := &HTTP{in: in, memory: newQuota(in.MaxBytes), slots: newQuota(in.MaxHTTPConnections)}
	in.heldBytes(h.memory.inUse)
	dropped := in.counter("carstate_ingest_connections_dropped_total",
		"HTTP connections that were closed because there were too many.")
	h.Server = listen.NewServer(&http.Server{
		Handler:           http.HandlerFunc(h.handle),
		TLSConfig:         in.TLS,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       60 * time.Second, // replaced by the pace of the body
		WriteTimeout:      90 * time.Second, // from the arrival of the head on
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(in.Log.Handler(), slog.LevelDebug),
	}, listen.Config{
		Max: in.MaxHTTPConnections, SendBuffer: sendBuffer, Limit: in.Limit, Dropped: dropped.Inc, Log: in.Log,
	})
	return h
}

const sendBuffer = 32 << 10 // bytes

func (h *HTTP) handle(w http.ResponseWriter, r *http.Request) {
	start := h.in.Now()
	w.Header().Set("Cache-Control", "no-store")
	if o := h.respond(w, r); o != documented {
		h.in.observe(start, o)
	}
}

type post struct {
	w        http.ResponseWriter
	r        *http.Request
	conn     *listen.Conn
	ready    error
	source   *access.Grant
	lines    bool // NDJSON; otherwise one JSON object or array
	events   bool // CloudEvents
	gzip     bool
	slot     bool
	memory   reservation
	base     int // bytes of memory besides the batch
	unfolded int // reserved in Unfolded
	batch    *telemetry.Batch
	length   int // bytes of the body, decompressed
	readErr  error
	samples  int // charged for the request; 0 before its body is read
}

type reply struct {
	status  int // 0: the response was sent already
	why     *telemetry.Refusal
	samples int // how many are counted as refused
	outcome outcome
}

// Checks run in this order until one replies. Only decode reads the body; backlog and rate
// are checked again after it, for the samples.
var checks = [...]func(*HTTP, *post) *reply{
	(*HTTP).checkLoad, (*HTTP).checkPath, (*HTTP).checkKey, (*HTTP).checkHead, (*HTTP).checkRate, (*HTTP).checkBacklog,
	(*HTTP).takeSlot, (*HTTP).decode, (*HTTP).checkBacklog, (*HTTP).checkRate, (*HTTP).checkBody, (*HTTP).store,
}

func (h *HTTP) respond(w http.ResponseWriter, r *http.Request) outcome {
	p := &post{w: w, r: r, conn: listen.ConnOf(r.Context())}
	defer h.release(p)
	for _, check := range checks {
		a := check(h, p)
		if a == nil {
			continue
		}
		if a.samples > 0 {
			h.in.countRefused(p.source, a.why, a.samples)
		}
		if a.status == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", "1") // the usual causes end soon
		}
		if a.status != 0 {
			writeJSON(w, a.status, struct {
				Error string `json:"error"`
			}{a.why.Text})
		}
		return a.outcome
	}
	return h.sendResult(p)
}

func (h *HTTP) release(p *post) {
	if p.unfolded > 0 {
		h.in.Unfolded.Release(p.source.Number, p.unfolded)
	}
	p.memory.release()
	if p.slot {
		p.conn.Become(listen.Idle)
		h.slots.release(p.source.Name, 1)
	}
}

func (p *post) replyLater(why *telemetry.Refusal, wait time.Duration) *reply {
	p.w.Header().Set("Retry-After", strconv.FormatInt(access.WaitSeconds(wait), 10))
	why.Text += "; nothing of this request was accepted"
	return &reply{http.StatusTooManyRequests, why, max(p.samples, 1), rejected}
}

func busy(text string, o outcome) *reply {
	return &reply{http.StatusServiceUnavailable, &telemetry.Refusal{Text: text}, 0, o}
}

var overQuota = &reply{http.StatusServiceUnavailable, errOverQuota, 1, noRoom}

func (h *HTTP) checkLoad(p *post) *reply {
	overloaded := p.conn.Overloaded()
	if overloaded || p.conn.Excess() {
		p.w.Header().Set("Connection", "close")
	}
	if overloaded {
		return busy("the service is overloaded", unavailable)
	}
	return nil
}

func (h *HTTP) checkPath(p *post) *reply {
	path, method := p.r.URL.EscapedPath(), p.r.Method
	if path == telemetryPath {
		return nil
	}
	if d, ok := documents[path]; ok && !h.in.NoDocs && (method == http.MethodGet || method == http.MethodHead) {
		return &reply{outcome: d.send(p.w)}
	}
	return &reply{http.StatusNotFound, &telemetry.Refusal{Text: "not found: send telemetry to POST " + telemetryPath +
		"; queries go to the query listener"}, 0, rejected}
}

// GET is only for a source whose format is a form.
func (h *HTTP) checkKey(p *post) (a *reply) {
	p.ready = h.in.Ready() // first: a key that is checked before the sources are loaded is unknown
	source, err := h.authenticate(p.r)
	p.source = source
	noKey := err == errNoKey || err == errNotBearer
	switch {
	case p.r.Method != http.MethodPost && (p.r.Method != http.MethodGet || noKey || err == nil && !source.Format.IsForm()):
		p.w.Header().Set("Allow", http.MethodPost)
		a = &reply{http.StatusMethodNotAllowed, errMethod, 0, rejected}
		if err == nil {
			a.samples = 1
		}
	case p.ready != nil && errors.Is(err, access.ErrNotKnown), errors.Is(err, access.ErrUnread):
		// The sources may not be loaded yet, or written by a newer version. After 401, a sender
		// would give up.
		a = h.notReady()
	case err != nil:
		h.in.countKey(source, err)
		p.w.Header().Set("WWW-Authenticate", challenge)
		if !noKey {
			p.w.Header().Set("WWW-Authenticate", challenge+`, error="invalid_token"`)
		}
		a = &reply{http.StatusUnauthorized, &telemetry.Refusal{Text: err.Error()}, 0, unauthorised}
	}
	return a
}

func (h *HTTP) notReady() *reply {
	if h.in.ReadOnly() {
		return busy(readOnly, readOnlyNow)
	}
	return busy(notYet, unavailable)
}

const (
	notYet   = "the service is not ready for telemetry: send the same again later"
	readOnly = "this node is read-only for maintenance: send the same again later"
)

func (h *HTTP) checkHead(p *post) *reply {
	wrong := p.setEncoding()
	switch {
	case wrong != nil:
		p.w.Header().Set("Accept", strings.Join(slices.Concat(lineTypes, []string{"application/json"}, eventTypes), ", "))
		p.w.Header().Set("Accept-Encoding", "gzip")
		return &reply{http.StatusUnsupportedMediaType, wrong, 1, rejected}
	case p.ready != nil:
		return h.notReady()
	case p.r.ContentLength > MaxBody:
		return &reply{http.StatusRequestEntityTooLarge, errBodyTooLarge, 1, rejected}
	}
	return nil
}

// checkRate takes p.samples from the budget: none before the body is read.
func (h *HTTP) checkRate(p *post) *reply {
	r := p.source.Limit()
	if !r.Limited() {
		return nil
	}
	remaining, next, ok := p.source.Budget.Take(r, p.samples, h.in.Now())
	header := p.w.Header()
	header.Set("RateLimit-Policy", fmt.Sprintf(`"source";q=%d;w=%d`, r.Calls, int64(r.Window/time.Second)))
	header.Set("RateLimit", fmt.Sprintf(`"source";r=%d;t=%d`, remaining, access.WaitSeconds(next)))
	if ok {
		return nil
	}
	return p.replyLater(overRate(r, next), next)
}

// behindFor is how long a decoded body waits for room: the sender's previous body may not be folded
// yet.
const behindFor = time.Second

func (h *HTTP) checkBacklog(p *post) *reply {
	n, patience := 0, time.Duration(0)
	if p.batch != nil {
		n, patience = len(p.batch.Samples), behindFor
	}
	for began := time.Now(); p.readErr == nil; {
		wait, ok := h.in.Unfolded.Reserve(p.source.Number, n)
		if ok {
			p.unfolded = n
			break
		}
		if time.Since(began) >= patience || periodic.Pause(p.r.Context(), min(wait, patience)) != nil {
			return p.replyLater(behind(wait), wait)
		}
	}
	return nil
}

// A connection with a slot cannot be evicted, so only sources get slots, each up to its share. Thus
// no client can fill the listener for good by leaving responses unread.
func (h *HTTP) takeSlot(p *post) *reply {
	if p.slot = h.slots.tryAcquire(p.source.Name, 1); !p.slot {
		return overQuota
	}
	p.conn.Become(listen.Held)
	return nil
}

// A body is charged for at least one sample per chargedBytes of unpacked text: white space costs
// processor time, too.
const chargedBytes = 4 << 10

func (h *HTTP) decode(p *post) *reply {
	p.samples, p.readErr = 1, telemetry.ErrNoMemory
	if p.memory = (reservation{of: h.memory, source: p.source.Name}); p.memory.reserve(requestBytes) {
		p.batch, p.readErr = h.read(p)
	}
	if b := p.batch; b != nil {
		p.samples = max(b.Size(), 1, p.length/chargedBytes)
	}
	return nil
}

func (h *HTTP) checkBody(p *post) *reply {
	whole, ok := errors.AsType[*telemetry.Refusal](p.readErr)
	switch {
	case p.readErr == nil:
		return nil
	case errors.Is(p.readErr, telemetry.ErrNoMemory):
		return overQuota
	case ok:
		return &reply{http.StatusRequestEntityTooLarge, whole, 1, rejected}
	}
	// Where the next request begins is unknown.
	p.w.Header().Set("Connection", "close")
	if errors.Is(p.readErr, os.ErrDeadlineExceeded) {
		return &reply{http.StatusRequestTimeout, errSlowBody, 1, rejected}
	}
	return &reply{http.StatusBadRequest, errUnreadable, 1, rejected}
}

func (h *HTTP) store(p *post) *reply {
	ctx, cancel := context.WithTimeout(p.r.Context(), storeTimeout)
	defer cancel()
	if err := h.in.store(ctx, p.batch); err != nil {
		return busy(errNotStored.Text, unavailable)
	}
	if p.source.Format != nil {
		p.w.Header().Set(formatHeader, "mapped")
	}
	if p.batch.Size() == 0 {
		return &reply{http.StatusBadRequest, errEmptyBody, 1, rejected}
	}
	return nil
}

// RFC 6750 has no error code for a request without a key.
const challenge = `Bearer realm="carstate-ingest"`

// authenticate also returns the source of a key that is no longer valid.
func (h *HTTP) authenticate(r *http.Request) (*access.Grant, error) {
	if name, password, ok := r.BasicAuth(); ok { // as OwnTracks does
		s, err := h.in.Sources.VerifyNamed(name, []byte(password), h.in.Now())
		if err == nil && s.Format != nil || errors.Is(err, access.ErrUnread) {
			return s, err
		}
		return nil, errNotBearer
	}
	key, inAddress, err := keyOf(r)
	if err != nil {
		return nil, err
	}
	s, err := h.in.Sources.Verify(key, h.in.Now())
	if errors.Is(err, access.ErrMalformed) {
		err = fmt.Errorf("%w, which is css_ and 36 letters and digits (carstate source add)", err)
	}
	if err != nil {
		return s, fmt.Errorf("%s%w", access.KeyRefused, err)
	}
	if inAddress && !s.Format.IsForm() {
		return nil, errKeyInAddress
	}
	return s, nil
}

func keyOf(r *http.Request) (_ []byte, inAddress bool, _ error) {
	values := r.Header["Authorization"]
	if len(values) == 0 {
		if fields, _ := url.ParseQuery(queryOf(r)); fields.Get("key") != "" {
			return []byte(fields.Get("key")), true, nil
		}
		return nil, false, errNoKey
	}
	scheme, key, _ := strings.Cut(values[0], " ")
	if key = strings.TrimSpace(key); len(values) > 1 || !strings.EqualFold(scheme, "Bearer") || key == "" {
		return nil, false, errNotBearer
	}
	return []byte(key), false, nil
}

// Torque appends its fields after a question mark, even a second one.
func queryOf(r *http.Request) string { return strings.ReplaceAll(r.URL.RawQuery, "?", "&") }

func (h *HTTP) sendResult(p *post) outcome {
	w, b := p.w, p.batch
	status, o := http.StatusBadRequest, rejected
	switch {
	case b.Accepted > 0 && p.source.Format != nil && p.source.Format.Reply != "":
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		listen.Send(w, []byte(p.source.Format.Reply))
		return stored
	case b.Accepted > 0:
		status, o = http.StatusAccepted, stored
	case b.Refused[access.NotAllowed]+b.Refused[access.WasForgotten]+b.Refused[access.VehicleLimit] == b.RefusedTotal():
		if b.Refused[access.NotAllowed] > 0 {
			w.Header().Set("WWW-Authenticate", challenge+`, error="insufficient_scope"`)
		}
		status, o = http.StatusForbidden, unauthorised
	}
	writeJSON(w, status, b.Answer())
	return o
}
