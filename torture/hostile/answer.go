package hostile

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"time"
)

type answer struct {
	status int
	header http.Header
	body   string
	rest   []byte // bytes received after it
}

var (
	statusLine = regexp.MustCompile(`^HTTP/1\.1 [1-5][0-9][0-9] [A-Za-z -]+\r\n`)
	refusal    = regexp.MustCompile(`^\{"code":([0-9]+),"msg":"([a-z_]+): ([ !#-\[\]-~]+)","data":null\}$`)
)

// readAnswer parses one answer at the beginning of got. e says whether it has a body.
func readAnswer(got []byte, e *expected) (*answer, error) {
	if !statusLine.Match(got) {
		return nil, errors.New("invalid status line")
	}
	request := &http.Request{Method: http.MethodGet}
	if _, after, _ := bytes.Cut(got, []byte("\r\n\r\n")); e.noBody || e.anyBody && len(after) == 0 {
		request.Method = http.MethodHead
	}
	source := bytes.NewReader(got)
	in := bufio.NewReader(source)
	resp, err := http.ReadResponse(in, request)
	if err != nil {
		return nil, fmt.Errorf("the answer is cut off or invalid: %w", err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, errors.New("the body is cut off")
	}
	if resp.ContentLength < 0 {
		return nil, errors.New("there is no Content-Length")
	}
	if resp.Close {
		resp.Header.Set("Connection", "close") // net/http removes it
	}
	for name, values := range resp.Header {
		if len(values) > 1 {
			return nil, fmt.Errorf("the header %s comes twice", name)
		}
	}
	return &answer{resp.StatusCode, resp.Header, string(body), got[len(got)-source.Len()-in.Buffered():]}, nil
}

// mismatch returns how the answer differs from the allowed answer o, or "" if it matches.
func (o *outcome) mismatch(a *answer, noBody bool) string {
	if a.status != o.status {
		return fmt.Sprintf("is %d", a.status)
	}
	want := map[string]string{"Connection": map[bool]string{true: "close"}[o.closes]}
	if o.keepAlive {
		want["Connection"] = "keep-alive"
	}
	if o.document == nil {
		want["Content-Type"], want["Cache-Control"] = "application/json", "private, no-store"
		want["Www-Authenticate"], want["Carstate-Reason"] = o.challenge, o.reason
		if o.status == http.StatusMethodNotAllowed {
			want["Allow"] = "GET, HEAD"
		}
		if !o.read.IsZero() {
			want["Last-Modified"] = o.read.UTC().Format(http.TimeFormat)
		}
		if wait, err := strconv.Atoi(a.header.Get("Retry-After")); o.status == http.StatusTooManyRequests && err == nil &&
			wait > 0 {
			want["Retry-After"] = strconv.Itoa(wait)
			want["Ratelimit-Policy"], want["Ratelimit"] = fmt.Sprintf(`"refusals";q=%d;w=60`, maxRefused),
				fmt.Sprintf(`"refusals";r=0;t=%d`, wait)
		}
		for name := range a.header {
			if _, ok := want[name]; !ok && name != "Date" && name != "X-Request-Id" && name != "Content-Length" {
				return "has a header that is not in the contract: " + name
			}
		}
	}
	for name, value := range want {
		if got := a.header.Get(name); got != value {
			return fmt.Sprintf("has the header %s: %s in place of %s", name, cmp.Or(got, "nothing"), cmp.Or(value, "nothing"))
		}
	}
	date, err := http.ParseTime(a.header.Get("Date"))
	switch {
	case err != nil || o.read.After(date.Add(time.Second)):
		return "has no Date, or one before its Last-Modified"
	case a.header.Get("X-Request-Id") == "":
		return "has no X-Request-Id"
	case noBody:
		return ""
	case o.document != nil && a.header.Get("Content-Encoding") == "gzip" && a.body != o.document.gzipped,
		o.document != nil && a.header.Get("Content-Encoding") != "gzip" && a.body != o.document.plain:
		return "is not the document"
	case o.document != nil:
		return ""
	case o.status == http.StatusOK && a.body != o.record:
		return "has another record than " + o.record
	case o.status == http.StatusOK:
		return ""
	}
	m := refusal.FindStringSubmatch(a.body)
	if m == nil || !json.Valid([]byte(a.body)) {
		return "is not the envelope of a refusal"
	}
	if m[1] != strconv.Itoa(o.status) || m[2] != o.kind {
		return "is of the kind " + m[2]
	}
	return ""
}
