package admin_test

import (
	"net/http"
	"testing"

	"example.org/carstate/internal/admin"
	"example.org/carstate/internal/admin/wire"
	"example.org/carstate/internal/ops"
)

type settings struct{ wire.NodeSettings }

func (s *settings) Settings() wire.NodeSettings { return s.NodeSettings }

func (s *settings) Change(to wire.NodeSettings) {
	if to.LogLevel != "" {
		s.LogLevel = to.LogLevel
	}
	if to.ReadOnly != nil {
		s.ReadOnly = to.ReadOnly
	}
}

func TestNodeIsChangedAndAudited(t *testing.T) {
	n := &settings{wire.NodeSettings{Version: "v1"}}
	s := startOps(t, func(*ops.Config) {}, func(c *admin.Config) { c.Node = n })
	for _, c := range []struct {
		body   string
		status int
		want   string
	}{
		{`{"log_level":"debug"}`, http.StatusOK, `{"version":"v1","log_level":"debug"}`},
		{`{"read_only":true}`, http.StatusOK, `{"version":"v1","log_level":"debug","read_only":true}`},
		{`{}`, http.StatusBadRequest, `{"error":"give log_level, read_only, or both"}`},
		{`{"version":"v2","read_only":false}`, http.StatusBadRequest, `{"error":"give log_level, read_only, or both"}`},
		{`{"log_level":"info+3"}`, http.StatusBadRequest, `{"error":"log_level must be one of debug, info, warn, error"}`},
		{`{"log_level":"loud"}`, http.StatusBadRequest, `{"error":"log_level must be one of debug, info, warn, error"}`},
	} {
		if got := s.do(t, http.MethodPatch, "/v1/node", c.body); got.status != c.status || got.body != c.want+"\n" {
			t.Errorf("PATCH %s: got %d %s, want %d %s", c.body, got.status, got.body, c.status, c.want)
		}
	}
	if got := s.do(t, http.MethodGet, "/v1/node",
		""); got.body != `{"version":"v1","log_level":"debug","read_only":true}`+"\n" {
		t.Errorf("GET /v1/node: got %s, want version v1, log level debug, read-only", got.body)
	}
	var details []string
	for _, e := range s.store.Events() {
		if e.Action == "node.change" {
			details = append(details, e.Detail)
		}
	}
	if len(details) != 2 || details[0] != "log level debug" || details[1] != "read-only on" {
		t.Errorf("the audit of node.change: got %q, want log level debug, then read-only on", details)
	}
}
