package matrix

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The model of the contract: who is answered what. It is written from the
// contract's words and shares no code with the service.

// operation is one of the two questions.
type operation int

const (
	driving operation = iota
	throttle
)

var operations = [...]struct{ path, name, field, nothing string }{
	driving:  {"/api/ic/if_dt_tflow_car_driving_state", "car_driving_state", "vehicle_runing_state", "0"},
	throttle: {"/api/ic/if_dt_amo_throttle_system", "throttle_system", "throttle_system", ""},
}

// verdict is what is known of a car for one operation: a value, or why there is
// none.
type verdict struct {
	value  string // "" if there is none
	reason string // unknown, stale, not_driving
}

var unknown = verdict{reason: "unknown"}

// car is a vehicle that is asked about.
type car struct {
	vid      string
	verdicts [2]verdict
	made     [2]time.Time // when the readings were made that the verdicts rest on
	// A forget has begun; it has ended. Between the two both answers are right.
	forgetting, forgotten atomic.Bool
}

// grant is what a token may do, at one time of its life.
type grant struct {
	operations [2]bool
	all        bool
	vids       map[string]bool
	revoked    bool
	// ends are the secrets that were replaced, and until when they count. A
	// secret in unsure is being replaced: it may count or not.
	ends   map[string]time.Time
	unsure string
}

// holder is a token through its life.
type holder struct {
	id      string
	expires time.Time // zero: never
	sandbox bool
	mutable bool // the changer may change it

	mu      sync.Mutex // guards what follows
	lives   []grant    // oldest first
	settled int        // the last of lives whose change was acknowledged
	secrets []string   // all that were ever handed out, the current one last
}

// begin notes a change that is about to be asked for. Whoever asks for it is
// the only one to change this token.
func (h *holder) begin(change func(*grant)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	last := h.lives[len(h.lives)-1]
	next := last
	next.vids = make(map[string]bool, len(last.vids))
	for v := range last.vids {
		next.vids[v] = true
	}
	next.ends = make(map[string]time.Time, len(last.ends))
	maps.Copy(next.ends, last.ends)
	change(&next)
	h.lives = append(h.lives, next)
}

// settle notes that the change was acknowledged.
func (h *holder) settle() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.settled = len(h.lives) - 1
}

// places are those of the last acknowledged life and of the last one begun.
func (h *holder) places() (current, newest int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.settled, len(h.lives) - 1
}

func (h *holder) life(i int) grant {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lives[i]
}

// secret is any that was handed out; pick is a random number.
func (h *holder) secret(pick int) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.secrets[pick%len(h.secrets)]
}

// want is one answer that is right.
type want struct {
	status  int
	verdict verdict   // of 200
	made    time.Time // of 200 with a value
	kind    string    // of others: how msg begins
}

// asked is a request and what was the case around it.
type asked struct {
	op             operation
	secret         string
	from           *holder // nil: a stranger's
	car            *car
	first, last    int // lives of from that may have answered
	sent, received time.Time
	forgotten      bool // the car was, before it was sent
	forgetting     bool // the car was being, before the answer was there
}

// right lists every answer that is right. There are several only where a change
// was under way or a time ran out meanwhile.
func (q *asked) right() (all []want) {
	if q.from == nil {
		return []want{{status: 401, kind: "invalid_token"}}
	}
	add := func(w want) {
		if slices.Contains(all, w) {
			return
		}
		all = append(all, w)
	}
	for i := q.first; i <= q.last; i++ {
		g := q.from.life(i)
		for _, at := range []time.Time{q.sent, q.received} {
			if !q.counts(&g, at) {
				add(want{status: 401, kind: "invalid_token"})
			}
			if q.counts(&g, at) || g.unsure != "" && g.unsure == q.secret {
				for _, w := range q.served(&g, at) {
					add(w)
				}
			}
		}
	}
	return all
}

// counts reports whether the secret counts at a time.
func (q *asked) counts(g *grant, at time.Time) bool {
	end, replaced := g.ends[q.secret]
	return !g.revoked && (g.unsure == "" || g.unsure != q.secret) &&
		(q.from.expires.IsZero() || at.Before(q.from.expires)) &&
		(!replaced || at.Before(end))
}

