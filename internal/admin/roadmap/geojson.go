package roadmap

import (
	"compress/gzip"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"time"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/road"
)

type Collection struct {
	Type string    `json:"type"`
	At   time.Time `json:"at"`
	// Known counts the stretches in the area. If Truncated, Features has only the slowest, compared
	// to free flow.
	Known     int  `json:"known"`
	Truncated bool `json:"truncated"`
	// Way names the stretches that a car drove last, newest first.
	Way []string `json:"way,omitzero"`
	// Jams are complete even if Truncated is set.
	Jams     []Jam     `json:"jams"`
	Features []Feature `json:"features"`
}

type Feature struct {
	Type       string  `json:"type"`
	Geometry   Line    `json:"geometry"`
	Properties Stretch `json:"properties"`
}

// Line is a GeoJSON LineString of about 70 m in the direction of travel.
type Line struct {
	Type        string        `json:"type"`
	Coordinates [2][2]float64 `json:"coordinates"` // longitude and latitude, degrees
}

type Stretch struct {
	Stretch     string     `json:"stretch"`       // see [Name]
	Heading     float64    `json:"heading"`       // degrees clockwise from north
	State       string     `json:"state"`         // normal, slow or jam; unknown: too few cars
	SpeedKmh    *float64   `json:"speed_kmh"`     // null: too few cars
	FreeFlowKmh float64    `json:"free_flow_kmh"` // in light traffic
	Share       *float64   `json:"share"`         // of the free-flow speed; null: too few cars
	Cars        int        `json:"cars"`          // in the last 6 minutes; 0: too few
	Since       *time.Time `json:"since"`         // when this state began; null: unknown
	Young       bool       `json:"young"`         // the free-flow speed is a guess
}

const (
	halfMetres  = 35
	asideMetres = 8 // from the middle of the cell, to the right
	// metresPerDegree is of latitude.
	metresPerDegree = 111_195
)

// Name returns the token of an S2 cell and the direction of travel, such as "11dff52c57-ne".
func Name(s driving.Stretch) string {
	const below = 64 - 3 - 2*road.Level - 1 // low bits of a cell's number that are always zero
	return fmt.Sprintf("%010x-%s", uint64(s)>>below,
		[...]string{"n", "ne", "e", "se", "s", "sw", "w", "nw"}[uint64(s)%road.Octants])
}

var states = [...]string{"unknown", "normal", "slow", "jam"}

func Describe(c road.Condition) Stretch {
	p := Stretch{
		Stretch: Name(c.Stretch), Heading: road.HeadingDegrees(c.Stretch), State: states[c.State],
		FreeFlowKmh: round(c.FreeKmh, 10), Cars: c.Cars, Young: c.Young,
	}
	if c.SpeedKmh != 0 {
		p.SpeedKmh, p.Share = new(round(c.SpeedKmh, 10)), new(round(c.SpeedKmh/c.FreeKmh, 1000))
	}
	if c.Since != 0 {
		p.Since = new(c.Since.Time())
	}
	return p
}

// lineOf is asideMetres to the right of the middle of the cell, so that the two directions of a
// road are side by side. At the date line it ends.
func lineOf(s driving.Stretch) Line {
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

func round(x, parts float64) float64 { return math.Round(x*parts) / parts }

// Serve answers with a [Collection] of at most limit stretches. way may be nil.
func Serve(w http.ResponseWriter, r *http.Request, s Selection, limit int, way []string) {
	w.Header().Set("Content-Type", "application/geo+json")
	w.Header().Set("Vary", "Accept-Encoding")
	var to io.Writer = w
	if accepted := r.Header.Get("Accept-Encoding"); strings.Contains(accepted, "gzip") &&
		!strings.Contains(accepted, "gzip;q=0") {
		w.Header().Set("Content-Encoding", "gzip")
		packed, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // the level is valid
		defer func() { _ = packed.Close() }()               // fails if the client has disconnected
		to = packed
	}
	some := s.Worst[:min(len(s.Worst), limit)]
	collection := struct {
		Collection
		Features []road.Condition `json:"features"` // in place of those of the Collection
	}{Collection{
		Type: "FeatureCollection", At: s.At.UTC(), Known: s.Known, Truncated: s.Known > len(some), Way: way,
		Jams: s.Jams,
	}, some}
	// All features at once would take 5 MB for each of up to 512 slow connections.
	oneByOne := json.WithMarshalers(json.MarshalToFunc(func(e *jsontext.Encoder, c road.Condition) error {
		return json.MarshalEncode(e, Feature{"Feature", lineOf(c.Stretch), Describe(c)})
	}))
	if json.MarshalWrite(to, collection, oneByOne) == nil { // else the client has disconnected
		_, _ = to.Write([]byte("\n"))
	}
}
