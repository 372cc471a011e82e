package hostile

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// The contract of the query listener as a model: of any bytes it says what may be
// answered. It is written from the contract's text and RFC 9110 and 9112, and
// shares no code with the service. Where those leave a choice, it allows several.

// contract is what the model knows of the service: who may ask, and the truth
// about each car.
type contract struct {
	tokens    map[string]*token
	cars      map[string]car
	documents map[string]document
}

// token is what was agreed about an access token.
type token struct {
	secret            string
	driving, throttle bool            // the operations
	only              map[string]bool // the vehicles; nil: all
	dead              bool            // revoked, expired or replaced
}

// car is the truth about a vehicle.
type car struct {
	driving, throttle string // as the record has them; "": no answer
	notDriving        bool
	read              time.Time // when it was
}

// document is a page of the public documentation, as it was first seen.
type document struct{ plain, gzipped string }

const (
	drivingPath  = "/api/ic/if_dt_tflow_car_driving_state"
	throttlePath = "/api/ic/if_dt_amo_throttle_system"

	maxLine    = 8 << 10
	maxHead    = 16 << 10
	maxRefused = 100 // tokens of an address within a minute
)

// outcome is one answer that is allowed.
type outcome struct {
	status    int
	kind      string // the word that the message of a refusal begins with
	closes    bool
	keepAlive bool // says so aloud, as HTTP/1.0 wants it
	record    string
	reason    string    // Carstate-Reason
	read      time.Time // of the verdict; zero: there is none
	challenge string    // WWW-Authenticate
	document  *document
	refused   bool // the token counts against the caller's address
}

// expected is what may be answered to one request.
type expected struct {
	outcomes []outcome
	silence  bool // or nothing at all, and the end of the connection
	noBody   bool // HEAD
	anyBody  bool // the request line is too broken to tell whether it was HEAD
	size     int  // bytes of the stream that the request takes
}

// caller is one address and how many tokens it was refused. One goroutine at a time
// asks from an address, so this is exact.
type caller struct {
	address string
	refused int
	since   time.Time // the first refusal
}

// head is a request's head as RFC 9112 has it, read as strictly as the contract
// asks: one that could be understood in two ways is faulty.
type head struct {
	whole    bool // its end is there
	size     int  // bytes, to its end or to that of the stream
	line     int  // bytes of the request line
	readable bool // the request line is one
	faulty   bool // 400
	doubtful bool // may be taken for faulty, or not

	method, target, version string
	hosts, lengths          int
	closes, keepAlive       bool
}

var (
	// A head ends with an empty line; where lines end in LF alone it is faulty, but
	// ends too.
	headEnd     = regexp.MustCompile("\n\r?\n")
	requestLine = regexp.MustCompile("^([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([^\x00-\x20\x7f]+) (HTTP/[0-9]\\.[0-9])$")
	fieldLine   = regexp.MustCompile("^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*?)[ \t]*$")
	hostBytes   = regexp.MustCompile(`^[-._~%!$&'()*+,;=:\[\]0-9A-Za-z]+$`)
	plainHost   = regexp.MustCompile(`^(?:[-._~0-9A-Za-z]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]*)?$`)
	origin      = regexp.MustCompile(`^(?:/|\*$|[-._~0-9A-Za-z]+:[0-9]+$)`)
	absolute    = regexp.MustCompile(`^(?i:https?)://([^/?#]*)(.*)$`)
	option      = regexp.MustCompile(`[^, \t]+`)
)

// readHead reads the head that the stream begins with.
func readHead(stream []byte) *head {
	h := &head{size: len(stream)}
	if at := headEnd.FindIndex(stream); at != nil {
		h.whole, h.size = true, at[1]
	}
	text := string(stream[:h.size])
	lines := strings.Split(text, "\r\n")
	h.line = len(lines[0])
	if m := requestLine.FindStringSubmatch(lines[0]); m != nil {
		h.readable, h.method, h.target, h.version = h.whole || len(lines) > 1, m[1], m[2], m[3]
	}
	m := absolute.FindStringSubmatch(h.target)
	switch {
	case h.method == "" || !strings.HasSuffix(text, "\r\n\r\n") || len(lines) < 3:
		h.faulty = true
		return h
	case m != nil:
		h.doubtful = strings.Contains(m[1], "@")
	case !origin.MatchString(h.target):
		h.doubtful = strings.Contains(h.target, ":") // a form that no request to us has
		h.faulty = !h.doubtful
	}
	for _, line := range lines[1 : len(lines)-2] {
		h.field(line)
	}
	h.faulty = h.faulty || h.hosts > 1 || h.version == "HTTP/1.1" && h.hosts != 1 || h.version != "HTTP/1.1" && h.version != "HTTP/1.0"
	return h
}

// field reads one header line.
func (h *head) field(line string) {
	m := fieldLine.FindStringSubmatch(line)
	if m == nil {
		h.faulty = true
		return
	}
	switch value := m[2]; strings.ToLower(m[1]) {
	case "host":
		h.hosts++
		empty := value == "" && h.version == "HTTP/1.0"
		h.faulty = h.faulty || !empty && !hostBytes.MatchString(value)
		h.doubtful = h.doubtful || !plainHost.MatchString(value)
	case "transfer-encoding", "expect":
		h.faulty = true
	case "content-length":
		h.lengths++
		h.faulty = h.faulty || h.lengths > 1 || value != "0"
	case "connection":
		for _, o := range option.FindAllString(strings.ToLower(value), -1) {
			h.closes, h.keepAlive = h.closes || o == "close", h.keepAlive || o == "keep-alive"
		}
	}
}

