package ingest

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"example.org/carstate/internal/telemetry"
)

const formatHeader = "Carstate-Format"

type Answer struct {
	telemetry.Report // Rejected is nil, unless the answer is about lines

	Status     int           `json:"-"`
	RetryAfter time.Duration `json:"-"`
	Mapped     bool          `json:"-"` // the source has a format
	Error      string        `json:"error"`
}

type Client struct {
	Base, Key string
	http.Client
}

func NewClient(base, key string, trust *tls.Config) *Client {
	return &Client{strings.TrimSuffix(base, "/"), key, http.Client{
		Timeout:   30 * time.Second,
		Transport: &http.Transport{TLSClientConfig: trust, Proxy: http.ProxyFromEnvironment},
		// A redirect would send the key to another address.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Post sends NDJSON once. Answer.Status is 0 if no answer began.
func (c *Client) Post(ctx context.Context, lines []byte) (a Answer, _ error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.Base+telemetryPath, bytes.NewReader(lines))
	if err != nil {
		return a, errors.New("the address is not valid")
	}
	req.Header.Set("Authorization", "Bearer "+c.Key)
	req.Header.Set("Content-Type", lineTypes[0])
	resp, err := c.Do(req)
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err == nil && json.Unmarshal(text, &a) != nil {
		a = Answer{}
	}
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	a.Status, a.RetryAfter = resp.StatusCode, time.Duration(max(0, min(seconds, 300)))*time.Second
	a.Mapped = resp.Header.Get(formatHeader) != ""
	if err != nil {
		return a, fmt.Errorf("the answer ended early: %w", err)
	}
	return a, nil
}
