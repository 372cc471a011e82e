package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.org/carstate/client"
	"example.org/carstate/internal/nodeprocess"
)

// TestClient_EveryAnswerAndError checks each kind of answer and of error that a developer can get.
// It queries the real service with the Go client.
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
{"vid":"faulty","time":%[1]d,"signals":{"Vehicle.Speed":50,"Vehicle.OBD.DTCList":["P0121"]}}
{"vid":"parked","time":%[1]d,"signals":{"Vehicle.LowVoltageSystemState":"OFF"}}
{"vid":"gone","time":%[2]d,"signals":{"Vehicle.Speed":50,"Vehicle.OBD.ThrottlePosition":20}}
`, now.UnixMilli(), now.Add(-6*time.Minute).UnixMilli())); err != nil || n != 4 {
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
	for vid, want := range map[string]client.ThrottleState{"moving": client.ThrottleNormal,
		"faulty": client.ThrottleAnomaly, "nobody": ""} {
		if err := until(30*time.Second, func() error {
			a, err := client.New(base, token).ThrottleSystem(t.Context(), vid)
			if err == nil && (a.System != want || a.Answered() != (want != "")) {
				err = errors.New(a.String())
			}
			return err
		}); err != nil {
			t.Errorf("%s: %v", vid, err)
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

	// The Retry-After of the service is long enough that no retry is refused again.
	perSecond := strings.TrimSpace(p.carstate(t, "token", "issue", "--developer", "Ann", "--vehicles", "all",
		"--rate", "1/s"))
	c := client.New(base, perSecond)
	begin := time.Now()
	for range 3 {
		if a, err := c.CarDrivingState(t.Context(), "moving"); err != nil || !a.Answered() {
			t.Errorf("got %v, %v, want an answer", a, err)
		}
	}
	if took := time.Since(begin); took < 2*time.Second {
		t.Errorf("three calls at one a second took %s", took)
	}

	// Many callers can share one client.
	c = client.New(base, token)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				if a, err := c.CarDrivingState(t.Context(), "moving"); err != nil || a.State != client.NormalDriving {
					t.Errorf("got %v, %v, want an answer", a, err)
				}
			}
		})
	}
	all.Wait()

	p.stop(t)
	if _, err := c.CarDrivingState(t.Context(), "moving"); !errors.Is(err, client.ErrUnreachable) ||
		!errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after the service ended: got %v, want connection refused", err)
	}
}

// TestFirstHourSample checks that the Go program of docs/first-hour.md runs against the real
// service, in a module that the test creates as the page says. Nothing is downloaded.
func TestFirstHourSample(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/first-hour.md")
	if err != nil {
		t.Fatal(err)
	}
	program := regexp.MustCompile("(?s)```go\n(.*?)```").FindSubmatch(page)
	edit := regexp.MustCompile("(?m)(^go mod edit .*\n)+").Find(page)
	root, err := filepath.Abs("../..")
	if program == nil || edit == nil || err != nil {
		t.Fatal("docs/first-hour.md has no Go program, or does not say how a module finds the client", err)
	}
	p := start(t, t.TempDir())
	token := strings.TrimSpace(p.carstate(t, "token", "issue", "--developer", "Ada", "--sandbox"))

	dir := t.TempDir()
	text := strings.ReplaceAll(string(program[1]), "http://127.0.0.1:8080", p.URL(nodeprocess.Query))
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out []byte
	for _, args := range [][]string{
		{"go", "mod", "init", "hello"},
		{"go", "mod", "edit", "-go=1.21"}, // as an older version of Go creates it
		{"sh", "-ec", strings.ReplaceAll(string(edit), "../carstate", root)},
		{"go", "run", "."},
	} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "CARSTATE_TOKEN="+token, "GOPROXY=off")
		if out, err = cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	if !regexp.MustCompile(`^traffic jam \(3\), as of \d+ (s|min) ago\n$`).Match(out) {
		t.Errorf("the program printed %q", out)
	}
}

// TestGoOnThePages checks the Go commands that our documentation shows. They must make Go use the
// version that go.mod names, regardless of the version that a user has, and find the package
// client.
func TestGoOnThePages(t *testing.T) {
	read := func(file string) string {
		t.Helper()
		text, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	minor := regexp.MustCompile(`(?m)^go ((\d+\.\d+).*)`).FindStringSubmatch(read("go.mod"))
	edit := regexp.MustCompile("(?m)^(go mod edit .*)$").FindStringSubmatch(read("docs/first-hour.md"))
	if minor == nil || edit == nil {
		t.Fatal("go.mod names no version, or docs/first-hour.md does not say how a module finds the client")
	}
	// Without the flag -go, an older Go neither runs the module nor downloads a newer version.
	if !strings.Contains(edit[1], " -go="+minor[1]+" ") {
		t.Errorf("a module is not made one of Go %s: %s", minor[1], edit[1])
	}
	page := "internal/query/docs/page.html.tmpl"
	for _, file := range []string{"docs/first-hour.md", page} {
		text := read(file)
		if !strings.Contains(text, "Go "+minor[2]) {
			t.Errorf("%s does not say that it takes Go %s", file, minor[2])
		}
		if n := strings.Count(text, "go run ."); n != strings.Count(text, "GOTOOLCHAIN=auto go run .") ||
			n == 0 && file != page {
			t.Errorf("%s: go run is there %d times, and should be with GOTOOLCHAIN=auto each time", file, n)
		}
	}
	if !strings.Contains(read(page), "<code>"+edit[1]+"</code>") {
		t.Errorf("%s does not tell how a module finds the client: %s", page, edit[1])
	}
}
