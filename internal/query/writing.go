package query

import (
	"net/http"
	"strconv"
	"time"
)

// statusLines are the first lines of answers, by status.
var statusLines = func() (lines [600]string) {
	for code := range lines {
		lines[code] = "HTTP/1.1 " + strconv.Itoa(code) + " " + http.StatusText(code) + "\r\n"
	}
	return lines
}()

// appendHead writes the head of an answer. connection is the value of that header,
// "" for none.
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

// dates writes times as HTTP has them. It remembers the day of the last one, since
// writing that is most of the work.
type dates struct {
	day   int64 // since 1 January 1970
	text  [len("Mon, 02 Jan 2006 ")]byte
	known bool
}

const secondsPerDay = 24 * 60 * 60

func (d *dates) append(b []byte, t time.Time) []byte {
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

// appendTwo writes a number below 100 with two digits, and what comes after it.
func appendTwo(b []byte, n int64, after byte) []byte {
	return append(b, byte('0'+n/10), byte('0'+n%10), after)
}
