package admin

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"carstate/internal/access"
	"carstate/internal/admin/wire"
	"carstate/internal/ops"
)

// probes returns a handler with the paths of every admin listener: health, readiness and metrics.
// If the listener has no API, all other paths are not found. The handler never redirects a request
// to a clean path, because [Server.guard] refuses paths that are not clean.
func (s *Server) probes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("/healthz", methods{"GET": health("alive", s.cfg.Alive, addNothing)})
	mux.Handle("/readyz", methods{"GET": health("ready", s.cfg.Ready, s.copies)})
	for job, ready := range s.cfg.ReadyFor {
		mux.Handle("/readyz/"+job, methods{"GET": health("ready", ready, s.copies)})
	}
	// An unknown path below /readyz/ must not reach the console, because the guard accepts it with
	// any Host.
	mux.HandleFunc("/readyz/", notFound)
	if s.cfg.Gatherer != nil {
		mux.Handle("/metrics", methods{"GET": s.showMetrics()})
	}
	if s.ops == nil {
		mux.HandleFunc("/", notFound)
	}
	return mux
}

// addCalls adds the calls of the API to mux. All other paths lead to the console. If the console is
// nil, the other paths are not found.
func (s *Server) addCalls(mux *http.ServeMux) {
	mux.Handle("/v1/tokens", methods{
		"GET": call(s, "token.list", http.StatusOK, list(s, access.TokenKind, s.ops.TokenSummary,
			func(all []ops.TokenSummary) wire.TokenList { return wire.TokenList{Tokens: all} })),
		"POST": call(s, "token.issue", http.StatusCreated, s.issueToken),
	})
	mux.Handle("/v1/tokens/{name}", methods{
		"GET":   call(s, "token.show", http.StatusOK, show(s, access.TokenKind, s.ops.TokenRecord)),
		"PATCH": call(s, "token.change", http.StatusOK, s.changeToken),
	})
	mux.Handle("/v1/tokens/{name}/revoke", methods{
		"POST": call(s, "token.revoke", http.StatusOK, end(s, access.TokenKind, s.ops.TokenSummary)),
	})
	mux.Handle("/v1/tokens/{name}/grant", methods{"POST": call(s, "token.grant", http.StatusOK, s.grantToken)})
	mux.Handle("/v1/tokens/{name}/rotate", methods{
		"POST": call(s, "token.rotate", http.StatusOK, rotate(s, access.TokenKind, s.rotatedToken)),
	})

	mux.Handle("/v1/sources", methods{
		"GET": call(s, "source.list", http.StatusOK, list(s, access.SourceKind, s.ops.SourceSummary,
			func(all []ops.SourceSummary) wire.SourceList { return wire.SourceList{Sources: all} })),
		"POST": call(s, "source.add", http.StatusCreated, s.addSource),
	})
	mux.Handle("/v1/sources/{name}", methods{
		"GET":    call(s, "source.show", http.StatusOK, show(s, access.SourceKind, s.ops.SourceRecord)),
		"PATCH":  call(s, "source.change", http.StatusOK, s.changeSource),
		"DELETE": call(s, "source.remove", http.StatusOK, end(s, access.SourceKind, s.ops.SourceSummary)),
	})
	mux.Handle("/v1/sources/{name}/rotate", methods{
		"POST": call(s, "source.rotate", http.StatusOK, rotate(s, access.SourceKind, s.rotatedSource)),
	})

	mux.Handle("/v1/operators", methods{
		"GET": call(s, "operator.list", http.StatusOK, list(s, access.OperatorKind, s.ops.OperatorSummary,
			func(all []ops.OperatorSummary) wire.OperatorList { return wire.OperatorList{Operators: all} })),
		"POST": call(s, "operator.add", http.StatusCreated, s.addOperator),
	})
	mux.Handle("/v1/operators/{name}", methods{
		"DELETE": call(s, "operator.remove", http.StatusOK,
			end(s, access.OperatorKind, s.ops.OperatorSummary)),
	})
	mux.Handle("/v1/operators/{name}/rotate", methods{
		"POST": call(s, "operator.rotate", http.StatusOK, s.rotateOperator),
	})
	mux.Handle("/v1/admin-key/rotate", methods{"POST": call(s, "admin-key.rotate", http.StatusOK, s.rotateAdminKey)})

	mux.Handle("/v1/vehicles", methods{"GET": s.handle("vehicle.list", http.StatusOK, s.listVehicles)})
	mux.Handle("/v1/vehicles/{vid}", methods{"GET": call(s, "vehicle.show", http.StatusOK, s.showVehicle)})
	mux.Handle("/v1/vehicles/{vid}/forget", methods{
		"POST": call(s, "vehicle.forget", http.StatusOK, onVehicle(s.ops.Forget)),
	})
	mux.Handle("/v1/vehicles/{vid}/allow", methods{
		"POST": call(s, "vehicle.allow", http.StatusOK, onVehicle(s.ops.Allow)),
	})
	mux.Handle("/v1/tombstones", methods{"POST": call(s, "vehicle.bury", http.StatusOK, s.bury)})

	if s.cfg.Roads != nil {
		mux.Handle("/v1/roads", methods{"GET": s.handle("road.list", http.StatusOK, s.listRoads(s.cfg.Roads))})
	}

	if s.cfg.Node != nil {
		mux.Handle("/v1/node", methods{
			"GET": call(s, "node.show", http.StatusOK, func(*http.Request, nothing) (wire.NodeSettings, error) {
				return s.cfg.Node.Settings(), nil
			}),
			"PATCH": call(s, "node.change", http.StatusOK, s.changeNode),
		})
	}

	mux.Handle("/v1/backup", methods{"GET": s.handle("backup.take", http.StatusOK, s.takeBackup)})
	mux.Handle("/v1/backup-key", methods{"POST": call(s, "backup-key.show", http.StatusOK, s.backupKey)})
	mux.Handle("/v1/restore", methods{"POST": s.handle("backup.restore", http.StatusOK, s.restore)})

	mux.Handle("/v1/status", methods{"GET": call(s, "status.show", http.StatusOK, s.showStatus)})
	mux.Handle("/v1/audit", methods{"GET": s.handle("audit.list", http.StatusOK, s.listAudit)})

	mux.HandleFunc("/v1", notFound)
	mux.HandleFunc("/v1/", notFound)
	if s.cfg.Console == nil {
		mux.HandleFunc("/", notFound)
	} else {
		mux.Handle("/", s.cfg.Console)
	}
}

// methods holds the handlers of one path, by method. HEAD uses the handler of GET. A request with
// another method gets the status 405.
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
