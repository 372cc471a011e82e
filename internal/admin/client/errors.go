package client

import (
	"context"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"syscall"

	"carstate/internal/access"
	"carstate/internal/admin/wire"
)

// Error is why a call of the [Client] failed, in one line for the operator.
type Error struct {
	Status int // of the answer; 0: there was none
	text   string
	cause  error
}

// Error returns the line.
func (e *Error) Error() string { return e.text }

// Unwrap returns what lies behind the line, if anything does.
func (e *Error) Unwrap() error { return e.cause }

func errorf(format string, args ...any) *Error {
	return &Error{text: fmt.Sprintf(format, args...)}
}

// unreachable explains why there was no answer.
func unreachable(where string, err error) *Error {
	e := errorf("%s could not be reached: %s (--admin-addr)", where, access.OneLine(innermost(err)))
	var late interface{ Timeout() bool }
	switch {
	case errors.Is(err, context.Canceled):
		e = errorf("the call of %s was interrupted", where)
	case errors.Is(err, syscall.ECONNREFUSED):
		e = errorf("no carstate answers at %s: is `carstate serve` running? (--admin-addr)", where)
	case errors.As(err, &late) && late.Timeout():
		e = errorf("%s did not answer in time: it may have done what was asked, so look before trying again", where)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		e = errorf("%s broke off without an answer: it may have done what was asked, so look before trying again", where)
	}
	e.cause = err
	return e
}

// innermost drops the method and URL that net/http puts before its errors.
func innermost(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// refused explains an answer that is no success.
func refused(where string, resp *http.Response) *Error {
	var f wire.Failure
	text, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err != nil || f.Error == "" {
		e := errorf("what answers at %s is not carstate's admin listener: it said %d (--admin-addr)", where, resp.StatusCode)
		e.Status = resp.StatusCode
		return e
	}
	e := &Error{Status: resp.StatusCode, text: access.OneLine(errors.New(f.Error))}
	switch resp.StatusCode {
	case http.StatusUnauthorized:
		e.text = fmt.Sprintf("the carstate at %s does not take this key: is it the service of this data directory? (--data-dir, --admin-addr)", where)
	case http.StatusNotFound:
		e.cause = access.ErrNotFound
	case http.StatusConflict:
		if p := resp.Request.URL.Path; p == "/v1/sources" || p == "/v1/operators" {
			e.cause = access.ErrExists
		}
	}
	return e
}

// shown is a URL without the password that someone may have put into it.
func shown(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "the address given"
	}
	return access.Redact(u.Redacted())
}
