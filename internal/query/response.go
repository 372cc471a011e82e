package query

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/vehicle"
)

// response is the answer to a request. It is used again for the next request. Its slices keep their
// capacity, and their contents are valid until the next reset.
type response struct {
	status  int
	headers []byte // all headers but Content-Length and Connection, which appendHead adds
	body    []byte
	shared  []byte // if not nil, the body in place of body; it must not be changed
	closes  bool   // the connection is closed after this answer

	keepAlive bool // the client sent Connection: keep-alive

	operation operation
	outcome   outcome
	sandbox   bool // the token is a sandbox token

	// The following fields are for the access log.
	id    requestID
	token string // the ID of the token, if it is known
	vid   []byte // the vid of the request

	scratch []byte // backs decoded parameters
	dates   dates
}

// requestID is the value of X-Request-Id, a random number. It is unique, and reveals nothing about
// the request, nor how many requests of other clients came before it.
type requestID [2]uint64

// appendTo appends the ID as 32 hexadecimal digits.
func (id requestID) appendTo(b []byte) []byte { return appendHex(appendHex(b, id[0]), id[1]) }

func appendHex(b []byte, n uint64) []byte {
	var raw [8]byte
	binary.BigEndian.PutUint64(raw[:], n)
	return hex.AppendEncode(b, raw[:])
}

func (w *response) reset() {
	*w = response{
		headers:   w.headers[:0],
		body:      w.body[:0],
		scratch:   w.scratch[:0],
		dates:     w.dates,
		operation: noOperation,
	}
}

// begin sets the headers that every answer carries, in place of all that were set before.
func (w *response) begin(now time.Time, contentType, cache string) {
	w.id = requestID{rand.Uint64(), rand.Uint64()}
	b := append(w.headers[:0], "Date: "...)
	b = append(w.dates.appendDate(b, now), "\r\nContent-Type: "...)
	b = append(append(b, contentType...), "\r\nCache-Control: "...)
	b = append(append(b, cache...), "\r\nX-Request-Id: "...)
	w.headers = append(w.id.appendTo(b), "\r\n"...)
}

func (w *response) set(name, value string) {
	w.name(name)
	w.headers = append(append(w.headers, value...), "\r\n"...)
}

func (w *response) setTime(name string, t time.Time) {
	w.name(name)
	w.headers = append(w.dates.appendDate(w.headers, t), "\r\n"...)
}

func (w *response) setNumber(name string, n int64) {
	w.name(name)
	w.headers = append(strconv.AppendInt(w.headers, n, 10), "\r\n"...)
}

// name begins a header. The caller then appends the value and a line break.
func (w *response) name(name string) { w.headers = append(append(w.headers, name...), ": "...) }

func (w *response) fail(f *failure) {
	w.status, w.outcome = f.status, f.outcome
	w.closes = w.closes || f.closes
	if f.authenticate != "" {
		w.set("WWW-Authenticate", f.authenticate)
	}
	if f.retryAfter != "" {
		w.set("Retry-After", f.retryAfter)
	}
	if f.status == 405 {
		w.set("Allow", "GET, HEAD")
	}
	w.body = append(w.body, f.body...)
}

// writeRecord writes the answer about a vehicle: a JSON object with the vid, the status (1 if there
// is a verdict, otherwise 0) and the value. field is the JSON text between the status and the
// value: the name of the value's member and the quote that begins the value.
//
// If why is Answered, there is a verdict. value is then its number, a single digit, and made is its
// time, which becomes Last-Modified. Otherwise why is the reason why there is no verdict, which
// becomes Carstate-Reason. value and made are then ignored.
func (w *response) writeRecord(vid []byte, why vehicle.Outcome, field string, value byte, made vehicle.UnixMilli) {
	w.status, w.outcome = 200, outcomeOf[why]
	w.body = append(w.body, `{"code":200,"msg":"success","data":{"vid":"`...)
	w.body = append(w.body, vid...)
	if why == vehicle.Answered {
		w.setTime("Last-Modified", made.Time())
		w.body = append(w.body, `","status":1`...)
		w.body = append(w.body, field...)
		w.body = append(w.body, '0'+value)
	} else {
		w.set("Carstate-Reason", why.String())
		w.body = append(w.body, `","status":0`...)
		w.body = append(w.body, field...)
		if w.operation == carDrivingState {
			// For the throttle, "0" means anomaly, so its value is empty if there is no verdict.
			w.body = append(w.body, '0')
		}
	}
	w.body = append(w.body, `"}}`...)
}

var outcomeOf = [...]outcome{
	vehicle.Answered:   answered,
	vehicle.Unknown:    unknownVehicle,
	vehicle.Stale:      stale,
	vehicle.NotDriving: notDriving,
}

// setRate adds the headers RateLimit-Policy and RateLimit for the rate r of a token, in the syntax of
// draft-ietf-httpapi-ratelimit-headers-11: "token";q=60;w=60 for 60 calls in a minute, and
// "token";r=3;t=1 if 3 are left and one more becomes available in a second. If none is left, t is
// next, from [access.Budget.Take]. Otherwise next is ignored.
func (w *response) setRate(r access.Rate, remaining int64, next time.Duration) {
	if remaining > 0 {
		// The budget refills evenly, so there is one more call after one interval at the latest.
		next = r.Window / time.Duration(r.Calls)
	}
	w.name("RateLimit-Policy")
	b := strconv.AppendInt(append(w.headers, `"token";q=`...), r.Calls, 10)
	b = strconv.AppendInt(append(b, ";w="...), int64(r.Window/time.Second), 10)
	w.headers = append(b, "\r\n"...)
	w.name("RateLimit")
	b = strconv.AppendInt(append(w.headers, `"token";r=`...), remaining, 10)
	b = strconv.AppendInt(append(b, ";t="...), access.WaitSeconds(next), 10)
	w.headers = append(b, "\r\n"...)
}

// setRateHeaders adds the headers of a token's rate limit, if any. It uses up none of the budget.
func (w *response) setRateHeaders(g *access.Grant, now time.Time) {
	if g.Rate.Limited() {
		remaining, next := g.Budget.Peek(g.Rate, now)
		w.setRate(g.Rate, remaining, next)
	}
}

// failOverRate answers 429 for a token over its rate r. Its next call is allowed after next.
func (w *response) failOverRate(r access.Rate, next time.Duration) {
	w.status, w.outcome = failRateLimited.status, failRateLimited.outcome
	w.setNumber("Retry-After", access.WaitSeconds(next))
	w.body = append(w.body, `{"code":429,"msg":"rate_limited: the policy of this token allows `...)
	w.body = strconv.AppendInt(w.body, r.Calls, 10)
	w.body = append(w.body, ` calls in `...)
	w.body = strconv.AppendInt(w.body, int64(r.Window/time.Second), 10)
	w.body = append(w.body, ` s: wait `...)
	w.body = strconv.AppendInt(w.body, access.WaitSeconds(next), 10)
	w.body = append(w.body, ` s","data":null}`...)
}

// statusLines holds the status line of an answer for each HTTP status.
var statusLines = func() (lines [600]string) {
	for code := range lines {
		lines[code] = "HTTP/1.1 " + strconv.Itoa(code) + " " + http.StatusText(code) + "\r\n"
	}
	return lines
}()

// appendHead appends the head of the answer to b. If connection is "", it has no such header.
func (w *response) appendHead(b []byte, connection string) []byte {
	b = append(b, statusLines[w.status]...)
	b = append(b, w.headers...)
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
