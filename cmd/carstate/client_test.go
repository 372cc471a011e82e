package main_test

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/carstate/client"
	"example.org/carstate/internal/nodeprocess"
)

func TestClient_EveryAnswerAndError(t *testing.T) {
	t.Parallel()
	p := start(t, t.TempDir())
	token, key := p.issue(t), p.addSource(t, "gateway")
	base := p.URL(nodeprocess.Query)
	ask := func(token, vid string) (client.DrivingAnswer, error) {
		return client.New(base, token).CarDrivingState(t.Context(), vid)
	}
	now := time.Now().Truncate(time.Second)
	if n, err := postLines(p, key, fmt.Sprintf(
		`{"vid":"moving","time":%[1]d,"signals":{"Vehicle.Speed":50,"Vehicle.OBD.ThrottlePosition":20}}
{"vid":"parked","time":%[1]d,"signals":{"Vehicle.LowVoltageSystemState":"OFF"}}
{"vid":"gone","time":%[2]d,"signals":{"Vehicle.Speed":50,"Vehicle.OBD.ThrottlePosition":20}}
`, now.UnixMilli(), now.Add(-6*time.Minute).UnixMilli())); err != nil || n != 3 {
		t.Fatalf("%d accepted, %v", n, err)
	}

	for _, want := range []struct {
		vid    string
		status client.Status
		state  client.DrivingState
		reason client.Reason
	}{
		{"moving", client.Succeed, client.NormalDriving, ""},
		{"parked", client.Fail, "", client.ReasonNotDriving},
		{"gone", client.Fail, "", client.ReasonStale},
		{"nobody", client.Fail, "", client.ReasonUnknown},
	} {
		var a client.DrivingAnswer
		if err := until(30*time.Second, func() (err error) {
			a, err = ask(token, want.vid)
			if err == nil && (a.Status != want.status || a.State != want.state || a.Reason != want.reason) {
				err = errors.New(a.String())
			}
			return err
		}); err != nil {
			t.Fatalf("%s: %v", want.vid, err)
		}
		if a.VID != want.vid || a.RequestID == "" || !strings.HasPrefix(string(a.Record), `{"vid":"`+want.vid+`",`) {
			t.Errorf("%s: the record or request ID is wrong: %+v", want.vid, a.Answer)
		}
		if a.Answered() && (!a.AsOf.Equal(now) || a.Age < 0 || a.Age > time.Minute) || !a.Answered() && !a.AsOf.IsZero() {
			t.Errorf("%s: as of %s, %s old, want %s", want.vid, a.AsOf, a.Age, now)
		}
	}
	onlyThrottle := strings.TrimSpace(p.carstate(t, "token", "issue", "--developer", "Bob", "--vehicles", "all",
		"--operations", "throttle_system"))
	hourly := strings.TrimSpace(p.carstate(t, "token", "issue", "--developer", "Eve", "--vehicles", "all",
		"--rate", "1/h"))
	if _, err := ask(hourly, "moving"); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		token, vid string
		want       error
		code       int
	}{
		{token, "with-dash", client.ErrInvalidRequest, 400},
		{token, "", client.ErrInvalidRequest, 400},
		{token, strings.Repeat("a", 9000), client.ErrInvalidRequest, 414},
		{"", "moving", client.ErrInvalidToken, 401},
		{token[:20], "moving", client.ErrInvalidToken, 401},
		{key, "moving", client.ErrInvalidToken, 401},
		{onlyThrottle, "moving", client.ErrInsufficientScope, 403},
		{hourly, "moving", client.ErrRateLimited, 429},
	} {
		_, err := ask(c.token, c.vid)
		e, ok := errors.AsType[*client.Error](err)
		if !ok || !errors.Is(err, c.want) || e.Code != c.code || e.RequestID == "" {
			t.Errorf("%d: %#v", c.code, err)
			continue
		}
		if wait := e.RetryAfter; (c.code == 429) != (wait > 0) || wait > time.Hour {
			t.Errorf("%d: wait %s", c.code, wait)
		}
		if c.token != "" && strings.Contains(fmt.Sprintf("%v %#v", err, err), c.token) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%d: the error has the token or a second line: %v", c.code, err)
		}
	}

	p.stop(t)
	if _, err := ask(token, "moving"); !errors.Is(err, client.ErrUnreachable) ||
		!errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after the service ended: got %v, want connection refused", err)
	}
}
