package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/listen"
	"example.org/carstate/internal/periodic"
)

// telemetryPath is the only path that [HTTP] serves, besides documents.
const telemetryPath = "/v1/telemetry"

// HTTP receives telemetry by POST /v1/telemetry, and serves the documents. One of them,
// docs/openapi.json, describes all answers.
type HTTP struct {
	*listen.Server
	in     *intake
	memory *quota // memory of the requests in progress, in bytes
	turns  turns
	slots  *quota // connections with requests in progress, which are never evicted
}

// NewHTTP returns an HTTP server for telemetry. It serves nothing until Serve is called.
func NewHTTP(c Config) *HTTP {
	in := newIntake(c, "http")
	h := &HTTP{in: in, memory: newQuota(in.MaxBytes), slots: newQuota(in.MaxHTTPConnections)}
	in.gauge(h.memory.inUse)
	dropped := promauto.With(in.Registry).NewCounter(prometheus.CounterOpts{
		Name: "carstate_ingest_connections_dropped_total",
		Help: "HTTP connections that were closed because there were too many.",
	})
	h.Server = listen.NewServer(&http.Server{
		Handler:           http.HandlerFunc(h.handle),
		TLSConfig:         in.TLS,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       60 * time.Second, // until the pace of the body replaces it
		WriteTimeout:      90 * time.Second, // from the head on: reading, storing and responding
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(redactor{in.Log.Handler()}, slog.LevelDebug),
	}, listen.Config{
		Max: in.MaxHTTPConnections, SendBuffer: sendBuffer, Limit: in.Limit, Dropped: dropped.Inc, Log: in.Log,
	})
	return h
}

// sendBuffer is the maximum number of bytes of unread responses that the kernel buffers for one
// connection.
const sendBuffer = 32 << 10

// handle responds to one request and records its duration.
func (h *HTTP) handle(w http.ResponseWriter, r *http.Request) {
	start := h.in.Now()
	w.Header().Set("Cache-Control", "no-store")
	if o := h.respond(w, r); o != documented {
		h.in.observe(start, o)
	}
}

func (h *HTTP) respond(w http.ResponseWriter, r *http.Request) outcome {
	// The order of the checks is: load, path, method, key, format, readiness, size, rate,
	// unfolded samples, connections, memory. The body is read only after all of them.
	c := listen.ConnOf(r.Context())
	if c.Overloaded() {
		w.Header().Set("Connection", "close")
		return failUnavailable(w, "the service is overloaded", unavailable)
	}
	if c.Excess() {
		w.Header().Set("Connection", "close")
	}
	if path := r.URL.EscapedPath(); path != telemetryPath {
		if d, ok := documents[path]; ok && !h.in.NoDocs && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			return d.send(w)
		}
		return fail(w, http.StatusNotFound, "not found: send telemetry to POST "+telemetryPath+
			"; queries go to the query listener")
	}
	ready := h.in.Ready() // called before the lookup of the key, because the tables may be loaded between the two
	source, err := h.authenticate(r)
	switch {
	case r.Method != http.MethodPost && (r.Method != http.MethodGet || err == nil && !source.Format.IsForm() ||
		err == errNoKey || err == errNotBearer):
		w.Header().Set("Allow", http.MethodPost)
		if err == nil {
			h.in.refuse(source, errMethod, 1)
		}
		return fail(w, http.StatusMethodNotAllowed, errMethod.text)
	case ready != nil && errors.Is(err, access.ErrNotKnown), errors.Is(err, access.ErrUnread):
		// The sources may not be loaded yet, or of a newer version. With 401, a sender would give up.
		return h.failNotReady(w)
	case err != nil:
		h.in.refuseKey(source, err)
		w.Header().Set("WWW-Authenticate", challenge)
		if err != errNoKey && err != errNotBearer {
			w.Header().Set("WWW-Authenticate", challenge+`, error="invalid_token"`)
		}
		return fail(w, http.StatusUnauthorized, err.Error())
	}
	f, wrong := encodingOf(r.Header, source)
	if wrong != nil {
		w.Header().Set("Accept", strings.Join(slices.Concat(lineTypes, []string{"application/json"}, eventTypes), ", "))
		w.Header().Set("Accept-Encoding", "gzip")
		return h.refuse(w, http.StatusUnsupportedMediaType, source, wrong, 1)
	}
	if ready != nil {
		return h.failNotReady(w)
	}
	if r.ContentLength > MaxBody {
		return h.refuse(w, http.StatusRequestEntityTooLarge, source, errBodyTooLarge, 1)
	}
	if over, wait := h.takeRate(w, source, 0); over != nil {
		return h.refuseForNow(w, source, over, wait, 1)
	}
	if wait, ok := h.in.Unfolded.Reserve(source.Number, 0); !ok {
		return h.refuseForNow(w, source, behind(wait), wait, 1)
	}
	// While the connection cannot be evicted, it counts towards the source's share. A client without a
	// key cannot prevent an eviction by not reading its responses.
	if !h.slots.tryAcquire(source.Name, 1) {
		return h.failNoRoom(w, source)
	}
	defer h.slots.release(source.Name, 1)
	c.Become(listen.Held)
	defer c.Become(listen.Idle)
	o := h.in.origin(source, "")
	o.memory = &reservation{of: h.memory, source: source.Name}
	defer o.memory.release()
	var b *batch
	if err = errNoMemory; o.memory.reserve(requestBytes) {
		b, err = h.read(w, r, f, o)
	}
	samples := 1
	if b != nil {
		samples = max(b.size(), 1, b.length/chargedBytes)
	}
	if err == nil {
		if wait, ok := h.reserve(r.Context(), source, len(b.samples)); !ok {
			return h.refuseForNow(w, source, behind(wait), wait, samples)
		}
		defer h.in.Unfolded.Release(source.Number, len(b.samples))
	}
	if over, wait := h.takeRate(w, source, samples); over != nil {
		return h.refuseForNow(w, source, over, wait, samples)
	}
	switch {
	case errors.Is(err, errNoMemory):
		return h.failNoRoom(w, source)
	case err != nil:
		return h.failUnreadable(w, source, err)
	}
	return h.storeAndRespond(w, r, b)
}

