package query

import (
	"bytes"
	"cmp"
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
		if status, _, ok := strings.Cut(lines[0], " "); ok {
			code := must(strconv.Atoi(status))
			all = append(all, statusDoc{code, outcomeOfStatus[code], lines[1], lines[2], nil})
			continue
		}
		s := &all[len(all)-1]
		f := &failure{name: lines[0], status: s.Status, outcome: cmp.Or(tokenOutcomes[lines[0]], s.Word),
			retryAfter: retryAfter[lines[0]], Message: lines[1], Cause: lines[2], Cure: lines[3]}
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

// tokenOutcomes has the outcomes of failures whose token is known.
var tokenOutcomes = map[string]outcome{
	"token_expired": outcome(access.Expired), "token_revoked": outcome(access.Revoked),
	"token_replaced": outcome(access.Replaced),
}

// withoutToken has no error code: RFC 6750 does not treat a missing token as an error.
func withoutToken(name string) *failure {
	f := failures[name]
	f.authenticate = `Bearer realm="carstate"`
	return f
}

// retryAfter has seconds for the failures that the client has not caused.
var retryAfter = map[string]string{"not_ready": "5", "busy": "1", "crowded": "1", "upgrading": "5", "broken": "5"}

// Failures used in several places. Each [http1.Fault] is the name of another.
var (
	failMethod      = failures["method"]
	failEncoding    = failures["encoding"]
	failNotReady    = failures["not_ready"]
	failNoToken     = withoutToken("token_missing")
	failWrongPlace  = withoutToken("token_in_header")
	failRateLimited = failures["rate_limited"] // response.tooManyCalls writes the body
)

var failScope = [...]*failure{
	access.CarDrivingState: failures["no_car_driving_state"], access.ThrottleSystem: failures["no_throttle_system"],
}

var tokenFailures = map[error]*failure{
	access.ErrExpired:  failures["token_expired"],
	access.ErrRevoked:  failures["token_revoked"],
	access.ErrReplaced: failures["token_replaced"],
	access.ErrNotKnown: failures["token_unknown"],
	access.ErrUnread:   failures["upgrading"],
	access.ErrChecksum: failures["token_mistyped"],
}

// malformed guesses what the client sent in place of a token, to say what to do.
func malformed(token []byte) *failure {
	begins := func(prefix string) bool { return bytes.HasPrefix(token, []byte(prefix)) }
	switch {
	case len(token) == 0:
		return failures["token_empty"]
	case begins("Bearer ") || begins("bearer "):
		return failures["token_bearer"]
	case bytes.ContainsAny(token, " \t\r\n"):
		return failures["token_white_space"]
	case begins(string(access.SourceKind)):
		return failures["source_key"]
	case begins(string(access.AdminKind)):
		return failures["admin_key"]
	case begins("cstid"):
		return failures["token_id"]
	}
	for _, kind := range []access.Kind{access.TokenKind, access.SandboxKind} {
		switch {
		case !begins(string(kind)):
		case len(token) > kind.Length():
			return failures["token_too_long"]
		case len(token) < kind.Length() && access.IsBase62(token[len(kind):]):
			return failures["token_mistyped"]
		}
	}
	return failures["token_form"]
}
