package hostile

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/torture/row"
)

// contract is the contract of the query listener as a model that returns the allowed answers to any
// request bytes. It parses with net/http, and shares no code with the service.
type contract struct {
	tokens    map[string]*token
	cars      map[string]car
	documents map[string]document
}

type token struct {
	secret            string
	driving, throttle bool
	only              string // the only vehicle; "": all
	dead              bool
}

type car struct {
	driving, throttle string
	notDriving        bool
	read              time.Time
}

type document map[string]string

const (
	drivingPath  = nodeprocess.DrivingPath
	throttlePath = nodeprocess.ThrottlePath

	maxLine = 8 << 10
	maxHead = 16 << 10
)

type outcome struct {
	status     int
	kind       string
	connection string // HTTP/1.0 requires keep-alive
	record     string
	reason     string
	read       time.Time
	challenge  string
	document   document
}

type expected struct {
	outcomes []outcome
	silence  bool // no answer is also allowed
	noBody   bool
	anyBody  bool // too broken to tell whether it is HEAD
	size     int
}

var (
	// A line that ends in LF without CR is an error, but an empty one still ends the head.
	headEnd     = regexp.MustCompile("\n\r?\n")
	requestLine = regexp.MustCompile(`^([^\x00-\x20\x7f]+) ([^\x00-\x20\x7f]+) HTTP/[0-9]\.[0-9]\r\n`)
	hostLine    = regexp.MustCompile(`(?im)^host:[^\r\n]*`)
	absolute    = regexp.MustCompile(`^(?i:https?)://[^/?#]+(.*)$`)
	// net/http accepts lines that end in LF without CR, continued lines, and these bytes.
	badBytes = regexp.MustCompile("^\n|[^\r]\n|\r[^\n]|\n[ \t]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
)

// A request that net/http cannot parse must be refused; but the contract allows targets and hosts
// that net/http refuses, so they are replaced. A request that is not sound may also be refused.
func (c *contract) next(stream []byte, sound bool) *expected {
	head, whole := stream, false
	if at := headEnd.FindIndex(stream); at != nil {
		head, whole = stream[:at[1]], true
	}
	line, _, _ := bytes.Cut(head, []byte("\r\n"))
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(head)))
	target := requestLine.FindSubmatchIndex(head)
	if err != nil && target != nil && (strings.Contains(err.Error(), "parse ") ||
		strings.Contains(err.Error(), "malformed Host")) {
		plain := append(append(bytes.Clone(head[:target[4]]), '/'), head[target[5]:]...)
		r, err = http.ReadRequest(bufio.NewReader(bytes.NewReader(hostLine.ReplaceAll(plain, []byte("Host: a")))))
	}
	e := &expected{size: len(head), silence: !whole, anyBody: err != nil || target == nil, noBody: err == nil &&
		target != nil && r.Method == http.MethodHead}
	refuse := func(status int) {
		e.outcomes = append(e.outcomes, outcome{status: status, kind: "invalid_request", connection: "close"})
	}
	if len(line) > maxLine {
		refuse(414)
	}
	if len(head) > maxHead {
		refuse(431)
		if len(line) > maxHead {
			refuse(414)
		}
	}
	faulty := err != nil || !whole || badBytes.Match(head) || r.ContentLength != 0 || len(r.TransferEncoding) > 0 ||
		r.Header["Expect"] != nil || r.ProtoMajor != 1 || r.ProtoMinor > 1 || r.ProtoMinor == 1 && r.Host == ""
	if len(e.outcomes) == 0 && !faulty && target != nil {
		c.answer(r, string(head[target[4]:target[5]]), e)
	}
	if !sound {
		refuse(400)
	}
	return e
}

