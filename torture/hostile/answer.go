package hostile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// answer is one answer as it came.
type answer struct {
	status  int
	headers map[string]string // names in lower case
	body    string
	rest    []byte // what came after it
}

var (
	statusLine = regexp.MustCompile(`^HTTP/1\.1 ([1-5][0-9][0-9]) [A-Za-z -]+$`)
	refusal    = regexp.MustCompile(`^\{"code":([0-9]+),"msg":"([a-z_]+): ([ !#-\[\]-~]+)","data":null\}$`)
	limitLeft  = regexp.MustCompile(`^"token";r=([0-9]+);t=([0-9]+)$`)
	limitRule  = regexp.MustCompile(`^"token";q=([0-9]+);w=[0-9]+$`)
)

// known are the headers that an answer may have, and whether a document may.
var known = map[string]bool{
	"date": true, "content-type": true, "content-length": true, "cache-control": true, "x-request-id": true, "connection": true, "allow": true,
	"last-modified": false, "carstate-reason": false, "www-authenticate": false, "retry-after": false, "ratelimit": false, "ratelimit-policy": false,
}

// readAnswer takes one answer off what came, as strictly as RFC 9112 has it. e says
// whether it has a body.
func readAnswer(got []byte, e *expected) (*answer, error) {
	before, after, ok := bytes.Cut(got, []byte("\r\n\r\n"))
	if !ok {
		return nil, errors.New("the answer breaks off")
	}
	lines := strings.Split(string(before), "\r\n")
	m := statusLine.FindStringSubmatch(lines[0])
	if m == nil {
		return nil, errors.New("the status line is none")
	}
	a := &answer{headers: make(map[string]string)}
	a.status, _ = strconv.Atoi(m[1]) // three digits
	for _, line := range lines[1:] {
		name, value, ok := strings.Cut(line, ": ")
		if name = strings.ToLower(name); !ok || strings.ContainsAny(line, "\r\n\x00") {
			return nil, errors.New("a header line is none")
		}
		if _, twice := a.headers[name]; twice {
			return nil, fmt.Errorf("the header %s comes twice", name)
		}
		a.headers[name] = value
	}
	length, err := strconv.Atoi(a.headers["content-length"])
	if err != nil || length < 0 {
		return nil, errors.New("there is no Content-Length")
	}
	a.rest = after
	if e.noBody || e.anyBody && len(a.rest) == 0 {
		return a, nil
	}
	if len(a.rest) < length {
		return nil, errors.New("the body breaks off")
	}
	a.body, a.rest = string(a.rest[:length]), a.rest[length:]
	return a, nil
}

// judge says what is wrong with the answer if it is to be this outcome, "" if
// nothing is.
func (o *outcome) judge(a *answer, noBody bool) string {
	switch {
	case a.status != o.status:
		return fmt.Sprintf("is %d", a.status)
	case o.closes && a.headers["connection"] != "close":
		return "does not say that the connection ends"
	case !o.closes && o.keepAlive && a.headers["connection"] != "keep-alive":
		return "does not say that the connection goes on"
	case !o.closes && !o.keepAlive && a.headers["connection"] != "":
		return "has a Connection header"
	case o.status == 405 && a.headers["allow"] != "GET, HEAD":
		return "does not say what is allowed"
	case a.headers["x-request-id"] == "":
		return "has no X-Request-Id"
	}
	date, err := http.ParseTime(a.headers["date"])
	if err != nil {
		return "has no Date"
	}
	if o.document != nil {
		return o.judgeDocument(a, noBody)
	}
	for name := range a.headers {
		if _, ok := known[name]; !ok {
			return "has a header that the contract does not: " + name
		}
	}
	switch {
	case a.headers["content-type"] != "application/json":
		return "is not JSON by its Content-Type"
	case a.headers["cache-control"] != "private, no-store":
		return "may be kept by a cache"
	case a.headers["www-authenticate"] != o.challenge:
		return "has another challenge"
	case a.headers["carstate-reason"] != o.reason:
		return "gives the reason " + a.headers["carstate-reason"]
	}
	if wrong := o.judgeTimes(a, date); wrong != "" {
		return wrong
	}
	if wrong := o.judgeLimit(a); wrong != "" {
		return wrong
	}
	if noBody {
		return ""
	}
	return o.judgeBody(a)
}

func (o *outcome) judgeTimes(a *answer, date time.Time) string {
	modified, has := a.headers["last-modified"]
	if has != !o.read.IsZero() {
		return "has a Last-Modified and no verdict, or the other way round"
	}
	if has {
		if t, err := http.ParseTime(modified); err != nil || t.After(date) || !t.Equal(o.read.Truncate(time.Second)) {
			return "has another Last-Modified than the reading's time"
		}
	}
	return ""
}

// judgeLimit looks at what is told of the token's limit.
func (o *outcome) judgeLimit(a *answer) string {
	rule, left := a.headers["ratelimit-policy"], a.headers["ratelimit"]
	wait := a.headers["retry-after"]
	if n, err := strconv.Atoi(wait); (wait != "") != (o.status == 429) || wait != "" && (err != nil || n < 1) {
		return "has a Retry-After that does not belong there"
	}
	if o.limited == nil {
		if rule != "" || left != "" {
			return "tells a limit of a token that has none"
		}
		return ""
	}
	if rule == "" && left == "" && o.status != 200 && o.status != 429 {
		return "" // it may be told, and need not
	}
	want := o.limited.left()
	if o.charged {
		want--
	}
	q, r := limitRule.FindStringSubmatch(rule), limitLeft.FindStringSubmatch(left)
	if q == nil || r == nil || q[1] != strconv.Itoa(o.limited.calls) || r[1] != strconv.Itoa(want) {
		return fmt.Sprintf("tells the limit as %s, %s where %d are left", rule, left, want)
	}
	return ""
}

func (o *outcome) judgeBody(a *answer) string {
	if o.status == 200 {
		if a.body != o.record {
			return "has another record than " + o.record
		}
		return ""
	}
	m := refusal.FindStringSubmatch(a.body)
	if m == nil || !json.Valid([]byte(a.body)) {
		return "is not the envelope of a refusal"
	}
	if m[1] != strconv.Itoa(o.status) || m[2] != o.kind {
		return "is of the kind " + m[2]
	}
	return ""
}

func (o *outcome) judgeDocument(a *answer, noBody bool) string {
	if noBody {
		return ""
	}
	want := o.document.plain
	if a.headers["content-encoding"] == "gzip" {
		want = o.document.gzipped
	}
	if a.body != want {
		return "is not the document"
	}
	return ""
}