// next says what may be answered to the first request in the stream, nil if there
// is none.
func (c *contract) next(stream []byte, by *caller) *expected {
	begin := 0
	for bytes.HasPrefix(stream[begin:], []byte("\r\n")) { // RFC 9112, 2.2
		begin += 2
	}
	if begin == len(stream) {
		return nil
	}
	h := readHead(stream[begin:])
	e := &expected{size: begin + h.size, noBody: h.readable && h.method == "HEAD", anyBody: !h.readable}
	refuse := func(status int) {
		e.outcomes = append(e.outcomes, outcome{status: status, kind: "invalid_request", closes: true})
	}
	if h.line > maxLine {
		refuse(414)
	}
	if h.size > maxHead {
		refuse(431)
		if h.line > maxHead {
			refuse(414)
		}
	}
	if len(e.outcomes) == 0 && !h.faulty {
		c.answer(h, by, e)
	}
	if h.faulty || h.doubtful {
		refuse(400)
	}
	e.silence = !h.whole // its rest never comes: the sender has said that it is done
	return e
}

// answer judges a request whose framing is sound: path, method, query, token,
// operation, vehicle, in this order.
func (c *contract) answer(h *head, by *caller, e *expected) {
	closes := h.closes || h.version == "HTTP/1.0" && !h.keepAlive
	give := func(o outcome) {
		o.closes, o.keepAlive = closes, h.version == "HTTP/1.0" && !closes
		e.outcomes = append(e.outcomes, o)
	}
	path := h.target
	if path[0] != '/' {
		if m := absolute.FindStringSubmatch(path); m == nil || m[1] == "" {
			path = ""
		} else {
			path = m[2]
		}
	}
	path, query, _ := strings.Cut(path, "?")
	page, isPage := c.documents[path]
	operation := map[string]string{drivingPath: "vehicle_runing_state", throttlePath: "throttle_system"}[path]
	switch {
	case !isPage && operation == "":
		give(outcome{status: 404, kind: "not_found"})
		return
	case h.method != "GET" && h.method != "HEAD":
		give(outcome{status: 405, kind: "method_not_allowed"})
		return
	case isPage:
		give(outcome{status: 200, document: &page})
		return
	}
	vid, secret, hasToken, sound := readQuery(query)
	t := c.tokens[secret]
	const challenge = `Bearer realm="carstate"`
	switch {
	case !sound:
		give(outcome{status: 400, kind: "invalid_request"})
	case !hasToken:
		give(outcome{status: 401, kind: "invalid_token", challenge: challenge})
	case t == nil || t.dead:
		old := by.refused > 0 && time.Since(by.since) > 50*time.Second // some may no longer count
		if by.refused < maxRefused || old {
			give(outcome{status: 401, kind: "invalid_token", refused: true, challenge: challenge + `, error="invalid_token"`})
		}
		if by.refused >= maxRefused {
			give(outcome{status: 429, kind: "rate_limited", refused: true})
		}
	case operation == "vehicle_runing_state" && !t.driving || operation == "throttle_system" && !t.throttle:
		give(outcome{status: 403, kind: "insufficient_scope", challenge: challenge + `, error="insufficient_scope"`})
	default:
		give(c.record(t, operation, vid))
	}
}

// record is the answer about a vehicle.
func (c *contract) record(t *token, operation, vid string) outcome {
	o := outcome{status: 200, reason: "unknown"}
	known := c.cars[vid]
	if t.only != nil && !t.only[vid] {
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
	o.record = fmt.Sprintf(`{"code":200,"msg":"success","data":{"vid":"%s","status":%d,"%s":"%s"}}`, vid, status, operation, value)
	return o
}

var (
	brokenEscape = regexp.MustCompile(`%(?:$|[^0-9A-Fa-f]|[0-9A-Fa-f](?:$|[^0-9A-Fa-f]))`)
	escape       = regexp.MustCompile(`%..`)
	vehicleID    = regexp.MustCompile(`^[0-9A-Za-z]+$`)
)

// readQuery reads a query string as a form. It is not sound where the contract
// answers 400.
func readQuery(query string) (vid, secret string, hasToken, sound bool) {
	given := map[string][]string{}
	decode := func(s string) string {
		return escape.ReplaceAllStringFunc(strings.ReplaceAll(s, "+", " "), func(code string) string {
			var c byte
			_, _ = fmt.Sscanf(code[1:], "%02x", &c) // it is an escape that is not broken
			return string([]byte{c})
		})
	}
	broken := brokenEscape.MatchString(query)
	if !broken {
		for pair := range strings.SplitSeq(query, "&") {
			name, value, _ := strings.Cut(pair, "=")
			given[decode(name)] = append(given[decode(name)], decode(value))
		}
	}
	vids, tokens := given["vid"], given["access_token"]
	if broken || len(vids) != 1 || len(tokens) > 1 || !vehicleID.MatchString(vids[0]) {
		return "", "", false, false
	}
	if len(tokens) == 1 {
		secret, hasToken = tokens[0], true
	}
	return vids[0], secret, hasToken, true
}
