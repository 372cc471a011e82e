package query

import (
	"encoding/json"
	"strings"
	"time"

	"carstate/internal/access"
)

// failureDoc describes one failure in the documentation: its cause, and what the client can do. The
// documentation also shows the failure's own message.
type failureDoc struct {
	failure *failure
	name    string // the name of the example in the OpenAPI document
	cause   string
	cure    string
}

// statusDoc describes an HTTP status in the documentation, with all failures that have it.
type statusDoc struct {
	Status  int
	Title   string
	Meaning string
	Again   string // whether it helps to send the request again
	docs    []failureDoc
}

// exampleRate is the rate limit in the documentation's example of 429.
var exampleRate = access.Rate{Calls: 60, Window: time.Minute}

// statusDocs documents every failure that the service can answer with. A test checks that none in
// failure.go is missing.
var statusDocs = []statusDoc{
	{400, "Bad request", "The request itself is wrong. No further check was made.",
		"No. Correct the request first.", []failureDoc{
			{failNoVid, "vid_missing",
				"The query has no vid.",
				"Add vid=VEHICLE_ID to the query."},
			{failEmptyVid, "vid_empty",
				"The query has vid without a value, often from a variable that was not set.",
				"Put the vehicle id after vid=."},
			{failVidDash, "vid_dash",
				"The vid has a dash, like a UUID or a number plate.",
				"Send the id as it was given to you: letters and digits only."},
			{failVidShape, "vid_placeholder",
				"The placeholder of an example was sent.",
				"Replace it by a vehicle id."},
			{failVidASCII, "vid_not_ascii",
				"The vid has a letter outside ASCII, often one that only looks like a Latin letter.",
				"Type the id again, in ASCII."},
			{failVid, "vid_form",
				"The vid has a dot, a slash or another special character.",
				"Send the id as it was given to you: letters and digits only."},
			{failVidSpace, "vid_white_space",
				"The vid has a blank or a line end, often from a file. A plus sign in a query means a blank.",
				"Remove white space from the id before you send it."},
			{failTwoVids, "vid_twice",
				"The query has vid twice, so it is uncertain which one is meant.",
				"Send one request per vehicle."},
			{failTwoTokens, "token_twice",
				"The query has access_token twice.",
				"Send it once."},
			{failEncoding, "encoding",
				"A percent sign does not begin a percent-encoded byte.",
				"Let your HTTP library build the query."},
			{failBody, "body",
				"The request has a body, or announces one.",
				"Send a GET with its parameters in the query."},
			{failExpect, "expect",
				"The request has an Expect header.",
				"Turn it off in your HTTP library."},
			{failHost, "host",
				"The request has no Host header, or several.",
				"Use an HTTP/1.1 library."},
			{failVersion, "version",
				"The request has another HTTP version.",
				"Use HTTP/1.1."},
			{failHeaderName, "header_name",
				"A header's name has a blank or another character that is not allowed in names.",
				"Check the headers that you set yourself."},
			{failFolded, "header_folded",
				"A header continues on a second line.",
				"Put it on one line."},
			{failBareLine, "line_end",
				"A line of the head ends in LF alone, or has a CR inside.",
				"Check the headers that you set yourself for line ends."},
			{failMalformed, "not_http",
				"The server received something else than HTTP, such as TLS on a plain port.",
				"Check scheme and port of the base address."},
		}},
	{401, "Unauthorized", "The token is missing or invalid.",
		"No. Correct the token first.", []failureDoc{
			{failNoToken, "token_missing",
				"The query has no access_token.",
				"Add access_token=TOKEN to the query."},
			{failWrongPlace, "token_in_header",
				"The token is in an Authorization header, which this interface does not read.",
				"Send it in the query, as access_token=TOKEN."},
			{failEmptyToken, "token_empty",
				"The query has access_token without a value, often from a variable that was not set.",
				"Put the token after access_token=."},
			{failChecksum, "token_mistyped",
				"A character of the token was changed or lost.",
				"Copy the whole token again."},
			{failTokenLong, "token_too_long",
				"There is more text after the token, such as a comma or the next parameter.",
				"Send the token alone."},
			{failTokenSpace, "token_white_space",
				"The token has a blank or a line end, often from a file.",
				"Remove white space from the token before you send it."},
			{failBearer, "token_bearer",
				"The word Bearer was sent with the token.",
				"Send the token alone."},
			{failTokenForm, "token_form",
				"The text does not have the form of a token; it may be a placeholder.",
				"Send the token as it was issued to you."},
			{failTokenID, "token_id",
				"The text is the ID by which the operator knows your token.",
				"Send the token itself, which begins with cst_ or cstest_."},
			{failSourceKey, "source_key",
				"The text is the key of a car or a gateway that sends telemetry.",
				"Ask for an access token. Treat that key as leaked."},
			{failAdminKey, "admin_key",
				"The text is an operator's key.",
				"Ask for an access token. Treat that key as leaked."},
			{failNotKnown, "token_unknown",
				"No such token was issued here. It may belong to another installation.",
				"Check the base address, or ask for a token."},
			{failExpired, "token_expired",
				"The token has expired.",
				"Ask for a new one."},
			{failReplaced, "token_replaced",
				"The token was rotated, and the old secret has ended.",
				"Use the new one."},
			{failRevoked, "token_revoked",
				"The operator has revoked the token.",
				"Ask for a new one."},
		}},
	{403, "Forbidden", "The token is valid, but does not include this operation.",
		"No. Ask for the operation first.", []failureDoc{
			{failNoDriving, "no_car_driving_state",
				"The token was issued without car_driving_state.",
				"Ask for a token with that operation."},
			{failNoThrottle, "no_throttle_system",
				"The token was issued without throttle_system.",
				"Ask for a token with that operation."},
		}},
	{404, "Not found", "The service has no such path. Paths are compared exactly as sent.",
		"No. Correct the path first.", []failureDoc{
			{failPath, "path",
				"The path has an extra slash, a capital letter, a percent-encoded character or a typing error.",
				"Copy the path from this page."},
		}},
	{405, "Method not allowed", "The operations can only be read.",
		"Yes, with GET.", []failureDoc{
			{failMethod, "method",
				"The method is POST or another, or is in small letters.",
				"Use GET. The header Allow lists the allowed methods."},
		}},
	{408, "Request timeout", "The request did not arrive in time.",
		"Yes, on a new connection.", []failureDoc{
			{failSlow, "slow",
				"The head of the request took too long to arrive.",
				"Send the whole head at once."},
		}},
	{414, "URI too long", "The request line has more than 8192 bytes.",
		"No. Shorten the request first.", []failureDoc{
			{failLineSize, "line_size",
				"The vid or a parameter of your own is far too long.",
				"Send access_token and vid only."},
		}},
	{429, "Too many requests", "The calls of your token are used up, or too many invalid tokens were sent.",
		"Yes, after the seconds in Retry-After.", []failureDoc{
			{failRateLimited, "rate_limited",
				"The token's limit is reached. The message names it.",
				"Wait for the seconds in Retry-After; the header RateLimit shows in advance what is left."},
			{failRefusals, "too_many_refused",
				"A hundred tokens from your address were refused within a minute, and this one is invalid, too.",
				"Correct the token. A valid one is answered at once."},
		}},
	{431, "Request header fields too large", "The head of the request has more than 16384 bytes.",
		"No. Shorten the headers first.", []failureDoc{
			{failHeadSize, "head_size",
				"The headers are too large, often because of cookies of other services on the same host.",
				"Send fewer of them."},
		}},
	{503, "Service unavailable", "The service cannot answer at present. Your request was correct.",
		"Yes, after the seconds in Retry-After.", []failureDoc{
			{failNotReady, "not_ready",
				"The service is starting, or has had no contact with its data for too long. " +
					"SandboxUnavailable always gets this.",
				"Try again after Retry-After."},
			{failOverloaded, "overloaded",
				"Too many requests are in progress.",
				"Try again after Retry-After."},
			{failBusy, "busy",
				"More requests arrive than the service can answer. It answers those on open connections.",
				"Try again after Retry-After. Keep one connection and use it again."},
			{failCrowded, "crowded",
				"Too many connections are open.",
				"Keep one connection and use it again."},
			{failUnread, "upgrading",
				"The service is being upgraded, and this node is too old to check the token.",
				"Try again after Retry-After."},
			{failBroken, "broken",
				"The service has a bug, which it has logged.",
				"Try again after Retry-After. Give the X-Request-Id to the operator."},
		}},
}

// body returns the body of an answer with the failure.
func (d failureDoc) body() string {
	var w response
	switch d.failure {
	case failRateLimited:
		w.failOverRate(exampleRate, time.Second)
	case failRefusals:
		w.failOverRefusals(12 * time.Second)
	default:
		return d.failure.body
	}
	return string(w.body)
}

// message returns the failure's message without its first word, the name of the outcome.
func (d failureDoc) message() string {
	var envelope struct{ Msg string }
	if err := json.Unmarshal([]byte(d.body()), &envelope); err != nil {
		panic(err) // a test holds that every failure is JSON
	}
	_, text, _ := strings.Cut(envelope.Msg, ": ")
	return text
}
