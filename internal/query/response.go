package query

import (
	"strconv"
	"time"

	"carstate/internal/access"
	"carstate/internal/vehicle"
)

// response is what the answerer produces. It is reused: the slices keep what
// they have grown to, and are valid until the next reset.
type response struct {
	status  int
	headers []header
	body    []byte
	shared  []byte // if not nil the body, in place of body; it is only read
	closes  bool   // close the connection after this answer

	keepAlive bool // the client asks to keep it

	operation operation
	outcome   outcome
	sandbox   bool // the token is a sandbox token

	// For the access log.
	id    uint64 // the number behind X-Request-Id
	token string // ID of the token, if it is known
	vid   []byte // as it was asked for

	values  []byte // backs the values of headers
	scratch []byte // backs decoded parameters
	dates   dates
}

// header is one header of the answer. Content-Length is the adapter's.
type header struct {
	name  string
	value []byte
}

func (w *response) reset() {
	*w = response{
		headers:   w.headers[:0],
		body:      w.body[:0],
		values:    w.values[:0],
		scratch:   w.scratch[:0],
		dates:     w.dates,
		operation: noOperation,
	}
}

func (w *response) set(name, value string) {
	start := len(w.values)
	w.values = append(w.values, value...)
	w.setFrom(name, start)
}

// replace gives another value to a header that was set.
func (w *response) replace(name, value string) {
	for i := range w.headers {
		if w.headers[i].name == name {
			start := len(w.values)
			w.values = append(w.values, value...)
			w.headers[i].value = w.values[start:len(w.values):len(w.values)]
		}
	}
}

func (w *response) setTime(name string, t time.Time) {
	start := len(w.values)
	w.values = w.dates.append(w.values, t)
	w.setFrom(name, start)
}

// setFrom sets a header to what was appended to values since start.
func (w *response) setFrom(name string, start int) {
	w.headers = append(w.headers, header{name, w.values[start:len(w.values):len(w.values)]})
}

// fail turns the response into a failure.
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

// answer turns the response into a record: with the value, made at a time, if
// why is Answered, else without. field is what stands before the value.
func (w *response) answer(vid []byte, why vehicle.Outcome, field string, value byte, made vehicle.UnixMilli) {
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
			// The throttle's "0" already means anomaly, so a failed
			// query of it says nothing at all.
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

// The names of the policies that an answer may tell.
const (
	tokenPolicy    = `"token"`
	refusalsPolicy = `"refusals"` // of an address
)

// setPolicy tells a limit, in the syntax of draft-ietf-httpapi-ratelimit-headers-11.
func (w *response) setPolicy(name string, r access.Rate) {
	start := len(w.values)
	w.values = append(append(w.values, name...), ";q="...)
	w.values = strconv.AppendInt(w.values, r.Calls, 10)
	w.values = append(w.values, ";w="...)
	w.values = strconv.AppendInt(w.values, int64(r.Window/time.Second), 10)
	w.setFrom("RateLimit-Policy", start)
}

// setRemaining tells what is left of the limit and within how many seconds there
// will be more. next is as [access.Budget.Take] returned it.
func (w *response) setRemaining(name string, r access.Rate, remaining int64, next time.Duration) {
	if remaining > 0 {
		// The budget refills evenly: at the latest after one interval
		// there is one call more.
		next = r.Window / time.Duration(r.Calls)
	}
	start := len(w.values)
	w.values = append(append(w.values, name...), ";r="...)
	w.values = strconv.AppendInt(w.values, remaining, 10)
	w.values = append(w.values, ";t="...)
	w.values = strconv.AppendInt(w.values, seconds(next), 10)
	w.setFrom("RateLimit", start)
}

// tellLimit tells the token's limit, if it has one, and what is left of it.
func (w *response) tellLimit(g *access.Grant, now time.Time) {
	if g.Rate.Limited() {
		remaining, next := g.Budget.Peek(g.Rate, now)
		w.setPolicy(tokenPolicy, g.Rate)
		w.setRemaining(tokenPolicy, g.Rate, remaining, next)
	}
}

// failRefusals is fail for an address with too many refused tokens.
func (w *response) failRefusals(wait time.Duration) {
	limit := access.Rate{Calls: refusedTokens, Window: refusedWindow}
	w.setPolicy(refusalsPolicy, limit)
	w.setRemaining(refusalsPolicy, limit, 0, wait)
	w.status, w.outcome = failRefusals.status, failRefusals.outcome
	w.retryAfter(wait)
	w.body = append(w.body, `{"code":429,"msg":"rate_limited: 100 tokens of this address were refused within 60 s: correct the token, and wait `...)
	w.body = strconv.AppendInt(w.body, seconds(wait), 10)
	w.body = append(w.body, ` s","data":null}`...)
}

// failRate is fail for a token over its rate.
func (w *response) failRate(r access.Rate, next time.Duration) {
	w.status, w.outcome = failRateLimited.status, failRateLimited.outcome
	w.retryAfter(next)
	w.body = append(w.body, `{"code":429,"msg":"rate_limited: the policy of this token allows `...)
	w.body = strconv.AppendInt(w.body, r.Calls, 10)
	w.body = append(w.body, ` calls in `...)
	w.body = strconv.AppendInt(w.body, int64(r.Window/time.Second), 10)
	w.body = append(w.body, ` s: wait `...)
	w.body = strconv.AppendInt(w.body, seconds(next), 10)
	w.body = append(w.body, ` s","data":null}`...)
}

// retryAfter tells the caller to wait.
func (w *response) retryAfter(wait time.Duration) {
	start := len(w.values)
	w.values = strconv.AppendInt(w.values, seconds(wait), 10)
	w.setFrom("Retry-After", start)
}

// seconds rounds up to whole seconds, at least one.
func seconds(d time.Duration) int64 {
	return max(1, int64((d+time.Second-1)/time.Second))
}
