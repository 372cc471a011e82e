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

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/admin/wire"
)

type Error struct {
	Status int // of the response; 0: there was none
	text   string
	cause  error
}

func (e *Error) Error() string { return e.text }

func (e *Error) Unwrap() error { return e.cause }

func errorf(format string, args ...any) *Error {
	return &Error{text: fmt.Sprintf(format, args...)}
}

func unreachable(where string, err error) *Error {
	cause, perhaps := err, ": the operation may have been carried out, so check before you retry"
	if u, ok := errors.AsType[*url.Error](err); ok { // without the method and the URL that net/http adds
		cause = u.Err
		if u.Op == "Get" {
			perhaps = " (--admin-addr)"
		}
	}
	e := errorf("%s could not be reached: %s (--admin-addr)", where, access.OneLine(cause))
	var late interface{ Timeout() bool }
	switch {
	case errors.Is(err, context.Canceled):
		e = errorf("the call of %s was interrupted", where)
	case errors.Is(err, syscall.ECONNREFUSED):
		e = errorf("no carstate answers at %s: is `carstate serve` running? (--admin-addr)", where)
	case errors.As(err, &late) && late.Timeout():
		e = errorf("%s did not answer in time%s", where, perhaps)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		e = errorf("%s disconnected without an answer%s", where, perhaps)
	}
	e.cause = err
	return e
}

func refused(where, keyFlag string, resp *http.Response) *Error {
	var f wire.Failure
	text, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err != nil || f.Error == "" {
		return foreign(where, resp)
	}
	e := &Error{Status: resp.StatusCode, text: access.OneLine(errors.New(f.Error))}
	switch resp.StatusCode {
	case http.StatusUnauthorized:
		e.text = fmt.Sprintf("the carstate at %s does not accept this key: is it still valid, and of this "+
			"service? (%s, --admin-addr)", where, keyFlag)
	case http.StatusNotFound:
		e.cause = access.ErrNotFound
	}
	return e
}

func foreign(where string, resp *http.Response) *Error {
	return &Error{Status: resp.StatusCode, text: fmt.Sprintf(
		"the server at %s is not carstate's admin listener: it answered %d (--admin-addr)", where, resp.StatusCode)}
}

// shown returns the URL without secrets.
func shown(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "the address given"
	}
	return access.Redact(u.Redacted())
}
