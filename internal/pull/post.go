package pull

import (
	"bytes"
	"context"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"example.org/carstate/internal/format"
	"example.org/carstate/internal/periodic"
)

// ofFormats are refusals of a mapping. In the service's own format no sample from here causes them.
var ofFormats = []string{format.ErrNoVID.Error(), format.ErrNoTime.Error(), format.ErrTime.Error(),
	format.ErrForm.Error(), format.ErrTable.Error()}

// post gives up only between two requests, when ctx has ended.
func (p *puller) post(ctx context.Context) error {
	for wait := time.Second; p.lines > 0; wait = min(2*wait, maxWait) {
		asked, err := p.send(context.WithoutCancel(ctx))
		if err == nil {
			break
		}
		p.delayed.Log(p.Log, "telemetry is not accepted now; will try again", "error", err)
		if err := periodic.Pause(ctx, max(wait, asked)); err != nil {
			return err
		}
	}
	p.body, p.lines = p.body[:0], 0
	return nil
}

// send posts once. Only answers about single lines are final: the page of a proxy must not commit a
// place.
func (p *puller) send(ctx context.Context) (wait time.Duration, _ error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.IngestURL, bytes.NewReader(p.body))
	if err != nil {
		return 0, errors.New("--ingest-url is not valid")
	}
	req.Header.Set("Authorization", "Bearer "+p.Key)
	req.Header.Set("Content-Type", "application/x-ndjson")
	resp, err := p.client.Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err
		}
		return 0, fmt.Errorf("the ingest listener cannot be reached: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return 0, fmt.Errorf("the answer of the ingest listener ended early: %w", err)
	}
	var answer struct {
		Accepted int    `json:"accepted"`
		Error    string `json:"error"`
		Rejected []struct {
			Reason string `json:"reason"`
		} `json:"rejected"`
		Total int `json:"rejected_total"`
	}
	status := resp.StatusCode
	if json.Unmarshal(text, &answer) == nil && answer.Rejected != nil && (status == http.StatusAccepted ||
		status == http.StatusBadRequest || status == http.StatusForbidden) {
		n := max(answer.Total, len(answer.Rejected))
		if n > 0 && answer.Accepted == 0 && slices.Contains(ofFormats, answer.Rejected[0].Reason) {
			return 0, errors.New("the source has a format of its own: give --format own to carstate source change")
		}
		if p.accepted += answer.Accepted; n > 0 {
			p.refuse(n, answer.Rejected[0].Reason)
		}
		return 0, nil
	}
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	wait = min(time.Duration(seconds)*time.Second, maxRetry)
	switch {
	case status == http.StatusUnauthorized:
		return wait, errors.New("the ingest listener refuses the key of the source: check CARSTATE_KEY")
	case answer.Error != "":
		return wait, fmt.Errorf("the ingest listener answers %d: %s", status, answer.Error)
	}
	return wait, fmt.Errorf("--ingest-url is not carstate's ingest listener: it answers %d", status)
}