// behindFor is how long a decoded body waits while its source has too many unfolded samples. A sender
// that waits for each answer is so not refused, and decoding was not in vain.
const behindFor = time.Second

// reserve counts n samples as unfolded, or returns how long the source must wait.
func (h *HTTP) reserve(ctx context.Context, source *access.Grant, n int) (wait time.Duration, ok bool) {
	for began := time.Now(); ; {
		wait, ok = h.in.Unfolded.Reserve(source.Number, n)
		if ok || time.Since(began) > behindFor || periodic.Pause(ctx, min(wait, behindFor)) != nil {
			return wait, ok
		}
	}
}

// refuseForNow refuses n samples, which the source may send again after wait.
func (h *HTTP) refuseForNow(w http.ResponseWriter, source *access.Grant, why *refusal, wait time.Duration, n int) outcome {
	w.Header().Set("Retry-After", strconv.FormatInt(access.WaitSeconds(wait), 10))
	why.text += "; nothing of this request was accepted"
	return h.refuse(w, http.StatusTooManyRequests, source, why, n)
}

// failNoRoom responds to a request for which a quota, or the source's share of it, is used up.
func (h *HTTP) failNoRoom(w http.ResponseWriter, source *access.Grant) outcome {
	h.in.refuse(source, errOverQuota, 1)
	return failUnavailable(w, errOverQuota.text, noRoom)
}

// chargedBytes is the number of unpacked bytes of a body that count as at least one sample, because a
// body of white space costs processor time, too.
const chargedBytes = 4 << 10

const notYet = "the service is not ready for telemetry: send the same again later"

// readOnly is the text of the error (503) while an operator has switched telemetry off.
const readOnly = "this node is read-only for maintenance: send the same again later"

func (h *HTTP) failNotReady(w http.ResponseWriter) outcome {
	if h.in.ReadOnly() {
		return failUnavailable(w, readOnly, readOnlyNow)
	}
	return failUnavailable(w, notYet, unavailable)
}

// challenge is the value of WWW-Authenticate for a request without a key, for which RFC 6750 has no
// error code.
const challenge = `Bearer realm="carstate-ingest"`

// authenticate returns the source of the request's key, even if the key is no longer valid. The error is
// one of keyOf, or wraps one of [access.Sources.Verify].
func (h *HTTP) authenticate(r *http.Request) (*access.Grant, error) {
	if name, password, ok := r.BasicAuth(); ok { // as OwnTracks sends them
		s, err := h.in.Sources.VerifyNamed(name, []byte(password), h.in.Now())
		switch {
		case err == nil && s.Format != nil:
			return s, nil
		case !errors.Is(err, access.ErrUnread):
			err = errNotBearer
		}
		return nil, err
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

// keyOf returns the key in the Authorization header or, if there is no such header, the one in the
// address. If there is none either, the error is errNoKey; if there are several headers, or one
// without the form Bearer KEY, it is errNotBearer.
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

// storeAndRespond stores the batch, responds, and returns how the request ended.
func (h *HTTP) storeAndRespond(w http.ResponseWriter, r *http.Request, b *batch) outcome {
	ctx, cancel := context.WithTimeout(r.Context(), storeTimeout)
	defer cancel()
	if err := h.in.store(ctx, b); err != nil {
		return failUnavailable(w, errNotStored.text, unavailable)
	}
	if b.source.Format != nil {
		w.Header().Set(formatHeader, "mapped")
	}
	total := b.rejectedTotal()
	if b.accepted == 0 && total == 0 {
		return h.refuse(w, http.StatusBadRequest, b.source, errEmptyBody, 1)
	}
	answer := struct {
		Accepted int         `json:"accepted"`
		Rejected []rejection `json:"rejected"`
		Total    int         `json:"rejected_total,omitempty"`
		report
	}{b.accepted, b.rejected, 0, b.report()}
	if answer.Rejected == nil {
		answer.Rejected = []rejection{}
	}
	if total > len(b.rejected) {
		answer.Total = total
	}
	switch {
	case b.accepted > 0 && b.source.Format != nil && b.source.Format.Reply() != "":
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		listen.Send(w, []byte(b.source.Format.Reply()))
		return stored
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
