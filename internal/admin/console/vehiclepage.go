package console

import (
	"context"
	"math"
	"net/http"
	"strings"
	"time"

	"carstate/internal/vehicle"
)

// vehiclesView is the page on which a vehicle is looked for.
type vehiclesView struct {
	Lists    []listView
	One      bool // a single list was asked for
	Vehicles int
}

func (c *Console) vehiclesPage(w http.ResponseWriter, r *http.Request, s *session) {
	c.showVehicles(w, r, s, http.StatusOK, "")
}

func (c *Console) showVehicles(w http.ResponseWriter, r *http.Request, s *session, status int, problem string) {
	survey := c.Monitor.survey()
	v := vehiclesView{Vehicles: survey.Vehicles}
	switch name := r.URL.Query().Get("list"); name {
	case "jam", "anomaly":
		v.One = true
		v.Lists = []listView{c.list(r.Context(), name, pageNumber(r), listed, survey)}
	default:
		for _, name := range []string{"jam", "anomaly"} {
			v.Lists = append(v.Lists, c.list(r.Context(), name, 1, fewListed, survey))
		}
	}
	c.showTo(w, s, status, "vehicles", page{Title: "Vehicles", Section: "vehicles", Problem: problem, Data: v})
}

// findVehicle leads to a vehicle's page. The vid comes in the body: an address
// would be kept by whatever the request passes.
func (c *Console) findVehicle(w http.ResponseWriter, r *http.Request, s *session) {
	if !parseForm(w, r, smallForm) {
		c.showVehicles(w, r, s, http.StatusBadRequest, "the form could not be read: try again")
		return
	}
	id, err := vehicle.ParseID(strings.TrimSpace(r.PostForm.Get("vid")))
	if err != nil {
		c.showVehicles(w, r, s, http.StatusBadRequest, err.Error())
		return
	}
	http.Redirect(w, r, "/vehicles/"+string(id), http.StatusSeeOther)
}

// vehicleView is the page of one vehicle.
type vehicleView struct {
	VID        vehicle.ID
	Known      bool
	Verdicts   []verdictView
	Readings   []readingView
	Curve      curveView
	Roads      bool // this node knows of roads
	HasWay     bool // of the car, which Map shows
	WayTime    time.Time
	WayKnown   bool // some stretch of it is known
	Map        mapView
	Tokens     []tokenRow
	MoreTokens int
}

// verdictView is one verdict and its reason.
type verdictView struct {
	Question string
	Class    string // see classOf
	Name     string // in words
	Value    string // as a query gets it
	Answered bool
	Why      string // a query gets no answer
	Time     time.Time
	Text     string
	Rule     string
	Version  int
	Facts    []factView
}

// factView is one thing that a rule looked at.
type factView struct {
	Name         string
	Value        float64
	Unit         string
	Threshold    float64
	HasThreshold bool
	Time         time.Time
}

// readingView is the newest reading of one signal.
type readingView struct {
	Signal string
	Value  string
	Unit   string
	Time   time.Time
}

func (c *Console) vehiclePage(w http.ResponseWriter, r *http.Request, s *session) {
	id, err := vehicle.ParseID(r.PathValue("vid"))
	if err != nil {
		c.showVehicles(w, r, s, http.StatusBadRequest, err.Error())
		return
	}
	v, err := c.vehicleView(r.Context(), id)
	if err != nil {
		c.Log.Error("a vehicle's state cannot be read", "error", err)
		c.fail(w, s, http.StatusServiceUnavailable, "Vehicle", "the vehicle's state cannot be read at present; the service's log says why")
		return
	}
	v.Tokens, v.MoreTokens = c.tokensThatSee(id)
	p := page{Title: "Vehicle " + string(id), Section: "vehicles", Data: v, Map: v.HasWay, Live: "/live/vehicles/" + string(id)}
	status := http.StatusOK
	switch {
	case !v.Known:
		status, p.Live = http.StatusNotFound, p.Live+unknownYet
	case v.HasWay:
		p.Live += withWay
	}
	c.showTo(w, s, status, "vehicle", p)
}

// unknownYet is for the page of a vehicle of which nothing is known.
const unknownYet = "?unknown"

// withWay is for the page of a vehicle whose way is shown.
const withWay = "?way"

