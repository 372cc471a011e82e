package query

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"strconv"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/http1"
	"example.org/carstate/internal/vehicle"
)

// response is the answer to a request. It is used again for the next request. Its slices keep their
// capacity, and their contents are valid until the next start.
type response struct {
	http1.Response

	operation operation
	outcome   outcome
	sandbox   bool // the token is a sandbox token

	// The following fields are for the access log.
	id    requestID
	token string // the ID of the token, if it is known
	vid   []byte // the vid of the request

	scratch []byte // backs decoded parameters
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

// start makes w an empty response to a query.
func (w *response) start(now time.Time) {
	w.Reset()
	w.operation, w.outcome, w.sandbox, w.token, w.vid, w.scratch = noOperation, answered, false, "", nil, w.scratch[:0]
	w.begin(now, "application/json", "private, no-store")
}

// begin sets the headers that every answer carries, in place of all that were set before.
func (w *response) begin(now time.Time, contentType, cache string) {
	w.id = requestID{rand.Uint64(), rand.Uint64()}
	b := append(w.Headers[:0], "Date: "...)
	b = append(w.AppendDate(b, now), "\r\nContent-Type: "...)
	b = append(append(b, contentType...), "\r\nCache-Control: "...)
	b = append(append(b, cache...), "\r\nX-Request-Id: "...)
	w.Headers = append(w.id.appendTo(b), "\r\n"...)
}

func (w *response) fail(f *failure) {
	w.Status, w.outcome = f.status, f.outcome
	if f.authenticate != "" {
		w.Set("WWW-Authenticate", f.authenticate)
	}
	if f.retryAfter != "" {
		w.Set("Retry-After", f.retryAfter)
	}
	if f.status == 405 {
		w.Set("Allow", "GET, HEAD")
	}
	w.Body = append(w.Body, f.body...)
}

// writeRecord writes the answer about a vehicle: a JSON object with the vid, the status (1 if there
// is a verdict, otherwise 0) and the value. field is the JSON text between the status and the
// value: the name of the value's member and the quote that begins the value.
//
// If why is Answered, there is a verdict. value is then its number, a single digit, and made is its
// time, which becomes Last-Modified. Otherwise why is the reason why there is no verdict, which
// becomes Carstate-Reason. value and made are then ignored.
func (w *response) writeRecord(vid []byte, why vehicle.Outcome, field string, value byte, made vehicle.UnixMilli) {
	w.Status, w.outcome = 200, outcomeOf[why]
	w.Body = append(w.Body, `{"code":200,"msg":"success","data":{"vid":"`...)
	w.Body = append(w.Body, vid...)
	if why == vehicle.Answered {
		w.SetTime("Last-Modified", made.Time())
		w.Body = append(w.Body, `","status":1`...)
		w.Body = append(w.Body, field...)
		w.Body = append(w.Body, '0'+value)
	} else {
		w.Set("Carstate-Reason", why.String())
		w.Body = append(w.Body, `","status":0`...)
		w.Body = append(w.Body, field...)
		if w.operation == carDrivingState {
			// For the throttle, "0" means anomaly, so its value is empty if there is no verdict.
			w.Body = append(w.Body, '0')
		}
	}
	w.Body = append(w.Body, `"}}`...)
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
	w.Name("RateLimit-Policy")
	b := strconv.AppendInt(append(w.Headers, `"token";q=`...), r.Calls, 10)
	b = strconv.AppendInt(append(b, ";w="...), int64(r.Window/time.Second), 10)
	w.Headers = append(b, "\r\n"...)
	w.Name("RateLimit")
	b = strconv.AppendInt(append(w.Headers, `"token";r=`...), remaining, 10)
	b = strconv.AppendInt(append(b, ";t="...), access.WaitSeconds(next), 10)
	w.Headers = append(b, "\r\n"...)
}

// setRateHeaders adds the headers of a token's rate limit, if any. It uses up none of the budget.
func (w *response) setRateHeaders(g *access.Grant, now time.Time) {
	if g.Rate.Limited() {
		remaining, next := g.Budget.Peek(g.Rate, now)
		w.setRate(g.Rate, remaining, next)
	}
}

// tooManyCalls answers 429 for a token over its rate r. Its next call is allowed after next.
func (w *response) tooManyCalls(r access.Rate, next time.Duration) {
	w.Status, w.outcome = failRateLimited.status, failRateLimited.outcome
	w.SetNumber("Retry-After", access.WaitSeconds(next))
	w.Body = append(w.Body, `{"code":429,"msg":"rate_limited: the policy of this token allows `...)
	w.Body = strconv.AppendInt(w.Body, r.Calls, 10)
	w.Body = append(w.Body, ` calls in `...)
	w.Body = strconv.AppendInt(w.Body, int64(r.Window/time.Second), 10)
	w.Body = append(w.Body, ` s: wait `...)
	w.Body = strconv.AppendInt(w.Body, access.WaitSeconds(next), 10)
	w.Body = append(w.Body, ` s","data":null}`...)
}
