package admin_test

import (
	"context"
	"encoding/json/v2"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/admin"
	"example.org/carstate/internal/admin/roadmap"
	"example.org/carstate/internal/road"
	"example.org/carstate/internal/test/roadtest"
)

func TestForgetRoads(t *testing.T) {
	roads, stored := new(roadmap.Reader), 0
	s := start(t, func(c *admin.Config) {
		c.Roads = roads
		c.ForgetRoads = func(_ context.Context, b road.Box) error {
			if b == (road.Box{West: 11.3, South: 44.4, East: 11.4, North: 44.6}) {
				stored++
			}
			return nil
		}
	})
	street := roadtest.Street{Latitude: 44.5, Longitude: 11.34, Heading: 90, Metres: 1500}
	roadtest.Feed(&roads.Map, street.Learn(50, noon))
	for _, box := range []string{`{}`, `{"bbox":"1,2,3"}`, `{"bbox":"0,10,1,9"}`, `{"bbox":""}`} {
		s.want(t, "POST", "/v1/roads/forget", box, http.StatusBadRequest, "bbox is west,south,east,north")
	}
	s.want(t, "POST", "/v1/roads/forget", `{"bbox":"11.3,44.4,11.4,44.6"}`, http.StatusUnauthorized, "", withoutKey)
	if n, err := s.ForgetRoads(t.Context(), "11.3,44.4,11.4,44.6"); err != nil || n.Stretches != roads.Len() || stored != 1 {
		t.Errorf("got %+v, error %v; want %d, stored once, got %d", n, err, roads.Len(), stored)
	}
	s.want(t, "GET", "/v1/roads", "", http.StatusOK, `"known":0`)
	if e := newest(t, s.Client, 1)[0]; e.Action != "road.forget" || e.Detail != "bbox 11.3,44.4,11.4,44.6" {
		t.Errorf("the audit: got %+v, want road.forget of the box", e)
	}
}

func TestRoads_NeedsAKeyAndAValidBox(t *testing.T) {
	roads := new(roadmap.Reader)
	s := start(t, func(c *admin.Config) { c.Roads = roads })
	list := func(limit int) (c roadmap.Collection, err error) {
		a := s.do(t, "GET", fmt.Sprintf("/v1/roads?bbox=11.3,44.4,11.4,44.6&limit=%d", limit), "")
		return c, json.Unmarshal([]byte(a.body), &c)
	}
	if c, err := list(10); err != nil || len(c.Features) != 0 || c.Truncated {
		t.Errorf("without roads: got %+v, %v; want no stretch", c, err)
	}
	street := roadtest.Street{Latitude: 44.5, Longitude: 11.34, Heading: 90, Metres: 1500}
	roadtest.Feed(&roads.Map, street.Learn(50, noon))
	roadtest.Feed(&roads.Map, street.Drive("slow", 8, 10, noon.Add(-8*time.Minute), 5*time.Second))
	c, err := list(3)
	if err != nil || len(c.Features) != 3 || !c.Truncated || c.Known < 8 || c.Features[0].Properties.State != "jam" ||
		!c.At.Equal(noon) || len(c.Jams) != 1 || len(c.Jams[0].Stretches) < 8 {
		t.Errorf("the jam: got %+v, %v; want 3 of 8 or more stretches, all in one jam", c, err)
	}
	a := s.do(t, "GET", "/v1/roads?bbox=179,-18,-179,-16", "")
	if a.status != http.StatusOK || a.header.Get("Content-Type") != "application/geo+json" ||
		!strings.HasPrefix(a.body,
			`{"type":"FeatureCollection","at":"2026-11-20T12:00:00Z","known":0,"truncated":false,"jams":[],"features":[]}`) {
		t.Errorf("a box across the date line: got %+v, want 200 and an empty collection", a)
	}
	for query, says := range map[string]string{
		"bbox=11.3,44.4,11.4":       "bbox is west,south,east,north in degrees",
		"bbox=11.3,44.4,11.4,97.25": "latitudes from -90 to 90", "bbox=a,b,c,d": "longitudes from -180 to 180",
		"bbox=11.3,44.6,11.4,44.4": "south at most north", "limit=0": "limit is a number from 1 to 20000",
	} {
		s.want(t, "GET", "/v1/roads?"+query, "", http.StatusBadRequest, says).lacks(t, "97.25")
	}
	s.want(t, "GET", "/v1/roads", "", http.StatusUnauthorized, "", withoutKey)
	s.want(t, "POST", "/v1/roads", "", http.StatusMethodNotAllowed, "")
	for _, part := range []string{"44.", "11.3", "179", "97.25"} {
		if strings.Contains(s.log.String(), part) {
			t.Errorf("the log: got %s, want it without the position %s", s.log.String(), part)
		}
	}
}
