package query

import (
	"bytes"
	"errors"
	"strconv"

	"carstate/internal/access"
)

// failure is an answer that says what was wrong with a request. Its text is fixed, and no part of
// the request is ever put into it.
type failure struct {
	name    string // in docs/errors.txt, and of the example in the OpenAPI document
	status  int
	outcome outcome
	body    string
	// authenticate is the value of WWW-Authenticate, or "" for no such header.
	authenticate string
	// retryAfter is the value of Retry-After, in seconds, or "" for no such header.
	retryAfter string
	// closes is set if the connection is closed after the answer, because the end of the request is
	// uncertain, or because of an overload, too many connections or a bug.
	closes bool
}

// namedFailures maps the names of all failures to the failures.
var namedFailures = map[string]*failure{}

// fail returns a failure whose message is the name of o, followed by text. text must need no
// escaping in JSON; a test checks that. The failure is added to namedFailures.
func fail(name string, status int, o outcome, text string) *failure {
	f := &failure{
		name:    name,
		status:  status,
		outcome: o,
		body:    `{"code":` + strconv.Itoa(status) + `,"msg":"` + o.String() + ": " + text + `","data":null}`,
	}
	namedFailures[name] = f
	return f
}

func invalid(name, text string) *failure { return fail(name, 400, invalidRequest, text) }

func unauthorized(name, text string) *failure {
	f := fail(name, 401, invalidToken, text)
	f.authenticate = `Bearer realm="carstate", error="invalid_token"`
	return f
}

// missing returns the failure of a request without a token. Its WWW-Authenticate has no error code,
// because RFC 6750 does not treat a missing token as an error.
func missing(name, text string) *failure {
	f := fail(name, 401, invalidToken, text)
	f.authenticate = `Bearer realm="carstate"`
	return f
}

func forbidden(name, text string) *failure {
	f := fail(name, 403, insufficientScope, text)
	f.authenticate = `Bearer realm="carstate", error="insufficient_scope"`
	return f
}

// closing makes f an answer after which the connection is closed, and returns f.
func closing(f *failure) *failure {
	f.closes = true
	return f
}

func retry(after string, f *failure) *failure {
	f.retryAfter = after
	return f
}

// Failures of a request whose head is malformed, too long or too slow, or that has a body. The
// connection is closed after each of them.
var (
	failMalformed = closing(invalid("not_http",
		"this is not a complete HTTP/1.1 request: check the request line, the headers, and that there is one Host"))
	failBareLine   = closing(invalid("line_end", "a header line must end in CR LF and hold no other CR"))
	failFolded     = closing(invalid("header_folded", "a header must be on one line"))
	failHeaderName = closing(invalid("header_name", "a header's name must be a token directly before its colon"))
	failHost       = closing(invalid("host", "an HTTP/1.1 request has exactly one Host header, and a host in it"))
	failBody       = closing(invalid("body",
		"the request must have no body: send the parameters in the query of a GET"))
	failExpect   = closing(invalid("expect", "the Expect header is not accepted here: there is no body to wait for"))
	failVersion  = closing(invalid("version", "the HTTP version must be 1.1 or 1.0"))
	failLineSize = closing(fail("line_size", 414, invalidRequest, "the request line is longer than 8192 bytes"))
	failHeadSize = closing(fail("head_size", 431, invalidRequest, "the request head is longer than 16384 bytes"))
	failSlow     = closing(fail("slow", 408, invalidRequest, "the request head did not arrive in time"))
)

// Failures of the path, method or query of a request.
var (
	failPath = fail("path", 404, notFound,
		"the path must be exactly /api/ic/if_dt_tflow_car_driving_state or /api/ic/if_dt_amo_throttle_system")
	failMethod   = fail("method", 405, methodNotAllowed, "use GET or HEAD, in capital letters")
	failEncoding = invalid("encoding",
		"in the query every percent sign must begin a percent-encoded byte such as %20")
	failTwoVids   = invalid("vid_twice", "vid was given more than once")
	failTwoTokens = invalid("token_twice", "access_token was given more than once")
	failNoVid     = invalid("vid_missing", "the parameter vid is missing: add vid=VEHICLE_ID to the query")
	failEmptyVid  = invalid("vid_empty", "vid is empty: give the vehicle id")
	failVidSpace  = invalid("vid_white_space",
		"vid holds white space: a vehicle id consists of ASCII letters and digits only "+
			"(in a query a plus sign means a blank)")
	failVidDash  = invalid("vid_dash", "vid holds a dash: a vehicle id consists of ASCII letters and digits only")
	failVidShape = invalid("vid_placeholder", "vid is in brackets, like a placeholder: "+
		"replace it by a vehicle id, which consists of ASCII letters and digits only")
	failVidASCII = invalid("vid_not_ascii",
		"vid holds a character that is not ASCII: a vehicle id consists of ASCII letters and digits only")
	failVid = invalid("vid_form", "vid holds a character that is neither letter nor digit: "+
		"a vehicle id consists of ASCII letters and digits only")
)

