package nodeprocess

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/admin/client"
	"example.org/carstate/internal/admin/wire"
	"example.org/carstate/internal/ops"
)

var browser = &http.Client{
	Timeout:       30 * time.Second,
	Transport:     &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: 5 * time.Second},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// Until calls ask until it returns nil. At the limit, the error wraps the last one of ask.
func Until(ctx context.Context, limit time.Duration, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-time.After(25 * time.Millisecond):
		}
	}
}

func (n *Node) Ready(ctx context.Context) error {
	status, text, err := n.Get(ctx, Admin, "/readyz")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("carstate is not ready: %s", text)
	}
	return err
}

// If the process ends, the error of AwaitReady is an [EndedError].
func (n *Node) AwaitReady(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-n.ended:
			cancel(&EndedError{Code: n.cmd.ProcessState.ExitCode(), Last: n.log.lastLine()})
		case <-ctx.Done():
		}
	}()
	err := Until(ctx, limit, n.Ready)
	if err != nil && context.Cause(ctx) != nil {
		return context.Cause(ctx)
	}
	return err
}

// Get sends a GET request. A response of any status is no error.
func (n *Node) Get(ctx context.Context, listener, path string) (status int, text []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.URL(listener)+path, nil)
	if err != nil {
		return 0, nil, err
	}
	return do(req)
}

// The URL, which may contain a token, is not in the error.
func send(req *http.Request) (*http.Response, error) {
	resp, err := browser.Do(req)
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return resp, err
}

func do(req *http.Request) (status int, text []byte, err error) {
	resp, err := send(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	text, err = io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	return resp.StatusCode, text, err
}

func (n *Node) AdminClient() (*client.Client, error) {
	key, err := ops.LoadKey(n.Dir)
	if err != nil {
		return nil, err
	}
	return &client.Client{URL: n.URL(Admin), Key: key}, nil
}

func (n *Node) AddSource(ctx context.Context, name string) (string, error) {
	c, err := n.AdminClient()
	if err != nil {
		return "", err
	}
	s, err := c.AddSource(ctx, access.Credential{Name: name, Vehicles: access.AllVehicles()})
	return s.Key, err
}

func (n *Node) IssueToken(ctx context.Context, developer string) (wire.IssuedToken, error) {
	c, err := n.AdminClient()
	if err != nil {
		return wire.IssuedToken{}, err
	}
	return c.IssueToken(ctx, access.Credential{Developer: developer, Operations: access.AllOperations,
		Vehicles: access.AllVehicles()})
}

// A refusal is no error.
func (n *Node) Post(ctx context.Context, key, lines string) (status int, text []byte, err error) {
	return n.PostAs(ctx, key, "application/x-ndjson", lines)
}

func (n *Node) PostAs(ctx context.Context, key, contentType, body string) (status int, text []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, n.URL(Ingest)+"/v1/telemetry", strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", contentType)
	return do(req)
}

const (
	DrivingPath  = "/api/ic/if_dt_tflow_car_driving_state"
	ThrottlePath = "/api/ic/if_dt_amo_throttle_system"
)

type Answer struct {
	HTTP     int
	Body     string
	Status   int       // 1: there is a verdict
	Driving  string    // "1" normal, "2" slow, "3" jam; of the driving operation only
	Throttle string    // "0" anomaly, "1" normal; of the throttle operation only
	Reason   string    // why there is no verdict
	Modified time.Time // time of the sample, in whole seconds
	Header   http.Header
}

// Ask sends a query. A refusal is no error.
func (n *Node) Ask(ctx context.Context, path, token, vid string) (a Answer, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		n.URL(Query)+path+"?"+url.Values{"access_token": {token}, "vid": {vid}}.Encode(), nil)
	if err != nil {
		return a, err
	}
	resp, err := send(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return a, err
	}
	var envelope struct {
		Data struct {
			Status   int    `json:"status"`
			Driving  string `json:"vehicle_runing_state"`
			Throttle string `json:"throttle_system"`
		} `json:"data"`
	}
	if err := json.Unmarshal(text, &envelope); err != nil {
		return a, fmt.Errorf("the answer with status %d is not JSON: %w", resp.StatusCode, err)
	}
	a = Answer{
		HTTP: resp.StatusCode, Body: string(text),
		Status: envelope.Data.Status, Driving: envelope.Data.Driving, Throttle: envelope.Data.Throttle,
		Reason: resp.Header.Get("Carstate-Reason"), Header: resp.Header,
	}
	a.Modified, _ = http.ParseTime(resp.Header.Get("Last-Modified"))
	return a, nil
}

// AwaitAnswer waits for a verdict of since or later, in whole seconds.
func (n *Node) AwaitAnswer(ctx context.Context, limit time.Duration, token, vid string, since time.Time) error {
	return Until(ctx, limit, func(ctx context.Context) error {
		a, err := n.Ask(ctx, DrivingPath, token, vid)
		if err == nil && (a.HTTP != http.StatusOK || a.Status != 1 || a.Modified.Before(since.Truncate(time.Second))) {
			err = fmt.Errorf("%s is answered with %d %s (%s) of %s", vid, a.HTTP, a.Body, a.Reason,
				a.Modified.Format(time.TimeOnly))
		}
		return err
	})
}
