package console

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/throttle"
	"example.org/carstate/internal/vehicle"
)

// findVehicle reads the vid from the body: proxies and browsers store URLs, and it may be no vid.
func (c *Console) findVehicle(w http.ResponseWriter, r *http.Request, s *session) {
	id, err := vehicle.ParseID(strings.TrimSpace(r.PostForm.Get("vid")))
	if err != nil {
		c.showVehicles(w, r, s, err, ops.VehicleQuery{})
		return
	}
	http.Redirect(w, r, s.at("/vehicles/"+string(id)), http.StatusSeeOther)
}

type vehicleView struct {
	VID         vehicle.ID
	Known       bool
	Forgotten   bool // its telemetry is refused
	Erased      bool // its telemetry may be accepted again
	ForgottenAt time.Time
	Verdicts    []verdictView
	Readings    []ops.ReadingRecord
	Curve       curveView
	HasWay      bool // Map shows the car's way
	WayTime     time.Time
	WayKnown    bool
	Map         mapView
	Tokens      []ops.TokenRecord
	MoreTokens  int
}

type verdictView struct {
	Question string
	Class    string // CSS
	ops.VerdictRecord
}

const maxTokensThatSee = 20

func (c *Console) vehiclePage(w http.ResponseWriter, r *http.Request, s *session) {
	id, err := vehicle.ParseID(r.PathValue("vid"))
	if err != nil {
		c.showVehicles(w, r, s, err, ops.VehicleQuery{})
		return
	}
	v, err := c.vehicleView(r.Context(), id, new(*curve))
	if err != nil {
		c.fail(w, s, "Vehicle", c.Ops.Explain("vehicle.show", err))
		return
	}
	now := c.Now()
	tokens := slices.DeleteFunc(c.Ops.Credentials(access.TokenKind), func(g *access.Grant) bool {
		return g.Sandbox() || g.Usable(now) != nil || !g.Vehicles.Include(id)
	})
	v.MoreTokens = max(0, len(tokens)-maxTokensThatSee)
	for _, g := range tokens[:len(tokens)-v.MoreTokens] {
		v.Tokens = append(v.Tokens, c.Ops.TokenRecord(g))
	}
	status := http.StatusOK
	if !v.Known {
		status = http.StatusNotFound
	}
	c.show(w, s, status, "vehicle", v.page())
}

func (v vehicleView) page() page {
	p := page{Title: "Vehicle " + string(v.VID), Section: "vehicles", Data: v, Map: v.HasWay,
		Live: "/live/vehicles/" + string(v.VID)}
	switch {
	case !v.Known:
		p.Live += unknownYet
	case v.HasWay:
		p.Live += withWay
	}
	return p
}

func (c *Console) vehicleLive(w http.ResponseWriter, r *http.Request, s *session, id vehicle.ID) {
	var past *curve
	c.serveLive(w, r, s, "vehicle", func(ctx context.Context, _ *http.Request, _ *session) (page, error) {
		v, err := c.vehicleView(ctx, id, &past)
		return v.page(), err
	})
}

// past is the curve that the open page shows, or nil. It gets the newest readings or, if it shows
// other sensors, is read again.
func (c *Console) vehicleView(ctx context.Context, id vehicle.ID, past **curve) (vehicleView, error) {
	v := vehicleView{VID: id}
	record, s, err := c.Ops.Vehicle(ctx, id)
	if statusOf(err) == http.StatusNotFound {
		t, forgotten := c.Ops.Forgotten(id)
		v.Forgotten, v.ForgottenAt, v.Erased = forgotten, t.Forgotten, t.State == access.StateErased
		return v, nil
	}
	if err != nil {
		return v, err
	}
	v.Known = true
	c.addWay(&v, &s)
	if !(*past).shows(&s) {
		*past = c.curve(ctx, id, &s)
	}
	(*past).note(&s)
	v.Curve = (*past).view()
	v.Verdicts = []verdictView{
		{"How does it drive?", classOf(s.Driving()), record.Driving},
		{"Is its throttle system healthy?", throttleClass(s.Throttle()), record.Throttle},
	}
	v.Readings = record.Readings
	return v, nil
}

func throttleClass(v vehicle.ThrottleVerdict) string {
	switch {
	case v.Time == 0:
		return "none"
	case v.System == throttle.Anomaly:
		return "anomaly"
	}
	return "healthy"
}

func (c *Console) forget(w http.ResponseWriter, r *http.Request, s *session, id vehicle.ID) {
	if r.PostForm.Get("vid") != string(id) {
		c.fail(w, s, "Not forgotten",
			errors.New("type the vehicle's vid into the form to confirm: go back and try again"))
		return
	}
	receipt, err := c.Ops.Forget(r.Context(), s.who, id)
	if err != nil {
		c.fail(w, s, "Not forgotten", err)
		return
	}
	c.show(w, s, http.StatusOK, "forgotten",
		page{Title: "Forgotten", Section: "vehicles", Data: forgottenView{receipt, id}})
}

type forgottenView struct {
	access.ForgetReceipt
	VID vehicle.ID
}

func (c *Console) allow(w http.ResponseWriter, r *http.Request, s *session, id vehicle.ID) {
	if _, err := c.Ops.Allow(r.Context(), s.who, id); err != nil {
		c.fail(w, s, "Not accepted", err)
		return
	}
	c.done(w, r, s, "/vehicles/"+string(id), "Telemetry of this vehicle is accepted again.")
}

func (c *Console) relearn(w http.ResponseWriter, r *http.Request, s *session, id vehicle.ID) {
	if _, err := c.Ops.Relearn(r.Context(), s.who, id); err != nil {
		c.fail(w, s, "Not discarded", err)
		return
	}
	c.done(w, r, s, "/vehicles/"+string(id), "The throttle of this vehicle is learned again.")
}

// addWay adds a map without positions, which a script requests.
func (c *Console) addWay(v *vehicleView, s *vehicle.State) {
	if s.Way.Count == 0 {
		return
	}
	v.HasWay, v.WayTime = true, s.Way.Time.Time()
	v.Map = mapView{"Map of the roads around the car", "/vehicles/" + string(v.VID) + "/stretches"}
	for _, step := range s.Way.Steps[:s.Way.Count] {
		known, ok := c.Roads.Condition(step.Stretch, signal.At(c.Now()))
		v.WayKnown = v.WayKnown || ok && known.FreeKmh > 0
	}
}