func (c *contract) answer(r *http.Request, path string, e *expected) {
	give := func(o outcome) {
		if r.Close {
			o.connection = "close"
		} else if r.ProtoMinor == 0 {
			o.connection = "keep-alive"
		}
		e.outcomes = append(e.outcomes, o)
	}
	if m := absolute.FindStringSubmatch(path); m != nil {
		path = m[1]
	} else if path[0] != '/' {
		path = ""
	}
	path, query, _ := strings.Cut(path, "?")
	page, isPage := c.documents[path]
	operation := map[string]string{drivingPath: "vehicle_runing_state", throttlePath: "throttle_system"}[path]
	switch {
	case !isPage && operation == "":
		give(outcome{status: 404, kind: "not_found"})
		return
	case r.Method != "GET" && r.Method != "HEAD":
		give(outcome{status: 405, kind: "method_not_allowed"})
		return
	case isPage:
		give(outcome{status: 200, document: page})
		return
	}
	given, err := url.ParseQuery(strings.ReplaceAll(query, ";", "%3B"))
	vids, tokens := given["vid"], given["access_token"]
	sound := err == nil && len(vids) == 1 && len(tokens) <= 1 && vehicleID.MatchString(vids[0])
	t := c.tokens[strings.Join(tokens, "")]
	const challenge = `Bearer realm="carstate"`
	switch {
	case !sound:
		give(outcome{status: 400, kind: "invalid_request"})
	case len(tokens) == 0:
		give(outcome{status: 401, kind: "invalid_token", challenge: challenge})
	case t == nil || t.dead:
		give(outcome{status: 401, kind: "invalid_token", challenge: challenge + `, error="invalid_token"`})
	case operation == "vehicle_runing_state" && !t.driving || operation == "throttle_system" && !t.throttle:
		give(outcome{status: 403, kind: "insufficient_scope", challenge: challenge + `, error="insufficient_scope"`})
	default:
		give(c.record(t, operation, vids[0]))
	}
}

func (c *contract) record(t *token, operation, vid string) outcome {
	o := outcome{status: 200, reason: "unknown"}
	known := c.cars[vid]
	if t.only != "" && t.only != vid {
		known = car{}
	}
	value, status := known.throttle, 0
	if operation == "vehicle_runing_state" {
		if value = known.driving; known.notDriving {
			o.reason = "not_driving"
		}
	}
	if value != "" {
		status, o.reason, o.read = 1, "", known.read
	} else if operation == "vehicle_runing_state" {
		value = "0"
	}
	o.record = fmt.Sprintf(`{"code":200,"msg":"success","data":{"vid":"%s","status":%d,"%s":"%s"}}`, vid, status,
		operation, value)
	return o
}

var vehicleID = regexp.MustCompile(`^[0-9A-Za-z]+$`)

type answer struct {
	status int
	header http.Header
	body   string
	rest   []byte
}

var (
	statusLine = regexp.MustCompile(`^HTTP/1\.1 [1-5][0-9][0-9] [A-Za-z -]+\r\n`)
	refusal    = regexp.MustCompile(`^\{"code":([0-9]+),"msg":"([a-z_]+): ([ !#-\[\]-~]+)","data":null\}$`)
)