// Failures that the client has not caused: the service is not ready, is overloaded, or has a bug.
// The client may send the request again.
var (
	failNotReady = retry("5", fail("not_ready", 503, unavailable,
		"the service is starting or has lost contact with its data: try again later"))
	failBusy    = retry("1", closing(fail("busy", 503, unavailable, "the service is overloaded: try again later")))
	failCrowded = retry("1", closing(fail("crowded", 503, unavailable,
		"the service has too many connections: try again later")))
	failUnread = retry("5", fail("upgrading", 503, unavailable,
		"the service is being upgraded, and this node cannot check the access token yet: try again later"))
	failBroken = retry("5", closing(fail("broken", 503, unavailable,
		"the service could not answer: try again later")))
)

// Failures of a token that is missing, is invalid, does not permit the operation, or is over its
// rate, and of an address from which too many invalid tokens were sent.
var (
	failNoToken = missing("token_missing",
		"the parameter access_token is missing: add access_token=TOKEN to the query")
	failWrongPlace = missing("token_in_header",
		"send the token in the query, as access_token=TOKEN, and not in an Authorization header")
	failEmptyToken = unauthorized("token_empty", "access_token is empty: give the token that was issued to you")
	failSourceKey  = unauthorized("source_key", "this is the key of a source, which may write telemetry: "+
		"a query takes an access token, which begins with cst_")
	failAdminKey = unauthorized("admin_key",
		"this is an operator's key: a query takes an access token, which begins with cst_")
	failTokenID    = unauthorized("token_id", "this is the ID of an access token, not the access token itself")
	failBearer     = unauthorized("token_bearer", "access_token must be the token alone, without the word Bearer")
	failTokenSpace = unauthorized("token_white_space", "access_token holds white space: give the token alone")
	failTokenLong  = unauthorized("token_too_long",
		"this is longer than an access token: there is more text after the token")
	failTokenForm = unauthorized("token_form",
		"this does not have the form of an access token: cst_ and 36 letters and digits")
	failChecksum = unauthorized("token_mistyped",
		"the checksum of the access token does not match: it is mistyped or cut off")
	failNotKnown  = unauthorized("token_unknown", "the access token is not known here")
	failRevoked   = unauthorized("token_revoked", "the access token was revoked: ask for a new one")
	failExpired   = unauthorized("token_expired", "the access token has expired: ask for a new one")
	failReplaced  = unauthorized("token_replaced", "the access token was replaced by a newer one: use that one")
	failNoDriving = forbidden("no_car_driving_state",
		"the access token does not include the operation car_driving_state")
	failNoThrottle = forbidden("no_throttle_system",
		"the access token does not include the operation throttle_system")
	failRefusals    = fail("too_many_refused", 429, rateLimited, "") // response.failOverRefusals writes the text
	failRateLimited = fail("rate_limited", 429, rateLimited, "")     // response.failOverRate writes the text
)

// failScope maps each operation to the failure of a token that does not permit it.
var failScope = [noOperation]*failure{carDrivingState: failNoDriving, throttleSystem: failNoThrottle}

// tokenFailure returns the failure of an invalid token. err is the error of [access.Tokens.Verify].
// If err says that the token is malformed, the failure depends on the text of the token (see
// malformed).
func tokenFailure(err error, token []byte) *failure {
	switch {
	case errors.Is(err, access.ErrExpired):
		return failExpired
	case errors.Is(err, access.ErrRevoked):
		return failRevoked
	case errors.Is(err, access.ErrReplaced):
		return failReplaced
	case errors.Is(err, access.ErrNotKnown):
		return failNotKnown
	case errors.Is(err, access.ErrUnread):
		return failUnread
	case errors.Is(err, access.ErrChecksum):
		return failChecksum
	}
	return malformed(token)
}

// malformed returns the failure of an access_token that does not have the form of a token. It
// guesses from the form what the client sent instead of a token, so that the message can say what
// to do.
func malformed(token []byte) *failure {
	begins := func(prefix string) bool { return bytes.HasPrefix(token, []byte(prefix)) }
	switch {
	case len(token) == 0:
		return failEmptyToken
	case begins("Bearer ") || begins("bearer "):
		return failBearer
	case bytes.ContainsAny(token, " \t\r\n"):
		return failTokenSpace
	case begins(string(access.SourceKind)):
		return failSourceKey
	case begins(string(access.AdminKind)):
		return failAdminKey
	case begins("cstid"):
		return failTokenID
	}
	for _, kind := range []access.Kind{access.TokenKind, access.SandboxKind} {
		switch {
		case !begins(string(kind)):
		case len(token) > kind.Length():
			return failTokenLong
		case len(token) < kind.Length() && !bytes.ContainsFunc(token[len(kind):], isNotBase62):
			return failChecksum
		}
	}
	return failTokenForm
}

func isNotBase62(c rune) bool {
	return (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z')
}
