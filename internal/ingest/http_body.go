package ingest

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"example.org/carstate/internal/listen"
	"example.org/carstate/internal/telemetry"
)

func (p *post) setEncoding() *telemetry.Refusal {
	media, params, err := mime.ParseMediaType(p.single("Content-Type"))
	charset, hasCharset := params["charset"]
	delete(params, "charset")
	utf8 := err == nil && len(params) == 0 && (!hasCharset || strings.EqualFold(charset, "utf-8"))
	switch {
	case p.source.Format != nil:
	case utf8 && slices.Contains(eventTypes, media):
		p.events = true
	case utf8 && slices.Contains(lineTypes, media):
		p.lines = true
	case !utf8 || media != "application/json":
		return errContentType
	}
	switch coding := p.single("Content-Encoding"); {
	case strings.EqualFold(coding, "gzip"):
		p.gzip = true
	case coding != "" && !strings.EqualFold(coding, "identity"):
		return errEncoding
	}
	return nil
}

var (
	lineTypes  = []string{"application/x-ndjson", "application/ndjson", "application/jsonl"}
	eventTypes = []string{"application/cloudevents+json", "application/cloudevents-batch+json"}
)

// single joins several values by a comma, which no caller accepts.
func (p *post) single(name string) string { return strings.Join(p.r.Header[name], ", ") }

var inflaters = sync.Pool{New: func() any { return new(gzip.Reader) }} // of 40 KiB each

// Estimated memory, in bytes.
const (
	requestBytes = 64 << 10 // before the body is read
	headBytes    = 4 << 10
	readerBytes  = 128 << 10 // for a body that is compressed or longer than headBytes
)

func (p *post) reserve(bytes int) bool { return p.memory.reserve(p.base + bytes) }

// After an error, the batch has the lines so far, or is nil.
func (h *HTTP) read(p *post) (*telemetry.Batch, error) {
	r, o := p.r, h.in.origin(p.source, "")
	o.Reserve, o.Lines, o.Events = p.reserve, p.lines, p.events
	mapped := p.source.Format != nil
	paced := &pacedBody{Reader: r.Body, of: http.NewResponseController(p.w)}
	paced.begin(time.Now(), h.in.grace)
	text := &limited{Reader: paced}
	head := heads.Get().(*bufio.Reader)
	defer func() {
		head.Reset(nil) // so that the pool keeps no request, which has a key
		heads.Put(head)
	}()
	head.Reset(text)
	_, err := head.Peek(headBytes)
	whole := err == io.EOF
	if err != nil && !whole {
		return nil, err
	}
	p.base = requestBytes / 2
	if p.gzip || !whole {
		if p.base = readerBytes; mapped {
			p.base = 2 * telemetry.MaxMapped // io.ReadAll may hold two buffers
		}
		if !p.reserve(0) {
			return nil, telemetry.ErrNoMemory
		}
		paced.turn = h.takeTurn(p.source.Name)
		defer func() { <-paced.turn }()
	}
	body := head
	if p.gzip {
		z := inflaters.Get().(*gzip.Reader)
		defer inflaters.Put(z)
		if err := z.Reset(body); err != nil {
			return nil, err
		}
		text = &limited{Reader: z, from: text}
		body = bufio.NewReaderSize(text, headBytes)
	}
	var b *telemetry.Batch
	if mapped {
		message := []byte(queryOf(r))
		if r.Method == http.MethodPost {
			message, err = io.ReadAll(io.LimitReader(body, telemetry.MaxMapped+1))
		}
		if len(message) > telemetry.MaxMapped {
			err = errMappedTooLarge
		}
		if err != nil && err != io.EOF {
			return nil, err
		}
		p.length = len(message)
		b, err = telemetry.DecodeMessage(nil, message, o)
	} else {
		b, err = telemetry.DecodeBody(body, o)
	}
	p.length = max(p.length, text.total)
	if err == nil {
		_ = paced.of.SetReadDeadline(time.Time{}) // the server goes on reading to notice a disconnect
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
	if b.turn != nil {
		<-b.turn
		defer func() { b.turn <- struct{}{} }()
	}
	n, err := b.Reader.Read(p)
	b.add(n)
	return n, err
}

// A body may expand maxDensity times, plus freeBytes. Decompressing costs the service a hundred
// times what sending costs the client. Honest samples are compressed to a thirtieth at best.
const (
	maxDensity = 100
	freeBytes  = 128 << 10
)

type limited struct {
	io.Reader
	total int      // bytes read
	from  *limited // the compressed input, or nil
}

func (l *limited) Read(p []byte) (int, error) {
	n, err := l.Reader.Read(p[:min(len(p), MaxBody+1-l.total)])
	l.total += n
	switch {
	case l.from != nil && l.total > freeBytes+maxDensity*l.from.total:
		return 0, errExpands
	case l.total > MaxBody:
		return 0, errBodyTooLarge
	}
	return n, err
}

const decoders = 2 // bodies of a source that are decoded at a time

// A turn is not held while its body waits for bytes, so waiting for a turn needs no time limit. A
// small plain body has none (nil).
type turn chan struct{}

func (h *HTTP) takeTurn(source string) turn {
	t, _ := h.turns.LoadOrStore(source, make(turn, decoders))
	t.(turn) <- struct{}{}
	return t.(turn)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, _ := json.Marshal(v)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)+1))
	w.WriteHeader(status)
	listen.Send(w, append(body, '\n'))
}
