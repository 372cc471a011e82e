package hostile

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

var read = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func agreed() *contract {
	return &contract{
		tokens: map[string]*token{"T": {secret: "T", driving: true, throttle: true}},
		cars:   map[string]car{"CarJam": {driving: "3", read: read}, "CarNormal": {driving: "1", read: read}},
	}
}

func answered(status, body, more string) string {
	return fmt.Sprintf("HTTP/1.1 %s\r\nDate: %s\r\nContent-Type: application/json\r\nCache-Control: private, "+
		"no-store\r\nX-Request-Id: x\r\n%sContent-Length: %d\r\n\r\n%s",
		status, read.Format(http.TimeFormat), more, len(body), body)
}

func TestCompare_DetectsWrongAnswers(t *testing.T) {
	good := "GET " + drivingPath + "?access_token=T&vid=CarJam HTTP/1.1\r\nHost: a\r\n\r\n"
	other := strings.Replace(good, "CarJam", "CarNormal", 1)
	hides := strings.Replace(good, "Host: a", "Host: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked", 1)
	head := strings.Replace(good, "GET", "HEAD", 1)
	record := func(vid, state string) string {
		return answered("200 OK",
			fmt.Sprintf(`{"code":200,"msg":"success","data":{"vid":"%s","status":1,"vehicle_runing_state":"%s"}}`, vid, state),
			"Last-Modified: "+read.Format(http.TimeFormat)+"\r\n")
	}
	jam, normal := record("CarJam", "3"), record("CarNormal", "1")
	refused := answered("400 Bad Request", `{"code":400,"msg":"invalid_request: no","data":null}`, "Connection: close\r\n")
	missing := answered("404 Not Found", `{"code":404,"msg":"not_found: /x\"<b>","data":null}`, "")
	for _, test := range []struct{ title, sent, got, says string }{
		{"as it should be", good + other, jam + normal, ""},
		{"HEAD", head, jam[:strings.Index(jam, "{")], ""},
		{"refused", hides, refused, ""},
		{"other order", good + other, normal + jam, "another record"},
		{"one answer too few", good + other, jam, "no answer came"},
		{"one too many", good, jam + jam, "without a request"},
		{"what was smuggled", hides + good, refused + jam, "after the last answer"},
		{"not refused", hides, jam, "is 200 (wanted 400)"},
		{"HEAD with a body", head, jam, "without a request"},
		{"another status", good, strings.Replace(jam, "200 OK", "500 Oops", 1), "is 500"},
		{"a message that repeats the path", strings.Replace(good, "/api", "/x", 1), missing,
			"is not the envelope of a refusal (wanted 404)"},
		{"a header more", good, strings.Replace(jam, "Date:", "X: y\r\nDate:", 1), "not in the contract"},
		{"may be kept", good, strings.Replace(jam, "private, no-store", "public, max-age=9", 1), "Cache-Control"},
		{"another verdict", good, strings.Replace(jam, `"3"`, `"1"`, 1), "another record"},
		{"breaks off", good, jam[:100], "cut off"},
		{"the end of the connection unsaid", hides, strings.Replace(refused, "Connection: close\r\n", "", 1), "Connection"},
	} {
		wrong, _ := agreed().compare(&conversation{stream: []byte(test.sent)}, exchange{got: []byte(test.got)},
			func(*answer) string { return "" })
		if (wrong == "") != (test.says == "") || !strings.Contains(wrong, test.says) {
			t.Errorf("%s: got %q, want %q", test.title, wrong, test.says)
		}
	}
}
