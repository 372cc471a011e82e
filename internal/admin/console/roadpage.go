package console

import (
	"context"
	"net/http"
	"slices"

	"example.org/carstate/internal/admin/roadmap"
	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/road"
	"example.org/carstate/internal/vehicle"
)

const worstListed = 20

const aroundMetres = 2000 // half the side of the square around the car

type roadsView struct {
	Known, Normal, Slow, Jam, Unknown int // stretches
	Worst                             []placed
	Jams                              []roadmap.Jam // the longest delays first
	MoreJams                          int
	Map                               mapView
}

type placed struct {
	roadmap.Stretch
	Place roadmap.Place
}

func (v roadsView) Empty() bool { return v.Known == 0 }

type mapView struct{ Label, From string }

func towards(degrees float64) string {
	return [road.Octants]string{"North", "North-east", "East", "South-east", "South", "South-west", "West",
		"North-west"}[int(degrees*road.Octants/360)]
}

func (c *Console) roadsPage(context.Context, *http.Request, *session) (page, error) {
	s := c.Roads.Within(road.World, c.Now())
	v := roadsView{Known: s.Known, Map: mapView{"Map of the roads", "/roads/stretches"}}
	v.Unknown, v.Normal, v.Slow, v.Jam = s.ByState[0], s.ByState[driving.Normal],
		s.ByState[driving.Slow], s.ByState[driving.Jam]
	v.Jams = s.Jams[:min(len(s.Jams), worstListed)]
	v.MoreJams = len(s.Jams) - len(v.Jams)
	for _, w := range s.Worst[:min(len(s.Worst), worstListed)] {
		described := roadmap.Describe(w)
		if described.Share == nil {
			break
		}
		v.Worst = append(v.Worst, placed{described, roadmap.PlaceOf(w.Stretch)})
	}
	p := page{Title: "Roads", Section: "roads", Data: v, Map: !v.Empty(), Live: "/live/roads"}
	if v.Empty() {
		p.Live += unknownYet
	}
	return p, nil
}

func (c *Console) stretches(w http.ResponseWriter, r *http.Request, _ *session) {
	box, limit, err := roadmap.Asked(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	roadmap.Serve(w, r, c.Roads.Within(box, c.Now()), limit, nil)
}

func (c *Console) vehicleStretches(w http.ResponseWriter, r *http.Request, _ *session, id vehicle.ID) {
	s, _, err := c.Ops.State(r.Context(), id)
	if err != nil {
		c.refuse(w, err)
		return
	}
	selection := roadmap.Selection{At: c.Now()}
	way := []string{}
	if s.Way.Count > 0 {
		selection = c.Roads.Within(road.Around(s.Way.Steps[0].Stretch, aroundMetres), selection.At)
		for _, step := range s.Way.Steps[:s.Way.Count] {
			if slices.ContainsFunc(selection.Worst, func(c road.Condition) bool { return c.Stretch == step.Stretch }) {
				way = append(way, roadmap.Name(step.Stretch))
			}
		}
	}
	roadmap.Serve(w, r, selection, roadmap.MaxStretches, way)
}