func (c *Console) vehicleLive(w http.ResponseWriter, r *http.Request) {
	id, err := vehicle.ParseID(r.PathValue("vid"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.keepUp(w, r, func(ctx context.Context) (parts, error) {
		v, err := c.vehicleView(ctx, id)
		switch {
		case err != nil:
			return nil, err
		case v.Known == r.URL.Query().Has("unknown"): // it has appeared, or was forgotten
			return nil, errAnotherPage
		case !v.Known:
			return nil, nil
		case v.HasWay != r.URL.Query().Has("way"): // it has sent its first position
			return nil, errAnotherPage
		}
		return c.parts("vehicle", v, "verdicts", "curve", "way", "readings")
	})
}

func (c *Console) vehicleView(ctx context.Context, id vehicle.ID) (vehicleView, error) {
	v := vehicleView{VID: id}
	s, ok, err := c.State(ctx, id)
	if err != nil {
		return v, err
	}
	v.Known = ok
	if !ok {
		c.Monitor.curves.forget(id) // which a page that was being made may have put back
		return v, nil
	}
	c.addWay(&v, &s)
	past := c.curve(ctx, id)
	past.add(&s, c.Now())
	v.Curve = past.view()
	now := vehicle.At(c.Now())
	driving, throttle := s.Driving(), s.Throttle()
	v.Verdicts = []verdictView{
		newVerdictView("How does it drive?", classOf(driving), driving.At(now, c.MaxAge), driving.Time, s.ExplainDriving()),
		newVerdictView("Is its throttle system healthy?", throttleClass(throttle), throttle.At(now, c.MaxAge), throttle.Time, s.ExplainThrottle()),
	}
	if driving.State != 0 {
		v.Verdicts[0].Value = string('0' + rune(driving.State))
	}
	if throttle.Time != 0 {
		v.Verdicts[1].Value = string('0' + rune(throttle.System))
	}
	for i, reading := range s.Latest {
		if reading.Time != 0 {
			v.Readings = append(v.Readings, newReadingView(vehicle.Signal(i), reading))
		}
	}
	return v, nil
}

func throttleClass(v vehicle.ThrottleVerdict) string {
	switch {
	case v.Time == 0:
		return "none"
	case v.System == vehicle.ThrottleAnomaly:
		return "anomaly"
	}
	return "healthy"
}

// outcomeWords say why a query gets no answer.
var outcomeWords = map[vehicle.Outcome]string{
	vehicle.Unknown:    "unknown: nothing was read that could answer",
	vehicle.Stale:      "stale: the readings are too old",
	vehicle.NotDriving: "not_driving: the car stands with its engine or ignition off",
}

func newVerdictView(question, class string, o vehicle.Outcome, at vehicle.UnixMilli, e vehicle.Explanation) verdictView {
	v := verdictView{
		Question: question, Class: class, Name: classNames[class], Answered: o == vehicle.Answered, Why: outcomeWords[o],
		Text: e.Text, Rule: e.Rule, Version: e.Version,
	}
	if at != 0 {
		v.Time = at.Time()
	}
	for _, f := range e.Facts {
		if math.IsNaN(f.Value) || math.IsInf(f.Value, 0) {
			continue
		}
		fact := factView{Name: f.Name, Value: f.Value, Unit: f.Unit, Threshold: f.Threshold, HasThreshold: !math.IsNaN(f.Threshold) && !math.IsInf(f.Threshold, 0)}
		if f.Time != 0 {
			fact.Time = f.Time.Time()
		}
		v.Facts = append(v.Facts, fact)
	}
	return v
}

func newReadingView(g vehicle.Signal, r vehicle.Reading) readingView {
	v := readingView{Signal: g.String(), Unit: g.Unit(), Time: r.Time.Time()}
	if g.IsPosition() {
		v.Value, v.Unit = "not shown", ""
		return v
	}
	switch g {
	case vehicle.LowVoltageSystemState:
		v.Value = vehicle.Ignition(r.Value).String()
	case vehicle.MILOn:
		v.Value = [2]string{"off", "on"}[min(1, int(r.Value))]
	default:
		v.Value = number(float64(r.Value))
	}
	return v
}

// forget erases a vehicle, once the operator has written its vid.
func (c *Console) forget(w http.ResponseWriter, r *http.Request, s *session) {
	id, err := vehicle.ParseID(r.PathValue("vid"))
	switch {
	case err != nil:
		c.fail(w, s, http.StatusNotFound, "There is nothing here", "the pages are named above")
		return
	case !parseForm(w, r, smallForm) || r.PostForm.Get("vid") != string(id):
		c.fail(w, s, http.StatusBadRequest, "Not forgotten", "write the vehicle's vid into the form to confirm: go back and try again")
		return
	}
	receipt, err := c.Deeds.Forget(r.Context(), s.who, id)
	if err != nil {
		c.fail(w, s, statusOf(err), "Not forgotten", err.Error())
		return
	}
	c.showTo(w, s, http.StatusOK, "forgotten", page{Title: "Forgotten", Section: "vehicles", Data: receipt})
}
