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
	calls             int             // at once, with hardly any refill; 0: no limit
	dead              bool            // revoked, expired or replaced
}

// car is the truth about a vehicle.
type car struct {
	driving, throttle byte // as the record has them; 0: no answer
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
	limited   *budget // a token with a limit; what is left is told
	charged   bool    // the limit is used
	refused   bool    // the token counts against the caller's address
}

// expected is what may be answered to one request.
type expected struct {
	outcomes []outcome
	silence  bool // or nothing at all, and the end of the connection
	noBody   bool // HEAD
	anyBody  bool // the request line is too broken to tell whether it was HEAD
	size     int  // bytes of the stream that the request takes
}

// caller is one address and what it has used up. One goroutine at a time asks
// from an address, so this is exact.
type caller struct {
	address string
	refused int
	since   time.Time // the first refusal
	budgets map[*token]*budget
}

// budget is a token's limit. The refill is so slow that none is seen.
type budget struct {
	calls, used int
	since       time.Time
}

func (b *budget) left() int { return max(0, b.calls-b.used) }

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
	if h.faulty || h.doubtful && (h.line > maxLine || h.size > maxHead) {
		refuse(400)
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
	if !h.whole {
		// Its rest never comes: the sender has said that it is done.
		e.silence = true
		refuse(400)
		return e
	}
	if len(e.outcomes) == 0 {
		c.answer(h, by, e)
		if h.doubtful {
			refuse(400)
		}
	}
	return e
}

// answer judges a request whose framing is sound: path, method, query, token,
// operation, rate, vehicle, in this order.
func (c *contract) answer(h *head, by *caller, e *expected) {
	closes := h.closes || h.version == "HTTP/1.0" && !h.keepAlive
	give := func(o outcome) {
		o.closes, o.keepAlive = closes, h.version == "HTTP/1.0" && !closes
		e.outcomes = append(e.outcomes, o)
	}
	path, query := h.path()
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
	var limit *budget
	if t != nil && !t.dead && t.calls > 0 {
		limit = by.budget(t)
	}
	switch {
	case !sound:
		give(outcome{status: 400, kind: "invalid_request", limited: limit})
	case !hasToken:
		give(outcome{status: 401, kind: "invalid_token", challenge: `Bearer realm="carstate"`})
	case t == nil || t.dead:
		c.refuseToken(by, give)
	case operation == "vehicle_runing_state" && !t.driving || operation == "throttle_system" && !t.throttle:
		give(outcome{status: 403, kind: "insufficient_scope", limited: limit, challenge: `Bearer realm="carstate", error="insufficient_scope"`})
	case limit != nil && limit.left() == 0:
		give(outcome{status: 429, kind: "rate_limited", limited: limit})
	default:
		o := c.record(t, operation, vid)
		o.limited, o.charged = limit, true
		give(o)
	}
}

// refuseToken allows 401, or 429 to an address that had too many.
func (c *contract) refuseToken(by *caller, give func(outcome)) {
	old := by.refused > 0 && time.Since(by.since) > 50*time.Second // some may no longer count
	if by.refused < maxRefused || old {
		give(outcome{status: 401, kind: "invalid_token", refused: true, challenge: `Bearer realm="carstate", error="invalid_token"`})
	}
	if by.refused >= maxRefused {
		give(outcome{status: 429, kind: "rate_limited", refused: true})
	}
}

// record is the answer about a vehicle.
func (c *contract) record(t *token, operation, vid string) outcome {
	o := outcome{status: 200, reason: "unknown"}
	known, value := c.cars[vid], ""
	if t.only != nil && !t.only[vid] {
		known = car{}
	}
	if operation == "vehicle_runing_state" {
		value = "0"
		if known.notDriving {
			o.reason = "not_driving"
		}
		if known.driving != 0 {
			value, o.reason, o.read = string(known.driving), "", known.read
		}
	} else if known.throttle != 0 {
		value, o.reason, o.read = string(known.throttle), "", known.read
	}
	status := 0
	if o.reason == "" {
		status = 1
	}
	o.record = fmt.Sprintf(`{"code":200,"msg":"success","data":{"vid":"%s","status":%d,"%s":"%s"}}`, vid, status, operation, value)
	return o
}

func (by *caller) budget(t *token) *budget {
	b := by.budgets[t]
	if b == nil {
		b = &budget{calls: t.calls, since: time.Now()}
		by.budgets[t] = b
	}
	return b
}

// took notes which of the allowed answers was given.
func (by *caller) took(o *outcome) {
	if o.refused {
		if by.refused == 0 {
			by.since = time.Now()
		}
		by.refused++
	}
	if o.charged && o.limited != nil {
		o.limited.used++
	}
}

var (
	brokenEscape = regexp.MustCompile(`%(?:$|[^0-9A-Fa-f]|[0-9A-Fa-f](?:$|[^0-9A-Fa-f]))`)
	vehicleID    = regexp.MustCompile(`^[0-9A-Za-z]+$`)
)

// readQuery reads a query string as a form. It is not sound where the contract
// answers 400.
func readQuery(query string) (vid, secret string, hasToken, sound bool) {
	given := map[string][]string{}
	for pair := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(pair, "=")
		if brokenEscape.MatchString(name) {
			continue
		}
		if brokenEscape.MatchString(value) {
			value = ""
		}
		given[formDecode(name)] = append(given[formDecode(name)], formDecode(value))
	}
	vids, tokens := given["vid"], given["access_token"]
	if len(tokens) == 1 {
		secret, hasToken = tokens[0], true
	}
	if brokenEscape.MatchString(query) || len(vids) != 1 || len(tokens) > 1 || !vehicleID.MatchString(vids[0]) {
		return "", secret, hasToken, false
	}
	return vids[0], secret, hasToken, true
}

func formDecode(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '+':
			b.WriteByte(' ')
		case '%':
			var c byte
			_, _ = fmt.Sscanf(s[i+1:i+3], "%02x", &c) // the caller has seen that it is one
			b.WriteByte(c)
			i += 2
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String()
}