func readAnswer(got []byte, e *expected) (*answer, error) {
	if !statusLine.Match(got) {
		return nil, errors.New("invalid status line")
	}
	request := &http.Request{Method: http.MethodGet}
	if _, after, _ := bytes.Cut(got, []byte("\r\n\r\n")); e.noBody || e.anyBody && len(after) == 0 {
		request.Method = http.MethodHead
	}
	source := bytes.NewReader(got)
	in := bufio.NewReader(source)
	resp, err := http.ReadResponse(in, request)
	if err != nil {
		return nil, fmt.Errorf("the answer is cut off or invalid: %w", err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, errors.New("the body is cut off")
	}
	if resp.ContentLength < 0 {
		return nil, errors.New("there is no Content-Length")
	}
	if resp.Close {
		resp.Header.Set("Connection", "close") // net/http removes it
	}
	for name, values := range resp.Header {
		if len(values) > 1 {
			return nil, fmt.Errorf("the header %s comes twice", name)
		}
	}
	return &answer{resp.StatusCode, resp.Header, string(body), got[len(got)-source.Len()-in.Buffered():]}, nil
}

func (o *outcome) mismatch(a *answer, noBody bool) string {
	if a.status != o.status {
		return fmt.Sprintf("is %d", a.status)
	}
	want := map[string]string{"Connection": o.connection}
	if o.document == nil {
		want["Content-Type"], want["Cache-Control"] = "application/json", "private, no-store"
		want["Www-Authenticate"], want["Carstate-Reason"] = o.challenge, o.reason
		if o.status == http.StatusMethodNotAllowed {
			want["Allow"] = "GET, HEAD"
		}
		if !o.read.IsZero() {
			want["Last-Modified"] = o.read.UTC().Format(http.TimeFormat)
		}
		for name := range a.header {
			if _, ok := want[name]; !ok && name != "Date" && name != "X-Request-Id" && name != "Content-Length" {
				return "has a header that is not in the contract: " + name
			}
		}
	}
	for name, value := range want {
		if got := a.header.Get(name); got != value {
			return fmt.Sprintf("has the header %s: %s in place of %s", name, cmp.Or(got, "nothing"), cmp.Or(value, "nothing"))
		}
	}
	date, err := http.ParseTime(a.header.Get("Date"))
	switch {
	case err != nil || o.read.After(date.Add(time.Second)):
		return "has no Date, or one before its Last-Modified"
	case a.header.Get("X-Request-Id") == "":
		return "has no X-Request-Id"
	case noBody:
		return ""
	case o.document != nil && a.body != o.document[a.header.Get("Content-Encoding")]:
		return "is not the document"
	case o.document == nil && o.status == http.StatusOK && a.body != o.record:
		return "has another record than " + o.record
	case o.status == http.StatusOK:
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

func (c *contract) compare(v *conversation, x exchange, seen func(*answer) string) (wrong string, answered int) {
	if x.err != nil {
		return x.err.Error(), 0
	}
	got := x.got
	for at := 0; ; {
		for bytes.HasPrefix(v.stream[at:], []byte("\r\n")) { // RFC 9112, 2.2
			at += 2
		}
		stream := v.stream[at:]
		if len(stream) == 0 && len(got) > 0 {
			return "an answer without a request: " + shown(got), answered
		} else if len(stream) == 0 {
			return "", answered
		}
		e := c.next(stream, v.sound[at])
		switch {
		case len(got) == 0 && (e.silence || x.reset && x.late):
			return "", answered
		case len(got) == 0 && x.reset:
			return "the connection was cut in place of an answer to " + shown(stream), answered
		case len(got) == 0:
			return "no answer came to " + shown(stream), answered
		}
		a, err := readAnswer(got, e)
		if err != nil {
			if x.reset && x.late {
				return "", answered
			}
			return fmt.Sprintf("%s: %s to %s", err, shown(got), shown(stream)), answered
		}
		o, why := e.match(a)
		if o == nil {
			return fmt.Sprintf("the answer %s: %s to %s", why, shown(got), shown(stream)), answered
		}
		if why := seen(a); why != "" {
			return why + ": " + shown(got), answered
		}
		answered++
		got = a.rest
		switch {
		case o.connection == "close" && len(got) > 0:
			return "bytes after the last answer: " + shown(got), answered
		case o.connection == "close":
			return "", answered
		}
		at += e.size
	}
}

func (e *expected) match(a *answer) (*outcome, string) {
	var wrong string
	for i := range e.outcomes {
		o := &e.outcomes[i]
		why := o.mismatch(a, e.noBody || e.anyBody && a.body == "")
		if why == "" {
			return o, ""
		}
		if wrong == "" || a.status == o.status {
			wrong = fmt.Sprintf("%s (wanted %d)", why, o.status)
		}
	}
	return nil, wrong
}

func shown(b []byte) string {
	const most = 240
	text := access.Redact(string(b))
	if len(text) > most {
		return fmt.Sprintf("%q… (%d bytes)", text[:most], len(b))
	}
	return fmt.Sprintf("%q", text)
}

// A message that repeats its input differs for nearly every request.
const (
	maxMessages = 60
	messages    = "different texts of refusals"
)

func note(all *row.Tally, a *answer) string {
	all.Add(fmt.Sprintf("answers %d", a.status), 1)
	if all.Add(a.header.Get("X-Request-Id"), 1) > 1 {
		return "two answers have one X-Request-Id"
	}
	if a.status != 200 && a.body != "" && all.Add(a.body, 1) == 1 && all.Add(messages, 1) > maxMessages {
		return "the messages are not fixed texts: they repeat what was sent"
	}
	return ""
}
