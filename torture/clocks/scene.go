package clocks

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"carstate/bench/must"
	"carstate/internal/access"
	"carstate/internal/nodeprocess"
)

// Constants of the contract that concern time.
const (
	maxAge  = 10 * time.Minute
	ahead   = 30 * time.Second // how far in the future a sample may be
	window  = time.Minute      // of a token's rate, and of the refusals of an address
	burst   = 6                // calls per window
	guesses = 100              // refusals per window
	slack   = time.Minute      // how far in the future a verdict may be before it is stale
)

// scene holds the tokens and the car of one sequence of clock jumps.
type scene struct {
	*trial
	dies      string // a token that expires
	dead      time.Time
	old       string // a secret that was replaced
	oldUntil  time.Time
	limitedBy string // a token with a rate limit
	vid       string
	heard     time.Time // time of the newest accepted sample of the car
	home      string    // the address from which secrets that expire are used
	caller    string    // an address that guesses tokens; "": none
}

func (t *trial) newScene(ctx context.Context, n int) *scene {
	s := &scene{trial: t, vid: fmt.Sprintf("CAR%dx%d", t.a.Seed%1e6, n+10),
		home: fmt.Sprintf("10.8.%d.%d", (n+10)>>8&255, (n+10)&255)}
	if n%10 == 0 {
		s.caller = fmt.Sprintf("10.9.%d.%d", n/10>>8&255, n/10&255)
	}
	c := must.Get(t.node.AdminClient())
	request := access.Request{Developer: "Ada", Operations: access.AllOperations, Vehicles: access.AllVehicles()}
	s.dead = t.now().Add(10*time.Minute + time.Duration(t.rng.Int64N(int64(72*time.Hour)))).Truncate(time.Millisecond)
	request.Expires = s.dead
	dies, err1 := c.IssueToken(ctx, request)
	request.Expires = time.Time{}
	old, err2 := c.IssueToken(ctx, request)
	request.Rate = access.Rate{Calls: burst, Window: window}
	limited, err3 := c.IssueToken(ctx, request)
	must.Do(err1, err2, err3)
	rotated := must.Get(c.RotateToken(ctx, old.ID,
		(10*time.Minute + time.Duration(t.rng.Int64N(int64(48*time.Hour)))).Truncate(time.Second)))
	s.dies, s.old, s.limitedBy = dies.AccessToken, old.AccessToken, limited.AccessToken
	s.oldUntil = rotated.EarlierUntil[0]
	return s
}

// answered is an answer, and the node's times before and after it.
type answered struct {
	nodeprocess.Answer
	date          time.Time
	retry         time.Duration
	before, after time.Time
}

// ask queries a car.
func (t *trial) ask(ctx context.Context, vid, token, caller string) (a answered, err error) {
	header := make(http.Header)
	if caller != "" {
		header.Set("X-Forwarded-For", caller)
	}
	// The times in the header have whole seconds, and the node's time is known only to within a
	// second.
	a.before = t.now().Add(-time.Second)
	a.Answer, err = t.node.AskWith(ctx, nodeprocess.DrivingPath, token, vid, header)
	a.after = t.now().Add(time.Second)
	if token == t.steady {
		t.called(a.before, a.after, err == nil && a.HTTP == http.StatusOK)
	}
	if err != nil {
		return a, err
	}
	t.queries[a.HTTP]++
	a.date, _ = http.ParseTime(a.Header.Get("Date"))
	a.retry, _ = time.ParseDuration(a.Header.Get("Retry-After") + "s")
	if a.date.Before(a.before.Add(-time.Second)) || a.date.After(a.after) {
		t.wrong("Date is off by %s", a.date.Sub(a.before))
	}
	return a, nil
}

// wrong reports a finding with the state of the clock.
func (t *trial) wrong(format string, args ...any) {
	t.a.Wrong("the clock ahead by %s: %s", t.wall, fmt.Sprintf(format, args...))
}

// post lets a car report. taken reports whether the node accepts the sample.
func (t *trial) post(ctx context.Context, vid string, at time.Time) (taken bool, status int, err error) {
	status, text, err := t.node.Post(ctx, t.source, fmt.Sprintf(`{"vid":%q,"time":%d,"signals":{"Vehicle.Speed":50}}`, vid,
		at.UnixMilli()))
	return status == http.StatusAccepted && !strings.Contains(string(text), `"accepted":0`), status, err
}

// ends queries with the secrets that expire. Each must be valid exactly until its end.
func (s *scene) ends(ctx context.Context) {
	for _, x := range []struct {
		what, token string
		end         time.Time
	}{{"token", s.dies, s.dead}, {"replaced secret", s.old, s.oldUntil}} {
		// The query is sent from the scene's own address, because any other address would
		// soon have too many refusals.
		a := must.Get(s.ask(ctx, s.vid, x.token, s.home))
		if a.HTTP == http.StatusServiceUnavailable && s.mono > 0 {
			continue // the node has lost contact with its store
		}
		s.answers[a.HTTP]++
		switch {
		case a.HTTP == http.StatusOK && !a.before.Before(x.end):
			s.wrong("a %s is valid %s after its end", x.what, a.before.Sub(x.end))
		case a.HTTP == http.StatusUnauthorized && a.after.Before(x.end):
			s.wrong("a %s is refused %s before its end", x.what, x.end.Sub(a.after))
		case a.HTTP != http.StatusOK && a.HTTP != http.StatusUnauthorized:
			s.wrong("a %s is answered %d", x.what, a.HTTP)
		}
	}
}

