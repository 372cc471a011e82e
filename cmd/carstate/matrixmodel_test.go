package main_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"
)

const matrixMaxAge = time.Hour

var matrixOperations = [...]struct{ path, name, field, nothing string }{
	{drivingPath, "car_driving_state", "vehicle_runing_state", "0"},
	{throttlePath, "throttle_system", "throttle_system", ""},
}

type verdict struct{ value, reason string }

var unknownVerdict = verdict{reason: "unknown"}

type car struct {
	vid      string
	verdicts [2]verdict
	made     time.Time
	gone     bool // no token can be granted it
}

var carKinds = []struct {
	signals  string // "": it never reported
	age      time.Duration
	verdicts [2]verdict
}{
	{`"Vehicle.Speed":50,"Vehicle.OBD.ThrottlePosition":20`, 0, [2]verdict{{value: "1"}, {value: "1"}}},
	{`"Vehicle.Speed":50`, 0, [2]verdict{{value: "1"}, unknownVerdict}},
	{`"Vehicle.OBD.ThrottlePosition":20`, 0, [2]verdict{unknownVerdict, {value: "1"}}},
	{`"Vehicle.Speed":80,"Vehicle.OBD.DTCList":["P0121"]`, 0, [2]verdict{{value: "1"}, {value: "0"}}},
	{`"Vehicle.LowVoltageSystemState":"OFF"`, 0, [2]verdict{{reason: "not_driving"}, unknownVerdict}},
	{`"Vehicle.Speed":50,"Vehicle.OBD.ThrottlePosition":20`, 2 * matrixMaxAge,
		[2]verdict{{reason: "stale"}, {reason: "stale"}}},
	{"", 0, [2]verdict{unknownVerdict, unknownVerdict}},
}

type holder struct {
	id         string
	operations [2]bool
	all        bool
	vids       map[string]bool // replaced, never changed
	sandbox    bool
	revoked    bool
	expires    time.Time // zero: never
	limit      int       // calls an hour; 0: any number
	secrets    []secret  // the current one last
}

// If end is zero, it is valid as long as the token.
type secret struct {
	text string
	end  time.Time
}

type model struct {
	cars    []car
	holders []holder
}

type question struct {
	holder         int    // -1 if none was issued
	query          string // "access_token=…"
	secret         int    // of the holder's secrets
	operation, car int
	head           bool
	left           int // calls, before the request
	sent, received time.Time
	date           string
}

func (m *model) expected(q *question, at time.Time) string {
	op, c := matrixOperations[q.operation], m.cars[q.car]
	if q.holder < 0 {
		challenge := `, error="invalid_token"`
		if !strings.HasPrefix(q.query, "access_token=") {
			challenge = ""
		}
		return failed("401 Unauthorized", "invalid_token",
			"WWW-Authenticate: Bearer realm=\"carstate\""+challenge+"\r\n")
	}
	h := m.holders[q.holder]
	s := h.secrets[q.secret]
	left, limits := max(q.left-1, 0), ""
	if !h.operations[q.operation] {
		left = q.left // not counted
	}
	if h.limit > 0 {
		limits = fmt.Sprintf("RateLimit-Policy: \"token\";q=%d;w=3600\r\nRateLimit: \"token\";r=%d;t=T\r\n",
			h.limit, left)
	}
	switch {
	case h.revoked, !h.expires.IsZero() && !at.Before(h.expires), !s.end.IsZero() && !at.Before(s.end):
		return failed("401 Unauthorized", "invalid_token",
			"WWW-Authenticate: Bearer realm=\"carstate\", error=\"invalid_token\"\r\n")
	case !h.operations[q.operation]:
		return failed("403 Forbidden", "insufficient_scope",
			limits+"WWW-Authenticate: Bearer realm=\"carstate\", error=\"insufficient_scope\"\r\n")
	case h.limit > 0 && q.left == 0:
		return failed("429 Too Many Requests", "rate_limited", limits+"Retry-After: T\r\n")
	case h.sandbox:
		return m.inSandbox(q, at)
	case !h.all && !h.vids[c.vid]:
		return answered(op.field, op.nothing, 0, limits+"Carstate-Reason: unknown\r\n")
	}
	if v := c.verdicts[q.operation]; v.value == "" {
		return answered(op.field, op.nothing, 0, limits+"Carstate-Reason: "+v.reason+"\r\n")
	} else {
		return answered(op.field, v.value, 1, limits+"Last-Modified: "+c.made.UTC().Format(http.TimeFormat)+"\r\n")
	}
}

// As docs/query-api.md promises.
func (m *model) inSandbox(q *question, at time.Time) string {
	op := matrixOperations[q.operation]
	minute := at.Unix() / 60
	values := map[string][2]string{
		"SandboxNormal": {"1", "1"}, "SandboxHealthy": {"1", "1"}, "SandboxSlow": {"2", "1"},
		"SandboxJam": {"3", "1"}, "SandboxAnomaly": {"1", "0"},
		"SandboxCycle": {[]string{"1", "2", "3"}[minute%3], []string{"1", "0"}[minute%2]},
	}
	switch vid := m.cars[q.car].vid; {
	case values[vid][0] != "":
		return answered(op.field, values[vid][q.operation], 1, "Last-Modified: D\r\n")
	case vid == "SandboxRateLimited":
		return failed("429 Too Many Requests", "rate_limited",
			"RateLimit-Policy: \"token\";q=60;w=60\r\nRateLimit: \"token\";r=0;t=T\r\nRetry-After: T\r\n")
	case vid == "SandboxUnavailable":
		return failed("503 Service Unavailable", "unavailable", "Retry-After: T\r\n")
	case vid == "SandboxParked" && q.operation == 0:
		return answered(op.field, op.nothing, 0, "Carstate-Reason: not_driving\r\n")
	case vid == "SandboxParked":
		return answered(op.field, "1", 1, "Last-Modified: D\r\n")
	case vid == "SandboxStale":
		return answered(op.field, op.nothing, 0, "Carstate-Reason: stale\r\n")
	}
	return answered(op.field, op.nothing, 0, "Carstate-Reason: unknown\r\n")
}

const head = "HTTP/1.1 %s\r\nDate: D\r\nContent-Type: application/json\r\n" +
	"Cache-Control: private, no-store\r\nX-Request-Id: R\r\n%sContent-Length: L\r\n\r\n"

func answered(field, value string, status int, headers string) string {
	return fmt.Sprintf(head+`{"code":200,"msg":"success","data":{"vid":"VID","status":%d,"%s":"%s"}}`,
		"200 OK", headers, status, field, value)
}

func failed(status, kind, headers string) string {
	return fmt.Sprintf(head+`{"code":%s,"msg":"%s: …","data":null}`, status, headers, status[:3], kind)
}

var varying = []struct {
	part *regexp.Regexp
	as   string
}{
	{regexp.MustCompile(`(Retry-After: |RateLimit: "token";r=\d+;t=)[1-9]\d*\r`), "${1}T\r"},
	{regexp.MustCompile(`X-Request-Id: [0-9a-f]{32}\r`), "X-Request-Id: R\r"},
	{regexp.MustCompile(`("msg":"[a-z_]+: )[^"]+`), "${1}…"},
}

var dateHeader = regexp.MustCompile(`\r\nDate: ([^\r]+)`)

func plainly(text, vid string) string {
	for _, p := range varying {
		text = p.part.ReplaceAllString(text, p.as)
	}
	return strings.Replace(text, `"vid":"`+vid+`"`, `"vid":"VID"`, 1)
}
