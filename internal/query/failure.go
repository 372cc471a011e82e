package query

import (
	"bytes"
	"errors"
	"strconv"
	"unicode"

	"carstate/internal/access"
	"carstate/internal/vehicle"
)

// failure is an answer that says what was wrong with a request. Its text is fixed, and no part of
// the request is ever put into it.
type failure struct {
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

// fail returns a failure whose message is the name of o, followed by text. text must need no
// escaping in JSON; a test checks that.
func fail(status int, o outcome, text string) *failure {
	return &failure{
		status:  status,
		outcome: o,
		body:    `{"code":` + strconv.Itoa(status) + `,"msg":"` + o.String() + ": " + text + `","data":null}`,
	}
}

// closing returns a failure after which the connection is closed.
func closing(status int, o outcome, text string) *failure {
	f := fail(status, o, text)
	f.closes = true
	return f
}

func unauthorized(text string) *failure {
	f := fail(401, invalidToken, text)
	f.authenticate = `Bearer realm="carstate", error="invalid_token"`
	return f
}

// missing returns the failure of a request without a token. Its WWW-Authenticate has no error code,
// because RFC 6750 does not treat a missing token as an error.
func missing(text string) *failure {
	f := fail(401, invalidToken, text)
	f.authenticate = `Bearer realm="carstate"`
	return f
}

func forbidden(text string) *failure {
	f := fail(403, insufficientScope, text)
	f.authenticate = `Bearer realm="carstate", error="insufficient_scope"`
	return f
}

func retry(after string, f *failure) *failure {
	f.retryAfter = after
	return f
}

// Failures of a request whose head is malformed, too long or too slow, or that has a body. The
// connection is closed after each of them.
var (
	failMalformed = closing(400, invalidRequest,
		"this is not a complete HTTP/1.1 request: check the request line, the headers, and that there is one Host")
	failBareLine   = closing(400, invalidRequest, "a header line must end in CR LF and hold no other CR")
	failFolded     = closing(400, invalidRequest, "a header must be on one line")
	failHeaderName = closing(400, invalidRequest, "a header's name must be a token directly before its colon")
	failHost       = closing(400, invalidRequest, "an HTTP/1.1 request has exactly one Host header, and a host in it")
	failBody       = closing(400, invalidRequest,
		"the request must have no body: send the parameters in the query of a GET")
	failExpect = closing(400, invalidRequest,
		"the Expect header is not accepted here: there is no body to wait for")
	failVersion  = closing(400, invalidRequest, "the HTTP version must be 1.1 or 1.0")
	failLineSize = closing(414, invalidRequest, "the request line is longer than 8192 bytes")
	failHeadSize = closing(431, invalidRequest, "the request head is longer than 16384 bytes")
	failSlow     = closing(408, invalidRequest, "the request head did not arrive in time")
)

// Failures of the path, method or query of a request.
var (
	failPath = fail(404, notFound,
		"the path must be exactly /api/ic/if_dt_tflow_car_driving_state or /api/ic/if_dt_amo_throttle_system")
	failMethod   = fail(405, methodNotAllowed, "use GET or HEAD, in capital letters")
	failEncoding = fail(400, invalidRequest,
		"in the query every percent sign must begin a percent-encoded byte such as %20")
	failTwoVids   = fail(400, invalidRequest, "vid was given more than once")
	failTwoTokens = fail(400, invalidRequest, "access_token was given more than once")
	failNoVid     = fail(400, invalidRequest, "the parameter vid is missing: add vid=VEHICLE_ID to the query")
	failEmptyVid  = fail(400, invalidRequest, "vid is empty: give the vehicle id")
	failVidSpace  = fail(400, invalidRequest,
		"vid holds white space: a vehicle id consists of ASCII letters and digits only "+
			"(in a query a plus sign means a blank)")
	failVidDash = fail(400, invalidRequest,
		"vid holds a dash: a vehicle id consists of ASCII letters and digits only")
	failVidShape = fail(400, invalidRequest, "vid is in brackets, like a placeholder: "+
		"replace it by a vehicle id, which consists of ASCII letters and digits only")
	failVidASCII = fail(400, invalidRequest,
		"vid holds a character that is not ASCII: a vehicle id consists of ASCII letters and digits only")
	failVid = fail(400, invalidRequest, "vid holds a character that is neither letter nor digit: "+
		"a vehicle id consists of ASCII letters and digits only")
)

// checkVid returns the failure of a request whose parameter vid, the vehicle identifier, is missing
// or malformed. If vid has a valid form, it returns nil.
func checkVid(p *params) *failure {
	switch {
	case !p.hasVid:
		return failNoVid
	case len(p.vid) == 0:
		return failEmptyVid
	case vehicle.CheckID(p.vid) == nil:
		return nil
	case bytes.ContainsAny(p.vid, " \t\r\n"):
		return failVidSpace
	case bytes.IndexByte([]byte("<{["), p.vid[0]) >= 0:
		return failVidShape
	case bytes.IndexFunc(p.vid, func(r rune) bool { return r > unicode.MaxASCII }) >= 0:
		return failVidASCII
	case bytes.IndexByte(p.vid, '-') >= 0:
		return failVidDash
	}
	return failVid
}

// Failures that the client has not caused: the service is not ready, is overloaded, or has a bug.
// The client may send the request again.
var (
	failNotReady = retry("5", fail(503, unavailable,
		"the service is starting or has lost contact with its data: try again later"))
	failOverloaded = retry("1", fail(503, unavailable, "the service is overloaded: try again later"))
	failBusy       = retry("1", closing(503, unavailable, "the service is overloaded: try again later"))
	failCrowded    = retry("1", closing(503, unavailable, "the service has too many connections: try again later"))
	failUnread     = retry("5", fail(503, unavailable,
		"the service is being upgraded, and this node cannot check the access token yet: try again later"))
	failBroken = retry("5", closing(503, unavailable, "the service could not answer: try again later"))
)

// Failures of a token that is missing, is invalid, does not permit the operation, or is over its
// rate, and of an address from which too many invalid tokens were sent.
var (
	failNoToken    = missing("the parameter access_token is missing: add access_token=TOKEN to the query")
	failWrongPlace = missing("send the token in the query, as access_token=TOKEN, and not in an Authorization header")
	failEmptyToken = unauthorized("access_token is empty: give the token that was issued to you")
	failSourceKey  = unauthorized("this is the key of a source, which may write telemetry: " +
		"a query takes an access token, which begins with cst_")
	failAdminKey    = unauthorized("this is an operator's key: a query takes an access token, which begins with cst_")
	failTokenID     = unauthorized("this is the ID of an access token, not the access token itself")
	failBearer      = unauthorized("access_token must be the token alone, without the word Bearer")
	failTokenSpace  = unauthorized("access_token holds white space: give the token alone")
	failTokenLong   = unauthorized("this is longer than an access token: there is more text after the token")
	failTokenForm   = unauthorized("this does not have the form of an access token: cst_ and 36 letters and digits")
	failChecksum    = unauthorized("the checksum of the access token does not match: it is mistyped or cut off")
	failNotKnown    = unauthorized("the access token is not known here")
	failRevoked     = unauthorized("the access token was revoked: ask for a new one")
	failExpired     = unauthorized("the access token has expired: ask for a new one")
	failReplaced    = unauthorized("the access token was replaced by a newer one: use that one")
	failNoDriving   = forbidden("the access token does not include the operation car_driving_state")
	failNoThrottle  = forbidden("the access token does not include the operation throttle_system")
	failRefusals    = fail(429, rateLimited, "") // response.failOverRefusals writes the text
	failRateLimited = fail(429, rateLimited, "") // response.failOverRate writes the text
)

// failScope maps each operation to the failure of a token that does not permit it.
var failScope = [noOperation]*failure{carDrivingState: failNoDriving, throttleSystem: failNoThrottle}

// tokenFailure returns the failure of an invalid token. err is the error of
// [access.Tokens.Verify].
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
// guesses what the client sent instead, so that the message can say what to do.
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
