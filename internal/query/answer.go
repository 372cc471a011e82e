package query

import (
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/fleet"
	"example.org/carstate/internal/http1"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

// A path must equal one of these byte for byte.
const (
	drivingPath  = "/api/ic/if_dt_tflow_car_driving_state"
	throttlePath = "/api/ic/if_dt_amo_throttle_system"
)

type answerer struct {
	Config
	docs    map[string]*document
	metrics *metrics
}

// answer does not allocate if the slices of w are large enough.
func (a *answerer) answer(r *http1.Request, now time.Time, w *response) {
	path, query := r.Path()
	switch string(path) {
	case drivingPath:
		w.operation = access.CarDrivingState
	case throttlePath:
		w.operation = access.ThrottleSystem
	default:
		d := a.docs[string(path)]
		switch {
		case d == nil:
			w.fail(failures["path"])
		case !r.IsRead():
			w.fail(failMethod)
		default:
			w.writeDocument(d, r.Gzip, now)
		}
		return
	}
	if !r.IsRead() {
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
	a.authorize(&p, f, r.Authorization, now, w)
}

// authorize counts a call for its token, even if that is expired or revoked. If f is not nil, it
// counts and shows the rate limit only for a valid token, and uses up none of its budget.
func (a *answerer) authorize(p *params, f *failure, hasHeader bool, now time.Time, w *response) {
	g, err := a.Tokens.Verify(p.token, now)
	switch {
	case f != nil:
		w.fail(f)
		if err != nil {
			return
		}
		w.setRateHeaders(g, now)
	case err == nil:
		a.applyGrant(p.vid, g, now, w)
	case tokenFailures[err] != nil:
		w.fail(tokenFailures[err])
	case p.hasToken:
		w.fail(malformed(p.token))
	case hasHeader:
		w.fail(failWrongPlace)
	default:
		w.fail(failNoToken)
	}
	if g != nil {
		w.token = g.Name
		g.Count(access.Outcome(w.outcome), now)
	}
}

func (a *answerer) applyGrant(vid []byte, g *access.Grant, now time.Time, w *response) {
	w.sandbox = g.Sandbox()
	if !g.Operations.Has(w.operation) {
		w.setRateHeaders(g, now)
		w.fail(failScope[w.operation])
		return
	}
	if g.Sandbox() && string(vid) == access.SandboxRateLimited && g.Vehicles.IncludeBytes(vid) {
		w.pretendRate(g.Rate)
		return
	}
	if g.Rate.Limited() {
		remaining, next, ok := g.Budget.Take(g.Rate, 1, now)
		w.setRate(g.Rate, remaining, next)
		if !ok {
			w.tooManyCalls(g.Rate, next)
			return
		}
	}
	a.answerVehicle(vid, g, now, w)
}

// A vehicle that the grant does not include is looked up, too, so that neither the answer nor its
// time shows whether it exists.
func (a *answerer) answerVehicle(vid []byte, g *access.Grant, now time.Time, w *response) {
	granted := g.Vehicles.IncludeBytes(vid)
	if g.Sandbox() && granted && string(vid) == access.SandboxUnavailable {
		w.fail(failNotReady)
		return
	}
	at := signal.At(now)
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
	// The car's clock may be a little ahead, but Last-Modified must not be later than Date.
	if w.operation == access.CarDrivingState {
		w.writeRecord(vid, drives, `,"vehicle_runing_state":"`, byte(known.Driving.State), min(known.Driving.Time, at))
	} else {
		w.writeRecord(vid, throttles, `,"throttle_system":"`, byte(known.Throttle.System), min(known.Throttle.Time, at))
	}
}
