package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"
)

type reply struct {
	code   int
	header http.Header
	body   []byte
	at     time.Time // when it arrived
	redact func(string) string
}

type result struct {
	answer            Answer
	driving, throttle string
}

type object map[string]json.RawMessage

// parseObject returns nil if b is not an object in valid UTF-8 with unique names.
func parseObject(b []byte) object {
	d := json.NewDecoder(bytes.NewReader(b))
	if first, err := d.Token(); err != nil || first != json.Delim('{') || !json.Valid(b) || !utf8.Valid(b) {
		return nil
	}
	o := object{}
	for d.More() {
		name, err := d.Token()
		key, _ := name.(string)
		var value json.RawMessage
		if err != nil || d.Decode(&value) != nil || o[key] != nil {
			return nil
		}
		o[key] = value
	}
	return o
}

// text returns a string, or the JSON of any other member, so 1 equals "1"; null and a missing
// member are "".
func (o object) text(name string) (s string) {
	if len(o[name]) == 0 || json.Unmarshal(o[name], &s) == nil {
		return s
	}
	return string(o[name])
}

func parse(r *reply, vid string) (*result, *Error) {
	e := parseObject(r.body)
	isEnvelope := e.text("code") != ""
	if r.code != http.StatusOK || isEnvelope && e.text("code") != "200" {
		return nil, refusalError(r, e, isEnvelope)
	}
	if !isEnvelope {
		return nil, badAnswer(r, "its answer is not an envelope with code, msg and data")
	}
	rec := parseObject(e["data"])
	if rec == nil {
		return nil, badAnswer(r, "the envelope has no record")
	}
	if of := rec.text("vid"); of != "" && of != vid {
		return nil, badAnswer(r, "the record is about another vehicle")
	}
	a := Answer{VID: vid, Status: Status(r.value(rec.text("status"))), RequestID: r.id(), Record: e["data"]}
	if a.Status != Succeed {
		a.Reason = Reason(r.redact(r.header.Get("Carstate-Reason")))
	}
	a.AsOf, a.Age = r.times()
	if a.Status == Fail {
		// Some services send a value with status Fail. The throttle's "0" would then mean an
		// anomaly.
		return &result{answer: a}, nil
	}
	// The interface spells vehicle_runing_state like this.
	return &result{a, r.value(rec.text("vehicle_runing_state")), r.value(rec.text("throttle_system"))}, nil
}

// The valid texts have one character. A longer one may contain the token.
func (r *reply) value(text string) string {
	if len(text) < 2 {
		return text
	}
	return r.redact(text)
}

func refusalError(r *reply, e object, isEnvelope bool) *Error {
	out := &Error{Code: r.code, RequestID: r.id(), RetryAfter: r.retryAfter(),
		Message: oneLine(e.text("msg"), r.redact)}
	if n, err := strconv.Atoi(e.text("code")); err == nil && r.code == http.StatusOK {
		out.Code = n // the HTTP status does not show the failure
	}
	switch {
	case isEnvelope && out.Message != "":
	case r.code >= 300 && r.code < 400:
		out.Message = "the server answers with a redirect (HTTP " + strconv.Itoa(r.code) +
			"), which is not followed because it would send the token elsewhere: " +
			"use the address to which it leads, perhaps with https"
	case isOutage(r.code):
		out.Message = "a gateway in front of the service answers HTTP " + strconv.Itoa(r.code) +
			": it cannot reach the service at present; if that lasts, ask the operator"
	default:
		out.Message = "the server answers HTTP " + strconv.Itoa(r.code) +
			", but does not speak this interface: is this the base URL of the service?"
		if !isEnvelope {
			out.causes = []error{ErrBadAnswer}
		}
	}
	out.causes, out.broken = append(out.causes, kindOf(out.Code)), isOutage(out.Code)
	return out
}

func badAnswer(r *reply, why string) *Error {
	return &Error{
		Code: r.code, RequestID: r.id(), causes: []error{ErrBadAnswer},
		Message: "the server does not speak this interface: " + why,
	}
}

func (r *reply) id() string { return oneLine(r.header.Get("X-Request-Id"), r.redact) }

func (r *reply) times() (asOf time.Time, age time.Duration) {
	asOf, err := http.ParseTime(r.header.Get("Last-Modified"))
	if err != nil {
		return time.Time{}, 0
	}
	return asOf, max(0, r.date().Sub(asOf))
}

// date is by the service's clock if possible.
func (r *reply) date() time.Time {
	if t, err := http.ParseTime(r.header.Get("Date")); err == nil {
		return t
	}
	return r.at
}

const maxRetryAfter = 365 * 24 * time.Hour

// retryAfter returns whole seconds, rounded up; 0 if there is no valid Retry-After.
func (r *reply) retryAfter() time.Duration {
	value := r.header.Get("Retry-After")
	if n, err := strconv.ParseUint(value, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(n, uint64(maxRetryAfter/time.Second))) * time.Second
	}
	if t, err := http.ParseTime(value); err == nil {
		d := min(max(0, t.Sub(r.date())), maxRetryAfter)
		return (d + time.Second - 1).Truncate(time.Second)
	}
	return 0
}
