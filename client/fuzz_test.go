package client

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func FuzzParse(f *testing.F) {
	for _, body := range []string{
		`{"code":200,"msg":"success","data":{"vid":"Car1","status":1,"vehicle_runing_state":"3"}}`,
		`{"code":"200","msg":"success","data":{"vid":"Car1","status":"0","throttle_system":""}}`,
		`{"code":200,"msg":null,"data":{"status":{},"vehicle_runing_state":[1]}}`,
		`{"code":401,"msg":"invalid_token: \u001b cst_secret","data":null}`,
		`{"code":500,"msg":"invalid_token: cst_\u0000secret, cst\u200b_secret","data":null}`,
		`{"code":200,"data":{"status":"cst_secret","vehicle_runing_state":"cst_secret"}}`,
		`{"code":200,"data":{"status":1,"vehicle_runing_state":"\u0063st_secret","throttle_system":"cst_secret"}}`,
		`<html>`, ``, `null`, `{"code":200,"data":[]}`, `{"code":200,"data":{"vid":{"a":1}}}`,
	} {
		f.Add(200, []byte(body), "Fri, 20 Nov 2026 12:00:00 GMT", "30", "stale")
	}
	f.Add(503, []byte(`{"code":503,"msg":"unavailable: later","data":null}`), "", "Fri, 20 Nov 2026 12:00:00 GMT",
		"cst_secret")
	f.Fuzz(func(t *testing.T, code int, body []byte, modified, after, header string) {
		const token = "cst_secret"
		c := New("https://cars.example", token)
		h := http.Header{"Last-Modified": {modified}, "Retry-After": {after}, "Carstate-Reason": {header},
			"X-Request-Id": {header}}
		out, err := parse(&reply{code: code, header: h, body: body, at: time.Unix(1.8e9, 0), redact: c.redact}, "Car1")
		if (out == nil) == (err == nil) {
			t.Fatalf("%v and %v", out, err)
		}
		var line string
		if err != nil {
			line = err.Error() + err.RequestID
			if err.RetryAfter < 0 || err.RetryAfter > maxRetryAfter || err.RetryAfter%time.Second != 0 ||
				err.Message == "" || len(err.causes) == 0 {
				t.Errorf("invalid error: %#v", err)
			}
		} else {
			a := out.answer
			line = DrivingAnswer{a, DrivingState(out.driving)}.String() +
				ThrottleAnswer{a, ThrottleState(out.throttle)}.String()
			if !json.Valid(a.Record) || a.Age < 0 || a.VID != "Car1" || a.Status == Fail &&
				out.driving+out.throttle != "" {
				t.Errorf("invalid answer: %+v", a)
			}
		}
		if strings.Contains(line, token) {
			t.Errorf("the token is in %q", line)
		}
		if strings.ContainsAny(line, "\r\n\x1b") || !utf8.ValidString(line) || len(line) > 2000 {
			t.Errorf("not a line: %q", line)
		}
	})
}
