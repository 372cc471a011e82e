package ingest

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/format"
	"example.org/carstate/internal/listen"
)

type encoding struct {
	lines  bool // otherwise one JSON object or array
	gzip   bool
	events bool // CloudEvents
	mapped *format.Format
}

// encodingOf accepts any media type for a mapping.
func encodingOf(h http.Header, source *access.Grant) (encoding, *refusal) {
	f := encoding{mapped: source.Format}
	media, params, err := mime.ParseMediaType(single(h, "Content-Type"))
	charset, hasCharset := params["charset"]
	if hasCharset && !strings.EqualFold(charset, "utf-8") || !hasCharset && len(params) > 0 || len(params) > 1 {
		err = errors.New("another parameter")
	}
	switch {
	case f.mapped != nil:
	case err == nil && slices.Contains(eventTypes, media):
		f.events = true
	case err == nil && slices.Contains(lineTypes, media):
		f.lines = true
	case err != nil || media != "application/json":
		return f, errContentType
	}
	switch coding := single(h, "Content-Encoding"); {
	case strings.EqualFold(coding, "gzip"):
		f.gzip = true
	case coding != "" && !strings.EqualFold(coding, "identity"):
		return f, errEncoding
	}
	return f, nil
}

var (
	lineTypes  = []string{"application/x-ndjson", "application/ndjson", "application/jsonl"}
	eventTypes = []string{"application/cloudevents+json", "application/cloudevents-batch+json"}
)

// No caller accepts the comma between several values.
func single(h http.Header, name string) string { return strings.Join(h[name], ", ") }

var inflaters = sync.Pool{New: func() any { return new(gzip.Reader) }} // 40 KiB each

// After an error, the batch has the lines so far, or is nil. A body has a large buffer only after 4
// KiB or all of it have arrived.
func (h *HTTP) read(p *post) (*batch, error) {
	r, f, o := p.r, p.encoding, h.in.origin(p.source, "")
	o.memory = &p.memory
	paced := &pacedBody{Reader: r.Body, of: http.NewResponseController(p.w)}
	if err := paced.begin(time.Now(), h.in.grace); err != nil {
		return nil, err
	}
	text := &limited{paced, MaxBody}
	head := heads.Get().(*bufio.Reader)
	defer func() {
		head.Reset(nil) // so that the pool does not keep the key
		heads.Put(head)
	}()
	head.Reset(text)
	_, err := head.Peek(headBytes)
	whole := err == io.EOF
	if err != nil && !whole {
		return nil, err
	}
	o.base = requestBytes / 2
	if f.gzip || !whole {
		if o.base = readerBytes; f.mapped != nil {
			o.base = 2 * MaxMapped // the buffer doubles
		}
		if !o.memory.reserve(o.base) {
			return nil, errNoMemory
		}
		paced.turn = h.turns.take(r.Context(), o.source.Name)
		defer paced.turn.leave()
	}
	body := head
	if f.gzip {
		z := inflaters.Get().(*gzip.Reader)
		defer inflaters.Put(z)
		if err := z.Reset(body); err != nil {
			return nil, err
		}
		text = &limited{&dense{z, text, 0}, MaxBody}
		body = bufio.NewReaderSize(text, headBytes)
	}
	rd := readers.Get().(*reader)
	defer readers.Put(rd)
	var b *batch
	switch {
	case f.mapped != nil:
		m := format.Message{Body: []byte(queryOf(r))}
		if r.Method == http.MethodPost {
			m.Body, err = io.ReadAll(io.LimitReader(body, MaxMapped+1))
		}
		if len(m.Body) > MaxMapped {
			err = errMappedTooLarge
		}
		if err != nil && err != io.EOF {
			return nil, err
		}
		b, err = rd.mappedBatch(f.mapped, m, o)
	case f.lines:
		b, err = rd.lineBatch(body, o)
	default:
		o.events = f.events
		read, in := rd.objectBatch, io.Reader(body)
		if start, _ := body.Peek(64); isArray(start) {
			read, in = rd.lineBatch, &elements{in: body}
		}
		b, err = read(in, o)
	}
	b.length = max(b.length, MaxBody-text.left)
	if err == nil {
		// The server goes on reading to notice a disconnect.
		err = paced.of.SetReadDeadline(time.Time{})
	}
	return b, err
}

var heads = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, headBytes) }}

type pacedBody struct {
	io.Reader
	pace
	turn turn
}

func (b *pacedBody) Read(p []byte) (int, error) {
	b.turn.leave()
	n, err := b.Reader.Read(p)
	b.turn.take()
	if err == nil {
		err = b.add(n)
	}
	return n, err
}

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

// Decompression costs a hundred times what sending costs. Samples are compressed to a tenth, to a
// thirtieth at best.
const (
	maxDensity = 100
	freeBytes  = 128 << 10
)

type dense struct {
	io.Reader
	from  *limited
	total int
}

func (d *dense) Read(p []byte) (int, error) {
	n, err := d.Reader.Read(p)
	if d.total += n; d.total > freeBytes+maxDensity*(MaxBody-d.from.left) {
		return 0, errExpands
	}
	return n, err
}

// decoders is how many bodies of a source are decoded at a time. One that waits for bytes gives up
// its turn.
const decoders = 2

type turns struct{ of sync.Map }

type turn struct {
	free chan struct{} // nil: the body needs no turn
	ctx  context.Context
}

func (t *turns) take(ctx context.Context, source string) turn {
	free, _ := t.of.LoadOrStore(source, make(chan struct{}, decoders))
	of := turn{free.(chan struct{}), ctx}
	of.take()
	return of
}

// If ctx ends, leave does nothing.
func (t *turn) take() {
	if t.free == nil {
		return
	}
	select {
	case t.free <- struct{}{}:
	case <-t.ctx.Done():
		t.free = nil
	}
}

func (t *turn) leave() {
	if t.free != nil {
		<-t.free
	}
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, _ := json.Marshal(v)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)+1))
	w.WriteHeader(status)
	listen.Send(w, append(body, '\n'))
}

type redactor struct{ slog.Handler }

func (h redactor) Handle(ctx context.Context, r slog.Record) error {
	r.Message = access.Redact(strings.TrimSpace(r.Message))
	return h.Handler.Handle(ctx, r)
}
