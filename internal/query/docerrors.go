package query

import (
	"encoding/json"
	"strings"
	"time"

	"carstate/internal/access"
)

// failureDoc documents one failure. The documentation adds the failure's own message.
type failureDoc struct {
	failure *failure
	name    string // the name of the example in the OpenAPI document
	cause   string
	cure    string
}

// statusDoc documents a status and all failures with it.
type statusDoc struct {
	Status  int
	Title   string
	Meaning string
	Again   string // whether it helps to send the request again
	docs    []failureDoc
}

// exampleRate is the rate limit in the documentation's example of 429.
var exampleRate = access.Rate{Calls: 60, Window: time.Minute}

// statusDocs documents every failure. A test compares it with failure.go.
var statusDocs = []statusDoc{
	{400, "Bad request", "Something in the request itself is wrong. It was not looked at any further.", "No. Correct the request first.", []failureDoc{
		{failNoVid, "vid_missing", "The query has no vid.", "Add vid=VEHICLE_ID to the query."},
		{failEmptyVid, "vid_empty", "vid is there without a value, often from a variable that was not set.", "Put the vehicle id behind vid=."},
		{failVidDash, "vid_dash", "The vid has a dash, as a UUID or a number plate does.", "Send the id as it was given to you: letters and digits only."},
		{failVidShape, "vid_placeholder", "The placeholder of an example was sent.", "Put a vehicle id in its place."},
		{failVidASCII, "vid_not_ascii", "The vid has a letter outside ASCII, often one that only looks like a Latin letter.", "Type the id anew, in ASCII."},
		{failVid, "vid_form", "The vid has a dot, a slash or another sign.", "Send the id as it was given to you: letters and digits only."},
		{failVidSpace, "vid_white_space", "The vid has a blank or a line end, often from a file. A plus sign in a query means a blank.", "Strip the id before you send it."},
		{failTwoVids, "vid_twice", "vid is there twice, so it is not certain which one is meant.", "Ask about one vehicle in one call."},
		{failTwoTokens, "token_twice", "access_token is there twice.", "Send it once."},
		{failEncoding, "encoding", "A percent sign does not begin a percent-encoded byte.", "Let your HTTP library build the query."},
		{failBody, "body", "The request has a body, or announces one.", "Send a GET with its parameters in the query."},
		{failExpect, "expect", "The request has an Expect header.", "Turn it off in your HTTP library."},
		{failHost, "host", "The request has no Host header, or several.", "Use an HTTP/1.1 library."},
		{failVersion, "version", "The request is of another HTTP version.", "Use HTTP/1.1."},
		{failHeaderName, "header_name", "A header's name has a blank or another sign that names cannot have.", "Look at the headers that you set yourself."},
		{failFolded, "header_folded", "A header goes on in a second line.", "Put it on one line."},
		{failBareLine, "line_end", "A line of the head ends in LF alone, or has a CR within.", "Look for line ends in the headers that you set yourself."},
		{failMalformed, "not_http", "What arrived cannot be read as HTTP, such as TLS on a plain port.", "Check scheme and port of the base address."},
	}},
	{401, "Unauthorized", "The token is missing or does not count.", "No. Correct the token first.", []failureDoc{
		{failNoToken, "token_missing", "The query has no access_token.", "Add access_token=TOKEN to the query."},
		{failWrongPlace, "token_in_header", "The token is in an Authorization header, where this interface does not look.", "Send it in the query, as access_token=TOKEN."},
		{failEmptyToken, "token_empty", "access_token is there without a value, often from a variable that was not set.", "Put the token behind access_token=."},
		{failChecksum, "token_mistyped", "A sign of the token was changed or lost.", "Copy the whole token again."},
		{failTokenLong, "token_too_long", "Something stands behind the token, such as a comma or the next parameter.", "Send the token alone."},
		{failTokenSpace, "token_white_space", "The token has a blank or a line end, often from a file.", "Strip the token before you send it."},
		{failBearer, "token_bearer", "The word Bearer was sent with the token.", "Send the token alone."},
		{failTokenForm, "token_form", "This is something else than a token, such as a placeholder.", "Send the token as it was issued to you."},
		{failTokenID, "token_id", "This is the ID by which the operator knows your token.", "Send the token itself, which begins with cst_ or cstest_."},
		{failSourceKey, "source_key", "This key belongs to a car or a gateway that sends telemetry.", "Ask for an access token. Treat that key as leaked."},
		{failAdminKey, "admin_key", "This key belongs to the operator.", "Ask for an access token. Treat that key as leaked."},
		{failNotKnown, "token_unknown", "No such token was issued here. It may be one of another installation.", "Check the base address, or ask for a token."},
		{failExpired, "token_expired", "The token's time is over.", "Ask for a new one."},
		{failReplaced, "token_replaced", "The token was rotated, and the time of the old secret is over.", "Use the new one."},
		{failRevoked, "token_revoked", "The operator has withdrawn the token.", "Ask for a new one."},
	}},
	{403, "Forbidden", "The token counts, but not for this operation.", "No. Ask for the operation first.", []failureDoc{
		{failNoDriving, "no_car_driving_state", "The token was issued without car_driving_state.", "Ask for a token that has it."},
		{failNoThrottle, "no_throttle_system", "The token was issued without throttle_system.", "Ask for a token that has it."},
	}},
	{404, "Not found", "The path is not one of ours. It is compared as sent, sign by sign.", "No. Correct the path first.", []failureDoc{
		{failPath, "path", "The path has a slash too many, a capital, a percent-encoded sign or a typing error.", "Copy the path from this page."},
	}},
	{405, "Method not allowed", "The operations are read, and nothing can be written.", "Yes, with GET.", []failureDoc{
		{failMethod, "method", "The method is POST or another, or is in small letters.", "Use GET. The header Allow names what is allowed."},
	}},
	{408, "Request timeout", "The request did not arrive in time.", "Yes, on a new connection.", []failureDoc{
		{failSlow, "slow", "The request's head took too long to arrive.", "Send the whole head at once."},
	}},
	{414, "URI too long", "The request line has more than 8192 bytes.", "No. Shorten the request first.", []failureDoc{
		{failLineSize, "line_size", "The vid or a parameter of your own is far too long.", "Send access_token and vid only."},
	}},
	{429, "Too many requests", "You have used up the calls of your token, or tried too many tokens.", "Yes, after as many seconds as Retry-After says.", []failureDoc{
		{failRateLimited, "rate_limited", "The token's limit is reached. The message names it.", "Wait as long as Retry-After says; the header RateLimit tells in advance."},
		{failRefusals, "too_many_refused", "A hundred tokens from your address were refused within a minute, and this one does not count either.", "Correct the token. One that counts is answered at once."},
	}},
	{431, "Request header fields too large", "The request's head has more than 16384 bytes.", "No. Shorten the headers first.", []failureDoc{
		{failHeadSize, "head_size", "The headers are too large, often cookies of other services on the same host.", "Send fewer of them."},
	}},
	{503, "Service unavailable", "The service cannot answer just now. Your request was fine.", "Yes, after as many seconds as Retry-After says.", []failureDoc{
		{failNotReady, "not_ready", "The service is starting, or has lost touch with its data for too long. SandboxUnavailable always gets this.", "Try again after Retry-After."},
		{failOverloaded, "overloaded", "Too many requests are in progress.", "Try again after Retry-After."},
		{failBusy, "busy", "More is asked than the service can answer, and it goes on with the connections that are open.", "Try again after Retry-After. Keep one connection and use it again."},
		{failCrowded, "crowded", "Too many connections are open.", "Keep one connection and use it again."},
		{failUnread, "upgrading", "The service is being upgraded, and this node is too old to tell whether the token counts.", "Try again after Retry-After."},
		{failBroken, "broken", "The service has a fault, which it has logged.", "Try again after Retry-After. Tell the operator the X-Request-Id."},
	}},
}

// body returns the body of an answer with the failure.
func (d failureDoc) body() string {
	var w response
	switch d.failure {
	case failRateLimited:
		w.failRate(exampleRate, time.Second)
	case failRefusals:
		w.failRefusals(12 * time.Second)
	default:
		return d.failure.body
	}
	return string(w.body)
}

// message returns the text of the answer's msg after its first word.
func (d failureDoc) message() string {
	var envelope struct{ Msg string }
	if err := json.Unmarshal([]byte(d.body()), &envelope); err != nil {
		panic(err) // a test holds that every failure is JSON
	}
	_, text, _ := strings.Cut(envelope.Msg, ": ")
	return text
}
