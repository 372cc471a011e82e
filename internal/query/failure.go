package query

import (
	"bytes"
	"errors"
	"strconv"
	"strings"

	"example.org/carstate/internal/access"
)

// failure is an answer in a fixed text of docs/errors.txt, without any part of the request.
type failure struct {
	name    string // also of its example in the OpenAPI document
	status  int
	outcome outcome
	body    string // an example if response writes the body
	// of WWW-Authenticate, or ""
	authenticate string
	// seconds, or ""
	retryAfter string

	// For the documentation:
	Message string // without the name of the outcome
	Cause   string
	Cure    string
}

type statusDoc struct {
	Status   int
	Word     outcome
	Title    string
	Meaning  string
	Again    string // whether it helps to send the request again
	Failures []*failure
}

var statusDocs, failures = parseFailures(string(readDocFile("errors.txt")))

// parseFailures parses docs/errors.txt, whose paragraphs describe a status or, after it, a failure
// with that status. A message must need no escaping in JSON.
func parseFailures(text string) (all []statusDoc, named map[string]*failure) {
	named = make(map[string]*failure)
	for paragraph := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		lines := strings.Split(paragraph, "\n")
		if status, title, ok := strings.Cut(lines[0], " "); ok {
			code := must(strconv.Atoi(status))
			all = append(all, statusDoc{code, outcomeOfStatus[code], title, lines[1], lines[2], nil})
			continue
		}
		s := &all[len(all)-1]
		f := &failure{name: lines[0], status: s.Status, outcome: s.Word, retryAfter: retryAfter[lines[0]],
			Message: lines[1], Cause: lines[2], Cure: lines[3]}
		f.body = `{"code":` + strconv.Itoa(f.status) + `,"msg":"` + f.outcome.String() + ": " + f.Message + `","data":null}`
		if f.status == 401 || f.status == 403 {
			f.authenticate = `Bearer realm="carstate", error="` + f.outcome.String() + `"`
		}
		s.Failures = append(s.Failures, f)
		named[f.name] = f
	}
	return all, named
}

var outcomeOfStatus = map[int]outcome{
	400: invalidRequest, 401: invalidToken, 403: insufficientScope, 404: notFound, 405: methodNotAllowed,
	408: invalidRequest, 414: invalidRequest, 429: rateLimited, 431: invalidRequest, 503: unavailable,
}

// RFC 6750 does not treat a missing token as an error, so the error code is left out.
func withoutToken(name string) *failure {
	f := failures[name]
	f.authenticate = `Bearer realm="carstate"`
	return f
}

// retryAfter has the failures that the client has not caused, and seconds.
var retryAfter = map[string]string{"not_ready": "5", "busy": "1", "crowded": "1", "upgrading": "5", "broken": "5"}

// The failures of framing have the names of [http1.Fault].
var (
	failPath      = failures["path"]
	failMethod    = failures["method"]
	failEncoding  = failures["encoding"]
	failTwoVids   = failures["vid_twice"]
	failTwoTokens = failures["token_twice"]
	failNoVid     = failures["vid_missing"]
	failEmptyVid  = failures["vid_empty"]
	failVidSpace  = failures["vid_white_space"]
	failVidDash   = failures["vid_dash"]
	failVidShape  = failures["vid_placeholder"]
	failVidASCII  = failures["vid_not_ascii"]
	failVid       = failures["vid_form"]
	failNotReady  = failures["not_ready"]
)

var (
	failNoToken     = withoutToken("token_missing")
	failWrongPlace  = withoutToken("token_in_header")
	failEmptyToken  = failures["token_empty"]
	failSourceKey   = failures["source_key"]
	failAdminKey    = failures["admin_key"]
	failTokenID     = failures["token_id"]
	failBearer      = failures["token_bearer"]
	failTokenSpace  = failures["token_white_space"]
	failTokenLong   = failures["token_too_long"]
	failTokenForm   = failures["token_form"]
	failChecksum    = failures["token_mistyped"]
	failNotKnown    = failures["token_unknown"]
	failRevoked     = failures["token_revoked"]
	failExpired     = failures["token_expired"]
	failReplaced    = failures["token_replaced"]
	failUnread      = failures["upgrading"]
	failNoDriving   = failures["no_car_driving_state"]
	failNoThrottle  = failures["no_throttle_system"]
	failRateLimited = failures["rate_limited"] // response.tooManyCalls writes the body
)

var failScope = [noOperation]*failure{carDrivingState: failNoDriving, throttleSystem: failNoThrottle}

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

// malformed guesses what the client sent in place of a token, to say what to do.
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
		case len(token) < kind.Length() && access.IsBase62(token[len(kind):]):
			return failChecksum
		}
	}
	return failTokenForm
}
