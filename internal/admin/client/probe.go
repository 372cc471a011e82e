package client

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"net/http"
)

// Probe returns the first line of /healthz if live is set, and otherwise of /readyz, or an error.
// It needs no key.
func (c *Client) Probe(ctx context.Context, live bool) (line string, err error) {
	path, want := "/readyz", "ready"
	if live {
		path, want = "/healthz", "healthy"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := cmp.Or(c.HTTP, directly).Do(req)
	if err != nil {
		return "", unreachable(shown(c.URL), err)
	}
	defer resp.Body.Close()
	if s := resp.StatusCode; s != http.StatusOK && s != http.StatusServiceUnavailable {
		return "", foreign(shown(c.URL), resp)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Scan()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the node is not %s: %s", want, lines.Text())
	}
	return lines.Text(), nil
}
