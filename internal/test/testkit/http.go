package testkit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Get returns a trimmed response. One of any status is no error.
func Get(url string) (code int, text string, err error) {
	resp, err := http.Get(url)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, strings.TrimSpace(string(body)), err
}

func Says(url string, code int, pattern string) func() error {
	has := regexp.MustCompile(pattern)
	return func() error {
		got, text, err := Get(url)
		if err == nil && (got != code || !has.MatchString(text)) {
			err = fmt.Errorf("%s answers %d: %.200s", url, got, text)
		}
		return err
	}
}

// ErrRefused: the status is not 202 (Accepted).
var ErrRefused = errors.New("refused")

// Post sends one sample of each vehicle, and returns how many were accepted.
func Post(ingest, key string, vids []string) (int, error) {
	var body bytes.Buffer
	for _, vid := range vids {
		fmt.Fprintf(&body, `{"vid":%q,"time":%d,"signals":{"Vehicle.Speed":50,"Vehicle.OBD.ThrottlePosition":20}}`+"\n",
			vid, time.Now().UnixMilli())
	}
	return PostLines(ingest, key, body.String())
}

// PostLines returns how many samples were accepted. While folding is behind, it waits as
// Retry-After says.
func PostLines(ingest, key, lines string) (int, error) {
	for end := time.Now().Add(Patience); ; {
		status, wait, text, err := post(ingest, key, lines)
		if err != nil {
			return 0, err
		}
		if status == http.StatusTooManyRequests && time.Now().Add(wait).Before(end) {
			time.Sleep(wait)
			continue
		}
		if status != http.StatusAccepted {
			return 0, fmt.Errorf("%w: HTTP %d: %s", ErrRefused, status, text)
		}
		var answer struct {
			Accepted int `json:"accepted"`
		}
		err = json.Unmarshal(text, &answer)
		return answer.Accepted, err
	}
}

func post(ingest, key, lines string) (status int, retryAfter time.Duration, text []byte, err error) {
	req, err := http.NewRequest(http.MethodPost, ingest+"/v1/telemetry", strings.NewReader(lines))
	if err != nil {
		return 0, 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/x-ndjson")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, 0, nil, err
	}
	defer resp.Body.Close()
	text, err = io.ReadAll(resp.Body)
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	return resp.StatusCode, time.Duration(seconds) * time.Second, text, err
}
