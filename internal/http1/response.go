package http1

import (
	"net/http"
	"strconv"
	"time"
)

// Response is the answer to a request. It may be used again after [Response.Reset]; its slices then
// keep their capacity.
type Response struct {
	Status  int
	Headers []byte // all but Content-Length and Connection, which the server adds
	Body    []byte
	Shared  []byte // if not nil, the body in place of Body; it is not changed

	dates dates
}

// Reset makes w empty.
func (w *Response) Reset() {
	w.Status, w.Headers, w.Body, w.Shared = 0, w.Headers[:0], w.Body[:0], nil
}

// Set adds a header.
func (w *Response) Set(name, value string) {
	w.Name(name)
	w.Headers = append(append(w.Headers, value...), "\r\n"...)
}

// SetTime adds a header with a date.
func (w *Response) SetTime(name string, t time.Time) {
	w.Name(name)
	w.Headers = append(w.AppendDate(w.Headers, t), "\r\n"...)
}

// AppendDate appends an HTTP date to b.
func (w *Response) AppendDate(b []byte, t time.Time) []byte { return w.dates.appendDate(b, t) }

// SetNumber adds a header with a number.
func (w *Response) SetNumber(name string, n int64) {
	w.Name(name)
	w.Headers = append(strconv.AppendInt(w.Headers, n, 10), "\r\n"...)
}

// Name begins a header in Headers. The caller then appends the value and a line break.
func (w *Response) Name(name string) { w.Headers = append(append(w.Headers, name...), ": "...) }

// statusLines holds the status line of an answer for each HTTP status.
var statusLines = func() (lines [600]string) {
	for code := range lines {
		lines[code] = "HTTP/1.1 " + strconv.Itoa(code) + " " + http.StatusText(code) + "\r\n"
	}
	return lines
}()

// appendHead appends the head of the answer to b. If connection is "", it has no such header.
func (w *Response) appendHead(b []byte, connection string) []byte {
	b = append(b, statusLines[w.Status]...)
	b = append(b, w.Headers...)
	length := len(w.Body)
	if w.Shared != nil {
		length = len(w.Shared)
	}
	b = append(b, "Content-Length: "...)
	b = strconv.AppendInt(b, int64(length), 10)
	if connection != "" {
		b = append(b, "\r\nConnection: "...)
		b = append(b, connection...)
	}
	return append(b, "\r\n\r\n"...)
}

// dates formats times as HTTP dates. It caches the text of the day that it formatted last, because
// formatting the day is most of the work.
type dates struct {
	day   int64 // days since 1 January 1970
	text  [len("Mon, 02 Jan 2006 ")]byte
	known bool
}

const secondsPerDay = 24 * 60 * 60

func (d *dates) appendDate(b []byte, t time.Time) []byte {
	unix := t.Unix()
	second := unix % secondsPerDay
	if second < 0 {
		second += secondsPerDay
	}
	if day := (unix - second) / secondsPerDay; !d.known || d.day != day {
		t.UTC().AppendFormat(d.text[:0], "Mon, 02 Jan 2006 ")
		d.day, d.known = day, true
	}
	b = append(b, d.text[:]...)
	b = appendTwo(b, second/3600, ':')
	b = appendTwo(b, second/60%60, ':')
	b = appendTwo(b, second%60, ' ')
	return append(b, "GMT"...)
}

// appendTwo appends n, which is below 100, as two digits, and then the byte in after.
func appendTwo(b []byte, n int64, after byte) []byte {
	return append(b, byte('0'+n/10), byte('0'+n%10), after)
}
