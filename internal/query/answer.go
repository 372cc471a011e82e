package query

import (
	"bytes"
	"net/netip"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/fleet"
	"example.org/carstate/internal/vehicle"
)

// The paths of the operations. The path of a request must equal one of them byte for byte.
const (
	drivingPath  = "/api/ic/if_dt_tflow_car_driving_state"
	throttlePath = "/api/ic/if_dt_amo_throttle_system"
)

// answerer turns requests into responses. It is safe for concurrent use.
type answerer struct {
	Config
	docs documents // if nil, no documentation is served
}

// answer checks a request at the time now and writes the response to w. The package comment gives
// the order of the checks. When the slices of w are large enough, answer does not allocate.
func (a *answerer) answer(r *request, now time.Time, w *response) {
	a.startResponse(now, w)
	h := scanHead(r.headers)
	w.closes, w.keepAlive = h.closes, h.keepAlive
	if f := framingFailure(r, &h); f != nil {
		w.fail(f)
		return
	}
	path, query := splitTarget(r.target)
	switch string(path) {
	case drivingPath:
		w.operation = carDrivingState
	case throttlePath:
		w.operation = throttleSystem
	default:
		w.writeDocument(r, a.docs[string(path)], &h, now)
		return
	}
	if !isRead(r.method) {
		w.fail(failMethod)
		return
	}
	p, f := parseQuery(query, &w.scratch)
	w.vid = p.vid
	if f == nil {
		f = checkVid(&p)
	}
	if f == nil && a.Ready(now) != nil {
		f = failNotReady
	}
	if f != nil {
		a.refuseRequest(&p, f, now, w)
		return
	}
	a.authorize(&p, &h, now, w)
}

// refuseHead answers with the failure f. It reads nothing of the request, so it also serves a
// request that cannot be parsed.
func (a *answerer) refuseHead(f *failure, now time.Time, w *response) {
	a.startResponse(now, w)
	w.fail(f)
}

// startResponse makes w an empty response to a query.
func (a *answerer) startResponse(now time.Time, w *response) {
	w.reset()
	w.begin(now, "application/json", "private, no-store")
}

// framingFailure returns the failure of a request whose HTTP version, Host header or size is not
// accepted, or in whose headers scanHead found an error. If there is no failure, it returns nil.
func framingFailure(r *request, h *head) *failure {
	line := len(r.method) + len(r.target) + len(r.version) + 2
	isV11 := string(r.version) == "HTTP/1.1"
	switch {
	case h.fault != nil:
		return h.fault
	case !isV11 && string(r.version) != "HTTP/1.0":
		return failVersion
	case h.hosts > 1 || isV11 && h.hosts == 0:
		return failHost
	case line > maxLine:
		return failLineSize
	case line+len("\r\n")+len(r.headers) > maxHead:
		return failHeadSize
	}
	return nil
}

// splitTarget returns the path and the query of a request target in origin form (/path?query) or in
// absolute form (http://host/path?query). It neither decodes nor cleans them. If the target has no
// query, query is nil. If the target has another form, path is empty.
func splitTarget(target []byte) (path, query []byte) {
	path = target
	if len(path) > 0 && path[0] != '/' {
		path = afterAuthority(path)
	}
	return cut(path, '?')
}

// afterAuthority returns what follows the host of an http or https URL, and otherwise nil.
func afterAuthority(target []byte) []byte {
	i := bytes.Index(target, []byte("://"))
	if i < 0 || !equalFold(target[:i], "http") && !equalFold(target[:i], "https") {
		return nil
	}
	rest := target[i+len("://"):]
	if i = bytes.IndexAny(rest, "/?#"); i <= 0 {
		return nil
	}
	return rest[i:]
}

// authorize answers the request: with a failure if the token is missing or invalid, and otherwise
// according to the token's grant (see applyGrant). A call with a known token is counted for that
// token, even if it is expired or revoked.
func (a *answerer) authorize(p *params, h *head, now time.Time, w *response) {
	if !p.hasToken {
		if h.authorization {
			w.fail(failWrongPlace)
		} else {
			w.fail(failNoToken)
		}
		return
	}
	g, err := a.Tokens.Verify(p.token, now)
	if err == nil {
		a.applyGrant(p.vid, g, now, w)
	} else {
		w.fail(tokenFailure(err, p.token))
	}
	if g != nil {
		w.token = g.Name
		g.Count(usageOf(w.outcome, err), now)
	}
}

// refuseRequest answers a request with the failure f. If its token is valid, the call is counted for
// the token, and the answer has the token's rate-limit headers, but the call uses up none of the
// token's budget.
func (a *answerer) refuseRequest(p *params, f *failure, now time.Time, w *response) {
	g, err := a.Tokens.Verify(p.token, now)
	if err == nil {
		w.setRateHeaders(g, now)
	}
	w.fail(f)
	if err == nil {
		w.token = g.Name
		g.Count(usageOf(w.outcome, nil), now)
	}
}

func (a *answerer) client(r *request) netip.Addr {
	return clientOf(r.peer, r.headers, a.TrustedProxies)
}

// grantOf maps each operation to its bit in [access.Operations], the set that a grant permits.
var grantOf = [noOperation]access.Operations{
	carDrivingState: access.CarDrivingState,
	throttleSystem:  access.ThrottleSystem,
}

// applyGrant checks the operation and the rate of the grant g, and then answers for the vehicle.
func (a *answerer) applyGrant(vid []byte, g *access.Grant, now time.Time, w *response) {
	w.sandbox = g.Sandbox()
	if !g.Operations.Has(grantOf[w.operation]) {
		w.setRateHeaders(g, now)
		w.fail(failScope[w.operation])
		return
	}
	if g.Sandbox() && string(vid) == access.SandboxRateLimited && g.Vehicles.IncludeBytes(vid) {
		w.pretendRate(g.Rate)
		return
	}
	if g.Rate.Limited() {
		remaining, next, ok := g.Budget.Take(g.Rate, now)
		w.setRate(g.Rate, remaining, next)
		if !ok {
			w.failOverRate(g.Rate, next)
			return
		}
	}
	a.answerVehicle(vid, g, now, w)
}

// answerVehicle answers with the vehicle's verdict, or with the reason why there is none. It looks
// up a vehicle that the grant does not include, too, but answers as for an unknown one, so that
// neither the answer nor its time shows whether the vehicle exists.
func (a *answerer) answerVehicle(vid []byte, g *access.Grant, now time.Time, w *response) {
	granted := g.Vehicles.IncludeBytes(vid)
	if g.Sandbox() && granted && string(vid) == access.SandboxUnavailable {
		w.fail(failNotReady)
		return
	}
	at := vehicle.At(now)
	var known fleet.Answer
	var drives, throttles vehicle.Outcome
	if g.Sandbox() {
		known, drives, throttles = sandbox(vid, now)
	} else {
		known = a.Fleet.Get(vid)
		drives, throttles = known.Driving.At(at, a.MaxAge), known.Throttle.At(at, a.MaxAge)
	}
	if !granted {
		drives, throttles = vehicle.Unknown, vehicle.Unknown
	}
	// The car's clock may be a little ahead of ours, but Last-Modified must not be later than Date.
	if w.operation == carDrivingState {
		w.writeRecord(vid, drives, `,"vehicle_runing_state":"`, byte(known.Driving.State), min(known.Driving.Time, at))
	} else {
		w.writeRecord(vid, throttles, `,"throttle_system":"`, byte(known.Throttle.System), min(known.Throttle.Time, at))
	}
}
