package query

import (
	"net/http"
	"strconv"
	"time"
)

// statusLines holds the status line of an answer for each HTTP status.
var statusLines = func() (lines [600]string) {
	for code := range lines {
		lines[code] = "HTTP/1.1 " + strconv.Itoa(code) + " " + http.StatusText(code) + "\r\n"
	}
	return lines
}()

// appendHead appends the head of the answer to b. connection is the value of the
// Connection header, or "" for no such header.
func (w *response) appendHead(b []byte, connection string) []byte {
	b = append(b, statusLines[w.status]...)
	for i := range w.headers {
		b = append(b, w.headers[i].name...)
		b = append(b, ": "...)
		b = append(b, w.headers[i].value...)
		b = append(b, "\r\n"...)
	}
	length := len(w.body)
	if w.shared != nil {
		length = len(w.shared)
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
