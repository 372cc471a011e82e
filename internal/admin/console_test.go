package admin_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"example.org/carstate/internal/admin"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/test/testkit"
)

type endless struct{ *ops.Operations }

func (e endless) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.ServeEvents(w, r, "retry: 2000\n\n", func(bool) (string, time.Duration, bool) { return "", time.Hour, false })
}

func TestConsole(t *testing.T) {
	s := start(t, func(c *admin.Config) { c.Console = endless{c.Ops} })
	req, err := http.NewRequestWithContext(context.Background(), "GET", s.URL+"/", nil)
	testkit.NoError(t, err)
	resp, err := s.HTTP.Do(req) // the response ends when the server does
	testkit.NoError(t, err)
	t.Cleanup(func() { resp.Body.Close() })
	for _, path := range []string{"/v1", "/v1/", "/v1/nothing"} {
		s.want(t, "GET", path, "", http.StatusNotFound, "")
	}
}
