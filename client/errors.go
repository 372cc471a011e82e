package client

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
	"unicode"
)

// Kinds of errors, for [errors.Is].
var (
	ErrBaseURL           = errors.New("invalid base URL")
	ErrInvalidRequest    = errors.New("invalid_request")    // 400, most other 4xx: probably, the vid is wrong
	ErrInvalidToken      = errors.New("invalid_token")      // 401
	ErrInsufficientScope = errors.New("insufficient_scope") // 403: the token lacks this operation
	ErrNotFound          = errors.New("not_found")          // 404: probably, the base URL is wrong
	ErrRateLimited       = errors.New("rate_limited")       // 429: see RetryAfter
	ErrUnavailable       = errors.New("unavailable")        // 503 and other 5xx
	ErrUnreachable       = errors.New("unreachable")        // no answer, or only a part of one
	// ErrBadAnswer is for an answer without this interface's form: probably, the base URL is wrong.
	ErrBadAnswer = errors.New("not an answer of this interface")
)

// Error says why a call failed, in one line without the token. With [errors.Is] it matches its kind
// and its causes, such as [context.DeadlineExceeded].
type Error struct {
	// Code is the HTTP status, or 0 without a response. With status 200, it is the code in the
	// JSON.
	Code int
	// Message says what was wrong and what to do.
	Message string
	// RetryAfter is the wait that the service asks for, or 0.
	RetryAfter time.Duration
	RequestID  string

	causes []error
	broken bool // the connection failed, or a gateway cannot reach the service: retry soon
}

// Error returns the message and RetryAfter.
func (e *Error) Error() string {
	if e.RetryAfter > 0 {
		return fmt.Sprintf("%s (Retry-After: %d s)", e.Message, e.RetryAfter/time.Second)
	}
	return e.Message
}

// Unwrap returns the kind and the causes.
func (e *Error) Unwrap() []error { return e.causes }

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

// isBroken reports whether a new connection may work. A name that does not exist and a wrong
// certificate are permanent.
func isBroken(err error) bool {
	if name := (*net.DNSError)(nil); errors.As(err, &name) {
		return !name.IsNotFound
	}
	if wrong := (*tls.CertificateVerificationError)(nil); errors.As(err, &wrong) {
		return false
	}
	broken := (*net.OpError)(nil)
	return errors.As(err, &broken) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// oneLine removes unprintable characters, which may hide the token, before it redacts, and cuts
// only then, because a cut token would not be found.
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

// isOutage reports whether the client retries even without Retry-After, which gateways mostly omit.
func isOutage(code int) bool {
	return code == http.StatusBadGateway || code == http.StatusServiceUnavailable || code == http.StatusGatewayTimeout
}
