package admin_test

import (
	"context"
	"net/http"
	"testing"

	"example.org/carstate/internal/admin"
	"example.org/carstate/internal/test/testkit"
)

type endless struct{ closed chan struct{} }

func (e endless) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	http.NewResponseController(w).Flush()
	select {
	case <-e.closed:
	case <-r.Context().Done():
	}
}

func (e endless) Close() { close(e.closed) }

func TestConsole(t *testing.T) {
	s := start(t, func(c *admin.Config) { c.Console = endless{make(chan struct{})} })
	req, err := http.NewRequestWithContext(context.Background(), "GET", s.URL+"/", nil)
	testkit.NoError(t, err)
	resp, err := s.HTTP.Do(req) // the response ends when the server does
	testkit.NoError(t, err)
	t.Cleanup(func() { resp.Body.Close() })
	for _, path := range []string{"/v1", "/v1/", "/v1/nothing"} {
		s.want(t, "GET", path, "", http.StatusNotFound, "")
	}
}
