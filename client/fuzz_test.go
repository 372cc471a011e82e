package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"example.org/carstate/client"
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
		h := http.Header{"Last-Modified": {modified}, "Retry-After": {after}, "Carstate-Reason": {header},
			"X-Request-Id": {header}}
		c := client.New("https://cars.example", token, client.WithPatience(0),
			transport(func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: code, Header: h, Body: io.NopCloser(bytes.NewReader(body))}, nil
			}).option())
		driving, err := c.CarDrivingState(context.Background(), "Car1")
		throttle, again := c.ThrottleSystem(context.Background(), "Car1")
		if fmt.Sprint(err) != fmt.Sprint(again) {
			t.Errorf("the same answer again: got the error %v, want %v", again, err)
		}
		line := driving.String() + throttle.String()
		var refused *client.Error
		switch a := driving.Answer; {
		case errors.As(err, &refused):
			line = refused.Error() + refused.RequestID
			if refused.RetryAfter < 0 || refused.RetryAfter > 365*24*time.Hour || refused.RetryAfter%time.Second != 0 ||
				refused.Message == "" || len(refused.Unwrap()) == 0 {
				t.Errorf("the error: got %#v, want a valid one", refused)
			}
		case err != nil:
			t.Errorf("got the error %v, want a *client.Error", err)
		case !json.Valid(a.Record) || a.Age < 0 || a.VID != "Car1" || a.Status == client.Fail &&
			(driving.State != "" || throttle.System != ""):
			t.Errorf("the answers: got %+v, %+v, want valid ones", driving, throttle)
		}
		if strings.Contains(line, token) {
			t.Errorf("got the token in %q, want it nowhere", line)
		}
		if strings.ContainsAny(line, "\r\n\x1b") || !utf8.ValidString(line) || len(line) > 2000 {
			t.Errorf("got %q, want a line of 2000 bytes at most", line)
		}
	})
}
