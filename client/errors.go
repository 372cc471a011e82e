package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"
)

// Kinds of errors, for [errors.Is].
var (
	ErrBaseURL           = errors.New("the base URL makes no sense")
	ErrInvalidRequest    = errors.New("invalid_request")    // 400 and most other 4xx: the vid, most likely
	ErrInvalidToken      = errors.New("invalid_token")      // 401
	ErrInsufficientScope = errors.New("insufficient_scope") // 403: the token lacks this operation
	ErrNotFound          = errors.New("not_found")          // 404: the base URL, most likely
	ErrRateLimited       = errors.New("rate_limited")       // 429: see RetryAfter
	ErrUnavailable       = errors.New("unavailable")        // 503 and other 5xx: the service, for the moment
	ErrUnreachable       = errors.New("unreachable")        // there was no answer, or it broke off
	// ErrBadAnswer: what answers does not speak this interface.
	ErrBadAnswer = errors.New("not an answer of this interface")
)

// Error is why a call failed. It is one line and never holds the token. It
// unwraps to its kind and to what caused it, such as
// [context.DeadlineExceeded].
type Error struct {
	// Code is the HTTP status of the answer, or the envelope's code where
	// that is the one that tells of a failure; 0: there was no answer.
	Code int
	// Message is what was wrong and what to do, mostly in the service's words.
	Message string
	// RetryAfter is how long the service wants the caller to wait; 0 if it
	// did not say.
	RetryAfter time.Duration
	// RequestID is how the service calls this request; "" if it did not say.
	RequestID string

	causes []error
	broken bool // the connection, or what is behind a gateway; soon it may work
}

// Error returns the message, and how long to wait if that is known.
func (e *Error) Error() string {
	if e.RetryAfter > 0 {
		return fmt.Sprintf("%s (Retry-After: %d s)", e.Message, e.RetryAfter/time.Second)
	}
	return e.Message
}

// Unwrap returns the kind and the causes.
func (e *Error) Unwrap() []error { return e.causes }

// kindOf is the kind of error that a code stands for.
func kindOf(code int) error {
	switch {
	case code == http.StatusUnauthorized:
		return ErrInvalidToken
	case code == http.StatusForbidden:
		return ErrInsufficientScope
	case code == http.StatusNotFound:
		return ErrNotFound
	case code == http.StatusTooManyRequests:
		return ErrRateLimited
	case code >= 500:
		return ErrUnavailable
	case code >= 400:
		return ErrInvalidRequest
	}
	return ErrBadAnswer
}

// failed explains why there was no whole answer. It drops the URL that net/http
// puts into its errors, because the token is in it.
func (c *Client) failed(ctx context.Context, err error) *Error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if text := err.Error(); c.redact(text) != text {
		err = errors.New(oneLine(text, c.redact)) // a caller that unwraps it must not find the token
	}
	if ended := ctx.Err(); ended != nil {
		return &Error{Message: "asking " + c.where() + " was ended before there was an answer: " + ended.Error(), causes: []error{ended}}
	}
	e := &Error{causes: []error{ErrUnreachable, err}}
	late, isNet := errors.AsType[net.Error](err)
	if isNet && late.Timeout() {
		e.broken = true
		e.Message = c.where() + " did not answer in time"
		return e
	}
	e.broken = isBroken(err)
	e.Message = c.where() + " could not be reached: " + oneLine(err.Error(), c.redact)
	return e
}

// isBroken reports whether err is that of a connection, so that a new one may
// work; a name that does not exist or a wrong certificate will not change.
func isBroken(err error) bool {
	if name, ok := errors.AsType[*net.DNSError](err); ok {
		return !name.IsNotFound
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return false
	}
	_, ok := errors.AsType[*net.OpError](err)
	return ok || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// oneLine makes text from elsewhere one line of printable characters, and short. It redacts
// in between: what is left out may have hidden the token, and what is cut could be half of it.
func oneLine(s string, redact func(string) string) string {
	const most = 500
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, s)
	s = redact(strings.Join(strings.Fields(s), " "))
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
