package console

import (
	"context"
	"net/http"
	"slices"

	"example.org/carstate/internal/admin/roadmap"
	"example.org/carstate/internal/road"
	"example.org/carstate/internal/vehicle"
)

// worstListed is the number of stretches, and of jams, that the page of roads lists.
const worstListed = 20

// aroundMetres is half the side, in metres, of the square in which a vehicle's page shows roads.
// The car is in the middle.
const aroundMetres = 2000

// roadsView is the page of roads.
type roadsView struct {
	Kept  bool // this node has a map of the roads
	Known int
	// Normal, Slow, Jam and Unknown are the numbers of stretches by state.
	Normal, Slow, Jam, Unknown int
	Worst                      []placed
	Jams                       []roadmap.Jam // those with the longest delays
	MoreJams                   int
	Map                        mapView
}

// placed is a stretch with its place.
type placed struct {
	roadmap.Stretch
	Place roadmap.Place
}

// Empty reports whether there is no stretch to show.
func (v roadsView) Empty() bool { return v.Known == 0 }

// mapView is a map that a script draws.
type mapView struct {
	Label string
	// From is the path of the map's data.
	From string
	// JamPercent and SlowPercent are percentages of the free-flow speed. Traffic at up to
	// JamPercent is a jam, and traffic at up to SlowPercent is slow.
	JamPercent, SlowPercent float64
}

func newMapView(label, from string) mapView {
	return mapView{label, from, 100 * vehicle.JamShare, 100 * vehicle.SlowShare}
}

// towards returns the direction of travel in words. heading is in degrees.
func towards(heading float64) string {
	return [road.Octants]string{"North", "North-east", "East", "South-east", "South", "South-west", "West",
		"North-west"}[int(heading*road.Octants/360)]
}

func (c *Console) roadsView() roadsView {
	v := roadsView{Kept: c.roads != nil, Map: newMapView("Map of the roads", "/roads/stretches")}
	if !v.Kept {
		return v
	}
	s := c.roads.All(c.Now())
	v.Known = s.Known
	v.Unknown, v.Normal, v.Slow, v.Jam = s.ByState[0], s.ByState[vehicle.NormalDriving],
		s.ByState[vehicle.SlowDriving], s.ByState[vehicle.TrafficJam]
	v.Jams = s.Jams[:min(len(s.Jams), worstListed)]
	v.MoreJams = len(s.Jams) - len(v.Jams)
	for _, w := range s.Worst[:min(len(s.Worst), worstListed)] {
		described := roadmap.Describe(w)
		if described.Share == nil {
			break
		}
		v.Worst = append(v.Worst, placed{described, roadmap.PlaceOf(w.Stretch)})
	}
	return v
}

func (c *Console) roadsPage(w http.ResponseWriter, _ *http.Request, s *session) {
	v := c.roadsView()
	p := page{Title: "Roads", Section: "roads", Data: v, Map: !v.Empty(), Live: "/live/roads"}
	if v.Empty() {
		p.Live += unknownYet
	}
	if !v.Kept {
		p.Live = ""
	}
	c.show(w, s, http.StatusOK, "roads", p)
}

func (c *Console) roadsLive(w http.ResponseWriter, r *http.Request, s *session) {
	c.serveLive(w, r, s, func(context.Context) (parts, error) {
		v := c.roadsView()
		switch {
		case v.Empty() != r.URL.Query().Has("unknown"): // the first stretches have become known
			return nil, errAnotherPage
		case v.Empty():
			return nil, nil
		}
		return c.parts("roads", v, "counts", "jams", "worst")
	})
}

// stretches answers with the stretches of road that the map of all roads shows, as GeoJSON.
func (c *Console) stretches(w http.ResponseWriter, r *http.Request, _ *session) {
	if c.roads == nil {
		c.noMap(w)
		return
	}
	box, limit, err := roadmap.Asked(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	roadmap.Serve(w, r, c.roads.Within(box, c.Now()), limit, nil)
}

// noMap answers a request for the data of a map that does not exist. The status is that of a request
// without a session: the script that draws the map then reloads the page, so that the browser gets a
// page without a map.
func (c *Console) noMap(w http.ResponseWriter) {
	http.Error(w, "there is no map", http.StatusUnauthorized)
}

// vehicleStretches answers with the stretches around a car, and those that it drove last, as
// GeoJSON.
func (c *Console) vehicleStretches(w http.ResponseWriter, r *http.Request, _ *session) {
	id, err := vehicle.ParseID(r.PathValue("vid"))
	if c.roads == nil || err != nil {
		c.noMap(w)
		return
	}
	s, _, err := c.Ops.State(r.Context(), id)
	if err != nil {
		c.Log.Error("a vehicle's state cannot be read", "error", err)
		http.Error(w, "the vehicle's state cannot be read at present; the service's log says why",
			http.StatusServiceUnavailable)
		return
	}
	selection := roadmap.Selection{At: c.Now()}
	way := []string{}
	if s.Way.Count > 0 {
		selection = c.roads.Within(road.Around(s.Way.Steps[0].Stretch, aroundMetres), selection.At)
		for _, step := range s.Way.Steps[:s.Way.Count] {
			if slices.ContainsFunc(selection.Worst, func(c road.Condition) bool { return c.Stretch == step.Stretch }) {
				way = append(way, roadmap.Name(step.Stretch))
			}
		}
	}
	roadmap.Serve(w, r, selection, roadmap.MaxStretches, way)
}
