package http1

import (
	"net/http"
	"strconv"
	"time"
)

// [Response.Reset] keeps the capacity of the slices.
type Response struct {
	Status  int
	Headers []byte // without Content-Length and Connection, which the server adds
	Body    []byte
	Shared  []byte // if not nil, the body; it is not changed

	dates dates
}

func (w *Response) Reset() {
	w.Status, w.Headers, w.Body, w.Shared = 0, w.Headers[:0], w.Body[:0], nil
}

func (w *Response) Set(name, value string) {
	w.Name(name)
	w.Headers = append(append(w.Headers, value...), "\r\n"...)
}

func (w *Response) SetTime(name string, t time.Time) {
	w.Name(name)
	w.Headers = append(w.dates.appendDate(w.Headers, t), "\r\n"...)
}

// Name begins a header. The caller appends its value and a line break to Headers.
func (w *Response) Name(name string) { w.Headers = append(append(w.Headers, name...), ": "...) }

var statusLines = func() (lines [600]string) {
	for code := range lines {
		lines[code] = "HTTP/1.1 " + strconv.Itoa(code) + " " + http.StatusText(code) + "\r\n"
	}
	return lines
}()

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

// Formatting the day is most of the work, so dates caches the last one.
type dates struct {
	day   int64 // since 1 January 1970
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

// n is below 100.
func appendTwo(b []byte, n int64, after byte) []byte {
	return append(b, byte('0'+n/10), byte('0'+n%10), after)
}