// served is what a token that counts is answered.
func (q *asked) served(g *grant, at time.Time) []want {
	switch {
	case !g.operations[q.op]:
		return []want{{status: 403, kind: "insufficient_scope"}}
	case q.from.sandbox:
		return []want{q.inSandbox(at)}
	case !g.all && !g.vids[q.car.vid] || q.forgotten:
		return []want{{status: 200, verdict: unknown}}
	}
	known := want{status: 200, verdict: q.car.verdicts[q.op]}
	if known.verdict.value != "" {
		known.made = q.car.made[q.op]
	}
	if q.forgetting {
		return []want{known, {status: 200, verdict: unknown}}
	}
	return []want{known}
}

// inSandbox is docs/sandbox.md.
func (q *asked) inSandbox(at time.Time) want {
	answer := func(values [2]string) want {
		return want{status: 200, verdict: verdict{value: values[q.op]}, made: at.Truncate(time.Second)}
	}
	minute := at.Unix() / 60
	switch q.car.vid {
	case "SandboxNormal", "SandboxHealthy":
		return answer([2]string{"1", "1"})
	case "SandboxSlow":
		return answer([2]string{"2", "1"})
	case "SandboxJam":
		return answer([2]string{"3", "1"})
	case "SandboxAnomaly":
		return answer([2]string{"1", "0"})
	case "SandboxCycle":
		return answer([2]string{[]string{"1", "2", "3"}[minute%3], []string{"1", "0"}[minute%2]})
	case "SandboxStale":
		return want{status: 200, verdict: verdict{reason: "stale"}}
	case "SandboxRateLimited":
		return want{status: 429, kind: "rate_limited"}
	case "SandboxUnavailable":
		return want{status: 503, kind: "unavailable"}
	}
	return want{status: 200, verdict: unknown}
}

// judge says what is wrong with an answer, "" if it is one of those that are
// right.
func (q *asked) judge(a *answer, head bool) string {
	all := q.right()
	var last string
	for i := range all {
		if last = q.differs(&all[i], a, head); last == "" {
			return ""
		}
	}
	return last
}

func (q *asked) differs(w *want, a *answer, head bool) string {
	if a.status != w.status {
		return fmt.Sprintf("answered %d, want %d", a.status, w.status)
	}
	names := []string{"Date", "Content-Type", "Cache-Control", "X-Request-Id"}
	body, begins := "", ""
	switch {
	case w.status != 200:
		begins = fmt.Sprintf(`{"code":%d,"msg":"%s: `, w.status, w.kind)
		switch w.status {
		case 401, 403:
			names = append(names, "WWW-Authenticate")
		case 429:
			names = append(names, "RateLimit-Policy", "RateLimit", "Retry-After")
		case 503:
			names = append(names, "Retry-After")
		}
	case w.verdict.value == "":
		names = append(names, "Carstate-Reason")
		body = q.body(0, operations[q.op].nothing)
	default:
		names = append(names, "Last-Modified")
		body = q.body(1, w.verdict.value)
	}
	names = append(names, "Content-Length")
	switch {
	case strings.Join(a.names, " ") != strings.Join(names, " "):
		return fmt.Sprintf("the headers are %s, want %s", strings.Join(a.names, " "), strings.Join(names, " "))
	case !head && w.status == 200 && string(a.body) != body:
		return fmt.Sprintf("the body is another than %s", body)
	case !head && !strings.HasPrefix(string(a.body), begins):
		return "the body does not begin with " + begins
	case a.header("Carstate-Reason") != w.verdict.reason:
		return fmt.Sprintf("the reason is %q, want %q", a.header("Carstate-Reason"), w.verdict.reason)
	case a.header("Cache-Control") != "private, no-store":
		return "it may be cached"
	case !w.made.IsZero():
		return q.fresh(w, a)
	}
	return ""
}

// fresh looks at Last-Modified.
func (q *asked) fresh(w *want, a *answer) string {
	made, date := a.time("Last-Modified"), a.time("Date")
	if made.After(date) {
		return "Last-Modified is after Date"
	}
	if q.from.sandbox {
		w = &want{made: date}
	}
	if !made.Equal(w.made.Truncate(time.Second)) {
		return fmt.Sprintf("Last-Modified is off by %s", made.Sub(w.made.Truncate(time.Second)))
	}
	return ""
}

func (q *asked) body(status int, value string) string {
	return fmt.Sprintf(`{"code":200,"msg":"success","data":{"vid":"%s","status":%d,"%s":"%s"}}`, q.car.vid, status, operations[q.op].field, value)
}
