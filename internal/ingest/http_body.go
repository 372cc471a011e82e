package ingest

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"carstate/internal/access"
)

// format is how a body is to be read.
type format struct {
	lines bool // NDJSON; otherwise one JSON object
	gzip  bool
}

// formatOf reads the headers that describe the body.
func formatOf(h http.Header) (format, error) {
	var f format
	media, params, err := mime.ParseMediaType(single(h, "Content-Type"))
	charset, hasCharset := params["charset"]
	if hasCharset && !strings.EqualFold(charset, "utf-8") || !hasCharset && len(params) > 0 || len(params) > 1 {
		err = errors.New("another parameter")
	}
	switch {
	case err != nil || media != "application/x-ndjson" && media != "application/json":
		return f, errors.New("the Content-Type must be application/x-ndjson or application/json, in UTF-8")
	case media == "application/x-ndjson":
		f.lines = true
	}
	switch coding := single(h, "Content-Encoding"); {
	case strings.EqualFold(coding, "gzip"):
		f.gzip = true
	case coding != "" && !strings.EqualFold(coding, "identity"):
		return f, errors.New("the Content-Encoding must be gzip or none")
	}
	return f, nil
}

// single returns a header's one value; several are joined and so match nothing.
func single(h http.Header, name string) string { return strings.Join(h[name], ", ") }

// inflaters keeps gzip readers, about 40 KiB each, of those at work.
var inflaters = sync.Pool{New: func() any { return new(gzip.Reader) }}

// read reads the body into a batch, line by line: what it holds of the body at
// a time is one line. The limits count decompressed bytes; compressed ones
// cannot be more than the same. The buffers for that are taken only once the first
// headBytes, or the whole body, have come.
func (h *HTTP) read(w http.ResponseWriter, r *http.Request, f format, o origin) (*batch, error) {
	a := arrivals.Get().(*arrival)
	defer a.release()
	a.paced.Reader, a.paced.of = r.Body, http.NewResponseController(w)
	if err := a.paced.begin(time.Now(), h.in.grace); err != nil {
		return nil, err
	}
	a.limited = limited{&a.paced, MaxBody}
	n, whole, err := fill(a.head[:], &a.limited)
	if err != nil {
		return nil, err
	}
	o.base = requestBytes / 2
	if f.gzip || !whole {
		if o.base = readerBytes; !o.room.cover(o.base) {
			return nil, errNoRoom
		}
	}
	a.first.Reset(a.head[:n])
	var body io.Reader = &a.first
	if !whole {
		body = io.MultiReader(body, &a.limited)
	}
	if f.gzip {
		z := inflaters.Get().(*gzip.Reader)
		defer inflaters.Put(z)
		if err := z.Reset(body); err != nil {
			return nil, err
		}
		body = &limited{z, MaxBody}
	}
	rd := readers.Get().(*reader)
	defer readers.Put(rd)
	read := rd.objectBatch
	if f.lines {
		read = rd.lineBatch
	}
	b, err := read(body, o)
	if err == nil {
		// While the samples are stored the server reads on, to see that the sender leaves. It
		// must not take the deadline for that.
		err = a.paced.of.SetReadDeadline(time.Time{})
	}
	return b, err
}

// arrival is a body that is on its way.
type arrival struct {
	paced   pacedBody
	limited limited // of paced
	head    [headBytes]byte
	first   bytes.Reader // of head
}

// arrivals keeps those that are not used.
var arrivals = sync.Pool{New: func() any { return new(arrival) }}

func (a *arrival) release() {
	a.paced.Reader, a.paced.of = nil, nil
	arrivals.Put(a)
}

// fill reads until p is full, or the whole of r is read.
func fill(p []byte, r io.Reader) (n int, whole bool, err error) {
	for n < len(p) && err == nil {
		var more int
		more, err = r.Read(p[n:])
		n += more
	}
	if err == io.EOF {
		return n, true, nil
	}
	return n, false, err
}

// pacedBody is a body that must come at a pace.
type pacedBody struct {
	io.Reader
	pace
}

