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

// The kinds of errors, for [errors.Is].
var (
	ErrBaseURL           = errors.New("invalid base URL")
	ErrInvalidRequest    = errors.New("invalid_request")    // 400, most other 4xx: probably, the vid is wrong
	ErrInvalidToken      = errors.New("invalid_token")      // 401
	ErrInsufficientScope = errors.New("insufficient_scope") // 403: the token lacks this operation
	ErrNotFound          = errors.New("not_found")          // 404: probably, the base URL is wrong
	ErrRateLimited       = errors.New("rate_limited")       // 429: see RetryAfter
	ErrUnavailable       = errors.New("unavailable")        // 503 and other 5xx: the service cannot answer now
	ErrUnreachable       = errors.New("unreachable")        // no answer, or only a part of one
	// ErrBadAnswer means that a response does not have the form of this service's answers:
	// probably, the base URL is that of another server.
	ErrBadAnswer = errors.New("not an answer of this interface")
)

// Error says why a call failed. Its text is one line and never contains the token. With [errors.Is]
// it matches its kind, such as [ErrRateLimited], and its causes, such as
// [context.DeadlineExceeded].
type Error struct {
	// Code is the HTTP status of the response, or 0 if there was no response. If the status is
	// 200 but the JSON of the response reports a failure, Code is the code in the JSON.
	Code int
	// Message says what was wrong and what to do, in most cases in the words of the service.
	Message string
	// RetryAfter is how long the service asks the client to wait, or 0 if it does not say.
	RetryAfter time.Duration
	// RequestID is the service's ID of this request, or "" if it does not say.
	RequestID string

	causes []error
	broken bool // the connection failed, or a gateway cannot reach the service: retry soon
}

// Error returns the message, followed by RetryAfter if the service asks for a wait.
func (e *Error) Error() string {
	if e.RetryAfter > 0 {
		return fmt.Sprintf("%s (Retry-After: %d s)", e.Message, e.RetryAfter/time.Second)
	}
	return e.Message
}

// Unwrap returns the kind and the causes of the error.
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

// isBroken reports whether err is a transient error of the connection, so that a retry on a new
// connection may work. A name that does not exist and a wrong certificate are permanent errors.
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

// oneLine returns a text from the service or a library as one line of printable characters. It
// first removes all other characters, because they may hide the token. Then it calls redact, which
// removes the token. Last, it cuts a text of more than 500 bytes and adds an ellipsis; redact would
// not find a token that was cut off.
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

// isOutage reports whether an HTTP status code says that the service cannot be reached at present.
// The client retries after such a code even without Retry-After, which gateways mostly omit.
func isOutage(code int) bool {
	return code == http.StatusBadGateway || code == http.StatusServiceUnavailable || code == http.StatusGatewayTimeout
}
