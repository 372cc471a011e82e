package roadmap

import (
	"bufio"
	"compress/gzip"
	"encoding/json/v2"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"time"

	"carstate/internal/road"
	"carstate/internal/vehicle"
)

// Collection is a GeoJSON FeatureCollection of stretches.
type Collection struct {
	Type string    `json:"type"` // "FeatureCollection"
	At   time.Time `json:"at"`
	// Known is how many stretches there are in the box; Truncated is set if Features
	// holds the worst of them only.
	Known     int  `json:"known"`
	Truncated bool `json:"truncated"`
	// Way names those that a car drove last, the newest first.
	Way      []string  `json:"way,omitzero"`
	Features []Feature `json:"features"`
}

// Feature is one stretch.
type Feature struct {
	Type       string  `json:"type"` // "Feature"
	Geometry   Line    `json:"geometry"`
	Properties Stretch `json:"properties"`
}

// Line is where a stretch lies, to about 70 m, in the direction of travel.
type Line struct {
	Type        string        `json:"type"`        // "LineString"
	Coordinates [2][2]float64 `json:"coordinates"` // longitude and latitude, degrees
}

// Stretch is how traffic moves on a stretch.
type Stretch struct {
	Stretch     string     `json:"stretch"`       // its name; see [Name]
	Heading     float64    `json:"heading"`       // degrees clockwise from north
	State       string     `json:"state"`         // see [State]
	SpeedKmh    *float64   `json:"speed_kmh"`     // nil: too few cars are there
	FreeFlowKmh float64    `json:"free_flow_kmh"` // speed in light traffic
	Share       *float64   `json:"share"`         // of the free flow; nil: too few cars are there
	Cars        int        `json:"cars"`          // in the last 6 minutes; 0: too few
	Since       *time.Time `json:"since"`         // when State changed; nil: not known
	Young       bool       `json:"young"`         // the road was not seen free yet
}

// How a stretch is drawn.
const (
	halfMetres  = 35 // of the line
	asideMetres = 8  // to the right of the middle
	// metresPerDegree is that of latitude.
	metresPerDegree = 111_195
)

// Name names a stretch: the token of its S2 cell and its direction of travel, such as
// "11dff52c57-ne".
func Name(s vehicle.Stretch) string {
	const below = 64 - 3 - 2*road.Level - 1 // bits of a cell's number that are zero
	return fmt.Sprintf("%010x-%s", uint64(s)>>below, [...]string{"n", "ne", "e", "se", "s", "sw", "w", "nw"}[uint64(s)%road.Octants])
}

// State spells how traffic moves: "normal", "slow", "jam", or "unknown" if too few cars
// show it.
func State(s vehicle.DrivingState) string {
	return [...]string{"unknown", "normal", "slow", "jam"}[s]
}

// feature describes a stretch.
func feature(c road.Condition) Feature {
	p := Stretch{
		Stretch: Name(c.Stretch), Heading: road.HeadingDegrees(c.Stretch), State: State(c.State),
		FreeFlowKmh: round(c.FreeKmh, 10), Cars: c.Cars, Young: c.Young,
	}
	if share, ok := Share(c); ok {
		p.SpeedKmh, p.Share = new(round(c.SpeedKmh, 10)), new(round(share, 1000))
	}
	if c.Since != 0 {
		p.Since = new(c.Since.Time())
	}
	return Feature{"Feature", lineOf(c.Stretch), p}
}

// lineOf draws a stretch through the middle of its cell, shifted to the right, so that
// the two directions of a road lie side by side. A line that would cross the date line
// ends there.
func lineOf(s vehicle.Stretch) Line {
	latitude, longitude := road.Centre(s)
	sin, cos := math.Sincos(road.HeadingDegrees(s) * math.Pi / 180)
	at := func(along float64) [2]float64 {
		north := along*cos - asideMetres*sin
		east := along*sin + asideMetres*cos
		turn := east / metresPerDegree / math.Cos(latitude*math.Pi/180)
		return [2]float64{
			round(min(max(-180, longitude+turn), 180), 1e6),
			round(min(max(-90, latitude+north/metresPerDegree), 90), 1e6),
		}
	}
	return Line{"LineString", [2][2]float64{at(-halfMetres), at(halfMetres)}}
}

// round rounds to a fraction of one.
func round(x, parts float64) float64 { return math.Round(x*parts) / parts }

// Serve answers a request with at most limit stretches of a selection, one after the
// other, and the way that a car drove, if there is one.
func Serve(w http.ResponseWriter, r *http.Request, s Selection, limit int, way []string) {
	w.Header().Set("Content-Type", "application/geo+json")
	w.Header().Set("Vary", "Accept-Encoding")
	var to io.Writer = w
	if accepted := r.Header.Get("Accept-Encoding"); strings.Contains(accepted, "gzip") && !strings.Contains(accepted, "gzip;q=0") {
		w.Header().Set("Content-Encoding", "gzip")
		packed, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // which is a level
		defer func() { _ = packed.Close() }()               // else the reader is gone
		to = packed
	}
	out := bufio.NewWriterSize(to, 32<<10)
	if write(out, s, limit, way) == nil { // else the reader is gone
		_ = out.Flush()
	}
}

// write writes a [Collection].
func write(out *bufio.Writer, s Selection, limit int, way []string) error {
	some := s.Worst[:min(len(s.Worst), limit)]
	head, err := json.Marshal(Collection{
		Type: "FeatureCollection", At: s.At.UTC(), Known: s.Known, Truncated: s.Known > len(some), Way: way, Features: []Feature{},
	})
	if err != nil {
		return err
	}
	if _, err := out.Write(head[:len(head)-len("]}")]); err != nil {
		return err
	}
	for i, c := range some {
		if i > 0 {
			if err := out.WriteByte(','); err != nil {
				return err
			}
		}
		if err := json.MarshalWrite(out, feature(c)); err != nil {
			return err
		}
	}
	_, err = out.WriteString("]}\n")
	return err
}
