package main_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.org/carstate/client"
	"example.org/carstate/internal/test/nodeprocess"
)

func TestClientsOfOtherLanguages(t *testing.T) {
	t.Parallel()
	p := start(t, t.TempDir())
	url := p.URL(nodeprocess.Query)
	token := strings.TrimSpace(p.carstate(t, "token", "issue", "--developer", "Ada", "--sandbox"))
	for name, commands := range map[string][][]string{
		"python": {{"python3", "-W", "error", "test_carstate.py"}},
		"typescript": {
			{"../../.cache/npm/node_modules/.bin/tsc", "-p", "tsconfig.test.json", "--outDir", "OUT"},
			{"cp", "package.json", "OUT"},
			{"node", "--test", "OUT/carstate.test.js"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			hostile := httptest.NewServer(&hostile{token: token})
			defer hostile.Close()
			out := t.TempDir()
			for _, args := range commands {
				for i := range args {
					args[i] = strings.Replace(args[i], "OUT", out, 1)
				}
				c := exec.CommandContext(t.Context(), args[0], args[1:]...)
				c.Dir = filepath.Join("../../clients", name)
				c.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1",
					"CARSTATE_QUERY_URL="+url, "CARSTATE_TOKEN="+token, "CARSTATE_HOSTILE="+hostile.URL)
				if text, err := c.CombinedOutput(); err != nil {
					t.Fatalf("%s: got %v, want no error (make setup installs it)\n%s", args[0], err, text)
				}
			}
		})
	}
}

// hostile responds as the first part of the path says.
type hostile struct {
	token string
	mu    sync.Mutex
	asked map[string]int
}

func (h *hostile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	kind := strings.Split(r.URL.Path, "/")[1]
	h.mu.Lock()
	if h.asked == nil {
		h.asked = make(map[string]int)
	}
	h.asked[kind]++
	times := h.asked[kind]
	h.mu.Unlock()
	answer := func(status, value string) {
		fmt.Fprintf(w, `{"code":200,"msg":"success","data":{"vid":"A","status":%s,"vehicle_runing_state":"%s"}}`, status,
			value)
	}
	switch kind {
	case "redirect":
		http.Redirect(w, r, "/third", http.StatusFound)
	case "endless":
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 4096)); err != nil {
				return
			}
		}
	case "repeats":
		w.Header().Set("X-Request-Id", h.token)
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"code":400,"msg":"invalid_request: no %s","data":null}`, h.token)
	case "third":
		if times < 3 {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		answer("1", "1")
	case "dropped":
		if times < 2 {
			panic(http.ErrAbortHandler)
		}
		answer("1", "1")
	case "port":
		answer("1", r.RemoteAddr[strings.LastIndex(r.RemoteAddr, ":")+1:])
	case "once": // in each connection
		h.mu.Lock()
		h.asked[r.RemoteAddr]++
		again := h.asked[r.RemoteAddr] > 1
		h.mu.Unlock()
		if again {
			panic(http.ErrAbortHandler)
		}
		answer("1", "1")
	case "strings":
		answer(`"1"`, "7")
	case "other":
		fmt.Fprint(w, `{"code":200,"msg":"success","data":{"vid":"B","status":1,"vehicle_runing_state":"1"}}`)
	case "list":
		fmt.Fprint(w, `[1]`)
	default:
		fmt.Fprint(w, `<html>`)
	}
}

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
		t.Fatalf("telemetry: got %d accepted, %v, want 3", n, err)
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
			t.Fatalf("%s: got %v, want %+v", want.vid, err, want)
		}
		if a.VID != want.vid || a.RequestID == "" || !strings.HasPrefix(string(a.Record), `{"vid":"`+want.vid+`",`) {
			t.Errorf("%s: got %+v, want its record and a request ID", want.vid, a.Answer)
		}
		if a.Answered() && (!a.AsOf.Equal(now) || a.Age < 0 || a.Age > time.Minute) || !a.Answered() && !a.AsOf.IsZero() {
			t.Errorf("%s: got as of %s, %s old, want %s if answered", want.vid, a.AsOf, a.Age, now)
		}
	}
	onlyThrottle := strings.TrimSpace(p.carstate(t, "token", "issue", "--developer", "Bob", "--vehicles", "all",
		"--operations", "throttle_system"))
	hourly := strings.TrimSpace(p.carstate(t, "token", "issue", "--developer", "Eve", "--vehicles", "all",
		"--rate", "1/h"))
	if _, err := ask(hourly, "moving"); err != nil {
		t.Errorf("the first query of an hour: got %v, want an answer", err)
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
			t.Errorf("%d: got %#v, want %v with a request ID", c.code, err, c.want)
			continue
		}
		if wait := e.RetryAfter; (c.code == 429) != (wait > 0) || wait > time.Hour {
			t.Errorf("%d: got the wait %s, want one, of an hour at most, with 429 alone", c.code, wait)
		}
		if c.token != "" && strings.Contains(fmt.Sprintf("%v %#v", err, err), c.token) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%d: got %v, want one line without the token", c.code, err)
		}
	}

	p.stop(t)
	if _, err := ask(token, "moving"); !errors.Is(err, client.ErrUnreachable) || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after the service ended: got %v, want connection refused", err)
	}
}
