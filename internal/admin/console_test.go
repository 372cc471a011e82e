package admin_test

import (
	"context"
	"net/http"
	"testing"

	"carstate/internal/admin"
)

// endless is a console that answers until it is closed.
type endless struct{ closed chan struct{} }

func (e endless) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	http.NewResponseController(w).Flush()
	select {
	case <-e.closed:
	case <-r.Context().Done():
	}
}

func (e endless) Close() { close(e.closed) }

// TestConsole: it gets the paths that are not the API's, does deeds as the API
// does, and is closed when the server shuts down, which then need not wait for it.
func TestConsole(t *testing.T) {
	var deeds *admin.Deeds
	s := start(t, func(c *admin.Config) {
		c.Console = func(d *admin.Deeds) admin.Console {
			deeds = d
			return endless{make(chan struct{})}
		}
	})
	req, err := http.NewRequestWithContext(context.Background(), "GET", s.URL+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.HTTP.Do(req) // ends when the server does
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	for _, path := range []string{"/v1", "/v1/", "/v1/nothing"} {
		if a := s.do(t, "GET", path, ""); a.status != http.StatusNotFound {
			t.Errorf("%s: %d", path, a.status)
		}
	}
	who, hash, ok := deeds.Identify(s.Key)
	if who != "admin" || !ok || !deeds.Counts(who, hash) {
		t.Errorf("the admin key is %q's, %t", who, ok)
	}
	if _, _, ok := deeds.Identify("csa_x"); ok {
		t.Error("a wrong key is somebody's")
	}
	_, err = deeds.RevokeToken(t.Context(), "ada", "nobody")
	if status, ok := err.(interface{ Status() int }); !ok || status.Status() != http.StatusNotFound {
		t.Errorf("a token that is not there: %v", err)
	}
	if _, err := deeds.Forget(t.Context(), "ada", "carA"); err == nil {
		t.Error("a vehicle was forgotten where that is not offered")
	}
}
