package admin

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/admin/wire"
	"example.org/carstate/internal/ops"
)

func (s *Server) probes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("/healthz", methods{"GET": health("alive", s.cfg.Alive, func() string { return "" })})
	mux.Handle("/readyz", methods{"GET": health("ready", s.cfg.Ready, s.copies)})
	for job, ready := range s.cfg.ReadyFor {
		mux.Handle("/readyz/"+job, methods{"GET": health("ready", ready, s.copies)})
	}
	// The guard accepts this path with any Host, so it must not reach the console.
	mux.HandleFunc("/readyz/", notFound)
	mux.Handle("/metrics", methods{"GET": s.showMetrics()})
	if s.ops == nil {
		mux.HandleFunc("/", notFound)
	}
	return mux
}

func (s *Server) calls() map[string]http.Handler {
	const ok, created = http.StatusOK, http.StatusCreated
	return map[string]http.Handler{
		"GET /v1/tokens": call(s, "token.list", ok, list(s, access.TokenKind, s.ops.TokenSummary,
			func(all []ops.TokenSummary) wire.TokenList { return wire.TokenList{Tokens: all} })),
		"POST /v1/tokens":               call(s, "token.issue", created, s.issueToken),
		"GET /v1/tokens/{name}":         call(s, "token.show", ok, show(s, access.TokenKind, s.ops.TokenRecord)),
		"PATCH /v1/tokens/{name}":       call(s, "token.change", ok, s.changeToken),
		"POST /v1/tokens/{name}/revoke": call(s, "token.revoke", ok, end(s, access.TokenKind, s.ops.TokenSummary)),
		"POST /v1/tokens/{name}/grant":  call(s, "token.grant", ok, s.grantToken),
		"POST /v1/tokens/{name}/rotate": call(s, "token.rotate", ok, rotate(s, access.TokenKind, s.rotatedToken)),

		"GET /v1/sources": call(s, "source.list", ok, list(s, access.SourceKind, s.ops.SourceSummary,
			func(all []ops.SourceSummary) wire.SourceList { return wire.SourceList{Sources: all} })),
		"POST /v1/sources":               call(s, "source.add", created, s.addSource),
		"GET /v1/sources/{name}":         call(s, "source.show", ok, show(s, access.SourceKind, s.ops.SourceRecord)),
		"PATCH /v1/sources/{name}":       call(s, "source.change", ok, s.changeSource),
		"DELETE /v1/sources/{name}":      call(s, "source.remove", ok, end(s, access.SourceKind, s.ops.SourceSummary)),
		"POST /v1/sources/{name}/rotate": call(s, "source.rotate", ok, rotate(s, access.SourceKind, s.rotatedSource)),

		"GET /v1/operators": call(s, "operator.list", ok, list(s, access.OperatorKind, s.ops.OperatorSummary,
			func(all []ops.OperatorSummary) wire.OperatorList { return wire.OperatorList{Operators: all} })),
		"POST /v1/operators": call(s, "operator.add", created, s.addOperator),
		"DELETE /v1/operators/{name}": call(s, "operator.remove", ok,
			end(s, access.OperatorKind, s.ops.OperatorSummary)),
		"POST /v1/operators/{name}/rotate": call(s, "operator.rotate", ok, s.rotateOperator),
		"POST /v1/admin-key/rotate":        call(s, "admin-key.rotate", ok, s.rotateAdminKey),

		"GET /v1/vehicles":                s.handle("vehicle.list", ok, listed(ops.AskedVehicles, s.ops.Vehicles, s.ops.ServeVehicles)),
		"GET /v1/vehicles/{vid}":          call(s, "vehicle.show", ok, s.showVehicle),
		"POST /v1/vehicles/{vid}/forget":  call(s, "vehicle.forget", ok, onVehicle(s.ops.Forget)),
		"POST /v1/vehicles/{vid}/allow":   call(s, "vehicle.allow", ok, onVehicle(s.ops.Allow)),
		"POST /v1/vehicles/{vid}/relearn": call(s, "vehicle.relearn", ok, onVehicle(s.ops.Relearn)),
		"POST /v1/tombstones":             call(s, "vehicle.bury", ok, s.bury),

		"GET /v1/changes": s.handle("change.list", ok, s.listChanges),

		"GET /v1/roads":         s.handle("road.list", ok, s.listRoads(s.cfg.Roads)),
		"POST /v1/roads/forget": call(s, "road.forget", ok, s.forgetRoads),

		"GET /v1/node":   call(s, "node.show", ok, s.showNode),
		"PATCH /v1/node": call(s, "node.change", ok, s.changeNode),

		"GET /v1/backup":      s.handle("backup.take", ok, s.takeBackup),
		"POST /v1/backup-key": call(s, "backup-key.show", ok, s.backupKey),
		"POST /v1/restore":    s.handle("backup.restore", ok, s.restore),

		"GET /v1/status": call(s, "status.show", ok, s.showStatus),
		"GET /v1/audit":  s.handle("audit.list", ok, listed(s.ops.AskedAudit, s.ops.Audit, s.ops.ServeAudit)),
	}
}

func (s *Server) addCalls(mux *http.ServeMux) {
	paths := make(map[string]methods)
	for call, h := range s.calls() {
		method, path, _ := strings.Cut(call, " ")
		if paths[path] == nil {
			paths[path] = make(methods)
			mux.Handle(path, paths[path])
		}
		paths[path][method] = h
	}
	mux.HandleFunc("/v1", notFound)
	mux.HandleFunc("/v1/", notFound)
	mux.Handle("/", s.cfg.Console)
}

// methods holds the handlers of one path. HEAD uses the handler of GET.
type methods map[string]http.Handler

func (m methods) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	if h, ok := m[method]; ok {
		h.ServeHTTP(w, r)
		return
	}
	allow := slices.Sorted(maps.Keys(m))
	if _, ok := m[http.MethodGet]; ok {
		allow = append(allow, http.MethodHead)
	}
	w.Header().Set("Allow", strings.Join(allow, ", "))
	writeError(w, ops.Refuse(http.StatusMethodNotAllowed, "this path takes %s", strings.Join(allow, ", ")))
}

func notFound(w http.ResponseWriter, _ *http.Request) {
	writeError(w, ops.Refuse(http.StatusNotFound, "there is nothing at this path"))
}
