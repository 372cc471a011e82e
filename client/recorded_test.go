//go:build go1.26

package client_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/carstate/client"
)

// A query must escape characters of token.
const token = "cst_0123456789/+=abcdefghijklmnopqrstuvwx"

// See testdata/README.txt.
type recording struct {
	title, operation, vid string
	answer, want          string
}

var repeated = regexp.MustCompile(`\{\{(\d+) times (\w)\}\}`)

func recordings(t testing.TB) (all []*recording) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatalf("the recordings: got %v, want their names", err)
	}
	for _, file := range files {
		if filepath.Base(file) == "README.txt" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatalf("%s: got %v, want no error", file, err)
		}
		var r *recording
		for i, line := range strings.Split(string(text), "\n") {
			line = strings.ReplaceAll(line, "{{TOKEN}}", token)
			line = repeated.ReplaceAllStringFunc(line, func(s string) string {
				m := repeated.FindStringSubmatch(s)
				n, _ := strconv.Atoi(m[1])
				return strings.Repeat(m[2], n)
			})
			mark, rest, _ := strings.Cut(line, " ")
			switch mark {
			case "", "#":
			case "==":
				r = &recording{title: rest}
				all = append(all, r)
			case ">":
				r.operation, r.vid, _ = strings.Cut(rest, " ")
			case "<":
				r.answer += rest + "\r\n"
			case "=":
				r.want += rest + "\n"
			default:
				t.Fatalf("%s:%d: got %q, want a line that begins with ==, >, <, = or #", file, i+1, rest)
			}
		}
	}
	if len(all) < 40 {
		t.Fatalf("the recordings: got %d, want 40 or more", len(all))
	}
	return all
}

func (r *recording) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader("HTTP/1.1 "+r.answer)), nil)
	if err != nil {
		panic(err)
	}
	maps.Copy(w.Header(), resp.Header)
	w.WriteHeader(resp.StatusCode)
	if _, err := io.Copy(w, resp.Body); err != nil {
		panic(err)
	}
}

// answer begins with the status.
func serve(answer string) *httptest.Server {
	return httptest.NewServer(&recording{answer: answer})
}

func (r *recording) ask(t testing.TB, c *client.Client) string {
	t.Helper()
	switch r.operation {
	case "driving":
		a, err := c.CarDrivingState(t.Context(), r.vid)
		if err != nil {
			return tellError(t, err)
		}
		return tell(a.String(), a.Answer, string(a.State), a.State.Unknown())
	case "throttle":
		a, err := c.ThrottleSystem(t.Context(), r.vid)
		if err != nil {
			return tellError(t, err)
		}
		return tell(a.String(), a.Answer, string(a.System), a.System.Unknown())
	}
	t.Fatalf("the operation: got %q, want driving or throttle", r.operation)
	return ""
}

func tell(line string, a client.Answer, state string, unknown bool) string {
	s := fmt.Sprintf("%s\nstatus %q state %q reason %q as of ", line, string(a.Status), state, string(a.Reason))
	if a.AsOf.IsZero() {
		s += "never"
	} else {
		s += fmt.Sprintf("%s, %s old", a.AsOf.UTC().Format(time.RFC3339), a.Age)
	}
	if a.RequestID != "" {
		s += ", request " + a.RequestID
	}
	if unknown {
		s += ", unknown"
	}
	return s + "\n"
}

var kinds = []error{
	client.ErrBaseURL, client.ErrInvalidRequest, client.ErrInvalidToken, client.ErrInsufficientScope,
	client.ErrNotFound,
	client.ErrRateLimited, client.ErrUnavailable, client.ErrUnreachable, client.ErrBadAnswer,
}

func tellError(t testing.TB, err error) string {
	t.Helper()
	mustBeClean(t, err)
	e, ok := errors.AsType[*client.Error](err)
	if !ok {
		t.Fatalf("the error: got %v, want an *Error", err)
	}
	var s []string
	for _, k := range kinds {
		if errors.Is(err, k) {
			s = append(s, k.Error())
		}
	}
	if e.Code != 0 {
		s = append(s, fmt.Sprintf("code %d", e.Code))
	}
	if e.RetryAfter != 0 {
		s = append(s, fmt.Sprintf("wait %s", e.RetryAfter))
	}
	if e.RequestID != "" {
		s = append(s, "request "+e.RequestID)
	}
	return err.Error() + "\n" + strings.Join(s, ", ") + "\n"
}

func TestRecorded_Answers(t *testing.T) {
	for _, r := range recordings(t) {
		t.Run(r.title, func(t *testing.T) {
			service := httptest.NewServer(r)
			defer service.Close()
			if got := r.ask(t, client.New(service.URL, token)); got != r.want {
				t.Errorf("got\n%swant\n%s", got, r.want)
			}
		})
	}
}

func TestRecord_IsKeptAsSent(t *testing.T) {
	const want = `{"vid":"Car1","status":1,"vehicle_runing_state":"4","more":[1,{"a":null}]}`
	service := serve("200 OK\n\n" + `{"code":200,"msg":"success","data":` + want + `}`)
	defer service.Close()
	a, err := client.New(service.URL, token).CarDrivingState(t.Context(), "Car1")
	if err != nil || string(a.Record) != want || a.VID != "Car1" || !a.Answered() {
		t.Errorf("got %+v and error %v, want record %s", a.Answer, err, want)
	}
}

func TestRequest_AsSent(t *testing.T) {
	for _, prefix := range []string{"", "/", "/some/prefix", "/some/prefix//"} {
		var got *http.Request
		service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r }))
		defer service.Close()
		c := client.New(service.URL+prefix, token)
		for _, path := range []string{"/api/ic/if_dt_tflow_car_driving_state", "/api/ic/if_dt_amo_throttle_system"} {
			if strings.Contains(path, "tflow") {
				c.CarDrivingState(t.Context(), "a&b=c%")
			} else {
				c.ThrottleSystem(t.Context(), "a&b=c%")
			}
			want := strings.TrimRight(prefix, "/") + path +
				"?access_token=cst_0123456789%2F%2B%3Dabcdefghijklmnopqrstuvwx&vid=a%26b%3Dc%25"
			if got.Method != http.MethodGet || got.RequestURI != want || got.ContentLength != 0 {
				t.Errorf("got %s %s with %d bytes, want GET %s without a body",
					got.Method, got.RequestURI, got.ContentLength, want)
			}
			if h := got.Header; !slices.Equal(h["Cache-Control"], []string{"no-store"}) ||
				h.Get("Accept") != "application/json" || h.Get("Authorization") != "" || h.Get("Referer") != "" {
				t.Errorf("the headers: got %v, want no-store, JSON accepted, and no token or page", h)
			}
		}
	}
}