func (b *pacedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err == nil {
		err = b.add(n)
	}
	return n, err
}

// limited fails with errBodyTooLarge at the first byte beyond left.
type limited struct {
	r    io.Reader
	left int
}

func (l *limited) Read(p []byte) (int, error) {
	n, err := l.r.Read(p[:min(len(p), l.left+1)])
	if l.left -= n; l.left < 0 {
		return 0, errBodyTooLarge
	}
	return n, err
}

// unreadable answers a request whose body was refused whole or broke off.
func (h *HTTP) unreadable(w http.ResponseWriter, source *access.Grant, err error) outcome {
	if whole, ok := errors.AsType[*refusal](err); ok {
		h.in.refuse(source, whole.kind, 1)
		return fail(w, http.StatusRequestEntityTooLarge, whole.text)
	}
	// What follows on this connection can no longer be told from the body.
	w.Header().Set("Connection", "close")
	if errors.Is(err, os.ErrDeadlineExceeded) {
		h.in.refuse(source, access.TooSlow, 1)
		return fail(w, http.StatusRequestTimeout, "the body came too slowly: 1 KB/s is the least, and 60 s the longest")
	}
	h.in.refuse(source, access.Malformed, 1)
	return fail(w, http.StatusBadRequest, "the body cannot be read: it breaks off, or is not what its Content-Encoding says")
}

// withinRate reports whether the source's rate allows a number of samples, and uses them up;
// 0: whether it allows any. It tells the sender the limit and what is left of it, as the
// query side does of a token.
func (h *HTTP) withinRate(w http.ResponseWriter, source *access.Grant, samples int) bool {
	r := source.Rate
	if !r.Limited() {
		return true
	}
	remaining, next, ok := source.Budget.TakeBatch(r, samples, h.in.Now())
	refilled := next
	if remaining > 0 {
		refilled = r.Window / time.Duration(r.Calls)
	}
	header := w.Header()
	header.Set("RateLimit-Policy", fmt.Sprintf(`"source";q=%d;w=%d`, r.Calls, int64(r.Window/time.Second)))
	header.Set("RateLimit", fmt.Sprintf(`"source";r=%d;t=%d`, remaining, seconds(refilled)))
	if !ok {
		header.Set("Retry-After", strconv.FormatInt(seconds(next), 10))
	}
	return ok
}

// failRate answers a request that is over its source's rate.
func failRate(w http.ResponseWriter, r access.Rate) outcome {
	return fail(w, http.StatusTooManyRequests,
		rateText(r)+": wait as many seconds as Retry-After says; nothing of this request counts as accepted")
}

// rateText tells a sender the rate of its source.
func rateText(r access.Rate) string {
	return fmt.Sprintf("the policy of this source allows %d samples in %d s", r.Calls, int64(r.Window/time.Second))
}

// seconds rounds up to whole seconds, at least one.
func seconds(d time.Duration) int64 {
	return max(1, int64((d+time.Second-1)/time.Second))
}

// retryAfter is when to come back after a 503, in seconds. Overload passes
// quickly, and the engine takes a few seconds at worst to elect a leader.
const retryAfter = 1

func failLater(w http.ResponseWriter, text string) outcome {
	w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
	fail(w, http.StatusServiceUnavailable, text)
	return unavailable
}

func fail(w http.ResponseWriter, status int, text string) outcome {
	writeJSON(w, status, struct {
		Error string `json:"error"`
	}{text})
	if status == http.StatusUnauthorized {
		return unauthorised
	}
	return rejected
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	// Neither our types nor our texts can fail to encode.
	body, _ := json.Marshal(v)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)+1))
	w.WriteHeader(status)
	// A client that has gone needs no answer.
	_, _ = w.Write(append(body, '\n'))
}

// redactor keeps secrets out of what net/http logs on its own.
type redactor struct{ slog.Handler }

func (h redactor) Handle(ctx context.Context, r slog.Record) error {
	r.Message = access.Redact(strings.TrimSpace(r.Message))
	return h.Handler.Handle(ctx, r)
}
