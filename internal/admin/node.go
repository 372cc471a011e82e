package admin

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/admin/wire"
	"example.org/carstate/internal/ops"
)

func (s *Server) showNode(*http.Request, nothing) (wire.NodeSettings, error) {
	return s.cfg.Node.Settings(), nil
}

func (s *Server) changeNode(r *http.Request, in wire.NodeSettings) (wire.NodeSettings, error) {
	var words []string
	if in.LogLevel != "" {
		if !slices.Contains(logLevels, in.LogLevel) {
			return in, ops.Refusalf(http.StatusBadRequest, "log_level must be one of %s", strings.Join(logLevels, ", "))
		}
		words = append(words, "log level "+in.LogLevel)
	}
	if in.ReadOnly != nil {
		word := "read-only off"
		if *in.ReadOnly {
			word = "read-only on"
		}
		words = append(words, word)
	}
	if in.Version != "" || len(words) == 0 {
		return in, ops.Refusalf(http.StatusBadRequest, "give log_level, read_only, or both")
	}
	if is := s.cfg.Node.Settings(); (in.LogLevel == "" || in.LogLevel == is.LogLevel) &&
		(in.ReadOnly == nil || is.ReadOnly != nil && *in.ReadOnly == *is.ReadOnly) {
		return is, nil // nothing changes, so there is no event
	}
	e := access.Event{Action: "node.change", Object: "node", Detail: strings.Join(words, "; ")}
	err := s.ops.Audited(r.Context(), caller(r), e, func(context.Context) error {
		s.cfg.Node.Change(in)
		return nil
	})
	return s.cfg.Node.Settings(), err
}

var logLevels = []string{"debug", "info", "warn", "error"}
