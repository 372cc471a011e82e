package query

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"strconv"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/http1"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

// response is reused: its contents are valid until the next start.
type response struct {
	http1.Response
	result

	vid     []byte
	scratch []byte
}

// result is for metrics and the access log.
type result struct {
	id        requestID
	token     string // its ID, if known
	operation access.Operations
	outcome   outcome
	sandbox   bool
}

// requestID is random, so it reveals nothing about other clients.
type requestID [2]uint64

func (id requestID) appendTo(b []byte) []byte { return appendHex(appendHex(b, id[0]), id[1]) }

func appendHex(b []byte, n uint64) []byte {
	var raw [8]byte
	binary.BigEndian.PutUint64(raw[:], n)
	return hex.AppendEncode(b, raw[:])
}

func (w *response) start(now time.Time) {
	w.Reset()
	w.result, w.vid, w.scratch = result{}, nil, w.scratch[:0]
	w.begin(now, "application/json", "private, no-store")
}

func (w *response) begin(now time.Time, contentType, cache string) {
	w.id = requestID{rand.Uint64(), rand.Uint64()}
	w.Headers = w.Headers[:0]
	w.SetTime("Date", now)
	w.Set("Content-Type", contentType)
	w.Set("Cache-Control", cache)
	w.Name("X-Request-Id")
	w.Headers = append(w.id.appendTo(w.Headers), "\r\n"...)
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

// writeRecord writes a verdict, one digit, and the time at which it was made, or why there is none.
// field is the JSON between the status and the value.
func (w *response) writeRecord(vid []byte, why vehicle.Outcome, field string, value byte, made signal.UnixMilli) {
	w.Status, w.outcome = 200, outcome(why)
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
		if w.operation == access.CarDrivingState {
			// For the throttle, "0" means anomaly, so no verdict is "".
			w.Body = append(w.Body, '0')
		}
	}
	w.Body = append(w.Body, `"}}`...)
}

// setRate follows draft-ietf-httpapi-ratelimit-headers-11: "token";q=60;w=60 for 60 calls in a
// minute, and "token";r=3;t=1 if 3 are left and one more becomes available in a second.
func (w *response) setRate(r access.Rate, remaining int64, next time.Duration) {
	w.Name("RateLimit-Policy")
	b := strconv.AppendInt(append(w.Headers, `"token";q=`...), r.Calls, 10)
	b = strconv.AppendInt(append(b, ";w="...), int64(r.Window/time.Second), 10)
	w.Headers = append(b, "\r\n"...)
	w.Name("RateLimit")
	b = strconv.AppendInt(append(w.Headers, `"token";r=`...), remaining, 10)
	b = strconv.AppendInt(append(b, ";t="...), access.WaitSeconds(next), 10)
	w.Headers = append(b, "\r\n"...)
}

func (w *response) setRateHeaders(g *access.Grant, now time.Time) {
	if g.Rate.Limited() {
		remaining, next, _ := g.Budget.Take(g.Rate, 0, now)
		w.setRate(g.Rate, remaining, next)
	}
}

func (w *response) tooManyCalls(r access.Rate, next time.Duration) {
	w.Status, w.outcome = failRateLimited.status, failRateLimited.outcome
	w.Name("Retry-After")
	w.Headers = append(strconv.AppendInt(w.Headers, access.WaitSeconds(next), 10), "\r\n"...)
	w.Body = append(w.Body, `{"code":429,"msg":"rate_limited: the policy of this token allows `...)
	w.Body = strconv.AppendInt(w.Body, r.Calls, 10)
	w.Body = append(w.Body, ` calls in `...)
	w.Body = strconv.AppendInt(w.Body, int64(r.Window/time.Second), 10)
	w.Body = append(w.Body, ` s: wait `...)
	w.Body = strconv.AppendInt(w.Body, access.WaitSeconds(next), 10)
	w.Body = append(w.Body, ` s","data":null}`...)
}