// report queries the car, lets it report, and queries again.
func (s *scene) report(ctx context.Context) {
	a := must.Get(s.ask(ctx, s.vid, s.steady, ""))
	if why := s.honest(a); why != "" {
		s.wrong("%s", why)
	}
	// If the car's last sample is more than slack ahead of the node's clock, the new sample
	// replaces it; otherwise, only a newer one does. If the last sample is within 5 s of that
	// limit, advance the clock so that it is certain which is the case.
	if off := s.heard.Sub(s.now()); off > slack-5*time.Second && off < slack+5*time.Second {
		s.jump(ctx, s.wall+10*time.Second, s.mono)
	}
	const far = ahead + 10*time.Second
	s.early++
	if taken, _ := must.Get2(s.post(ctx, s.vid, s.now().Add(far))); taken {
		s.wrong("a sample %s in the future is accepted", far)
	}
	at := s.now().Truncate(time.Millisecond)
	s.a.Offered(1)
	if taken, status := must.Get2(s.post(ctx, s.vid, at)); !taken {
		s.wrong("a sample of now is answered %d", status)
	} else {
		s.a.Acknowledged(1)
		if s.heard.Before(at) || s.heard.Sub(at) > slack {
			s.heard = at
		}
	}
	// The node must use the car's new sample, regardless of what the car reported while its
	// clock was wrong.
	err := nodeprocess.Until(ctx, 30*time.Second, func(ctx context.Context) error {
		a, err := s.ask(ctx, s.vid, s.steady, "")
		want := s.heard.Truncate(time.Second)
		if want.After(a.date) {
			want = a.date // Last-Modified is never later than Date
		}
		if err == nil && (a.Reason != "" || !a.Modified.Equal(want)) {
			err = fmt.Errorf("answered %d with reason %q", a.HTTP, a.Reason)
		}
		return err
	})
	if err != nil && ctx.Err() == nil {
		s.wrong("the sample of a car that reports now is not used: %v", err)
		s.heard = time.Time{}
		return
	}
	must.Do(err)
}

// honest checks that an answer is as old as it says, and is given only if it is fresh. It returns a
// description of what is wrong, or "".
func (s *scene) honest(a answered) string {
	fresh := a.HTTP == http.StatusOK && a.Reason == ""
	youngest, oldest := a.before.Sub(s.heard), a.after.Sub(s.heard)
	switch {
	case a.Modified.After(a.date):
		return "Last-Modified is after Date"
	case s.heard.IsZero():
		if fresh {
			return "a car is known that never reported"
		}
	case fresh && youngest > maxAge:
		return fmt.Sprintf("a verdict %s old is given as fresh", youngest)
	case fresh && oldest < -slack:
		return fmt.Sprintf("a verdict %s in the future is given as fresh", -oldest)
	case !fresh && youngest >= 0 && oldest <= maxAge:
		return fmt.Sprintf("a verdict %s old is not given: %d, %q", oldest, a.HTTP, a.Reason)
	case !fresh && a.Reason != "stale":
		return fmt.Sprintf("the reason for a sample %s ago is %q", oldest, a.Reason)
	case fresh && youngest >= 0 && !a.Modified.Equal(s.heard.Truncate(time.Second)):
		return "Last-Modified is not the time of the sample"
	}
	return ""
}

// exhaust sends queries until one is not answered with the given status, at most as many as
// the parameter tries. If the last answer has status 429, it must ask the caller to wait,
// for a window at most. After that wait, the caller must receive the given status again.
// Otherwise exhaust reports a finding, in which the parameter what describes the caller. It
// returns how many queries received the status, the last answer, and whether the caller
// waited and received the status again.
func (s *scene) exhaust(ctx context.Context, what, token, caller string, status, tries int) (n int, last answered,
	waited bool) {
	for ; n < tries; n++ {
		last = must.Get(s.ask(ctx, s.vid, token, caller))
		if last.HTTP != status {
			break
		}
	}
	if last.HTTP != http.StatusTooManyRequests {
		return n, last, false
	}
	if last.retry <= 0 || last.retry > window {
		s.wrong("%s must wait %s", what, last.retry)
		return n, last, false
	}
	s.jump(ctx, s.wall+last.retry+time.Second, s.mono)
	a := must.Get(s.ask(ctx, s.vid, token, caller))
	if a.HTTP != status {
		s.wrong("%s that waited as long as required is answered %d", strings.TrimSuffix(what, " over its rate"), a.HTTP)
	}
	return n, last, a.HTTP == status
}

// limited uses up the rate of a token and waits as long as the node says. Then the node must answer
// one call with the token. After a further window (the period of the rate), the node must answer as
// many calls as the rate permits.
func (s *scene) limited(ctx context.Context) {
	served, last, waited := s.exhaust(ctx, "a token over its rate", s.limitedBy, "", http.StatusOK, burst+1)
	// The rate permits one more call for each window/burst that has passed. Only the duration
	// of the last call is considered.
	if served > burst && last.after.Sub(last.before) < window/burst {
		s.wrong("%d calls were served at once, of %d", served, burst)
	}
	if !waited {
		return
	}
	s.jump(ctx, s.wall+window+time.Second, s.mono)
	for i := range burst {
		if a := must.Get(s.ask(ctx, s.vid, s.limitedBy, "")); a.HTTP != http.StatusOK {
			s.wrong("after a whole window, call %d of %d is answered %d", i+1, burst, a.HTTP)
			return
		}
	}
}

// guess sends wrong tokens from one address until the node asks the caller to wait, and waits.
func (s *scene) guess(ctx context.Context) {
	if s.caller == "" {
		return
	}
	never, _ := access.NewSecret(access.TokenKind)
	refused, last, _ := s.exhaust(ctx, "an address", never, s.caller, http.StatusUnauthorized, guesses+1)
	if last.HTTP != http.StatusTooManyRequests {
		s.wrong("guess %d of an address is answered %d", refused+1, last.HTTP)
	}
}
