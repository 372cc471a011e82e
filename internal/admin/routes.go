package admin

import (
	"net/http"
	"slices"
	"strings"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/admin/wire"
	"example.org/carstate/internal/ops"
)

func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	register(mux, s.probes())
	// The guard accepts this path with any Host, so it must not reach the console.
	mux.HandleFunc("/readyz/", notFound)
	if s.ops == nil {
		mux.HandleFunc("/", notFound)
		return mux
	}
	register(mux, s.calls())
	mux.HandleFunc("/v1", notFound)
	mux.HandleFunc("/v1/", notFound)
	mux.Handle("/", s.cfg.Console)
	return mux
}

func (s *Server) probes() map[string]http.Handler {
	probes := map[string]http.Handler{
		"GET /healthz": health("alive", s.cfg.Alive, func() string { return "" }),
		"GET /readyz":  health("ready", s.cfg.Ready, s.copies),
		"GET /metrics": s.showMetrics(),
	}
	for job, ready := range s.cfg.ReadyFor {
		probes["GET /readyz/"+job] = health("ready", ready, s.copies)
	}
	return probes
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

		"GET /v1/roads":         s.handle("road.list", ok, s.listRoads),
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

// register also adds, for each path, the refusal of other methods. HEAD uses the handler of GET.
func register(mux *http.ServeMux, handlers map[string]http.Handler) {
	methods := make(map[string][]string)
	for pattern, h := range handlers {
		mux.Handle(pattern, h)
		method, path, _ := strings.Cut(pattern, " ")
		methods[path] = append(methods[path], method)
	}
	for path, known := range methods {
		slices.Sort(known)
		if slices.Contains(known, http.MethodGet) {
			known = append(known, http.MethodHead)
		}
		allow := strings.Join(known, ", ")
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Allow", allow)
			writeError(w, ops.Refusalf(http.StatusMethodNotAllowed, "this path takes %s", allow))
		})
	}
}

func notFound(w http.ResponseWriter, _ *http.Request) {
	writeError(w, ops.Refusalf(http.StatusNotFound, "there is nothing at this path"))
}
