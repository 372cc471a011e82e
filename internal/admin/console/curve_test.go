package console

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

func TestCurve_ShowsFoldedSamples(t *testing.T) {
	var samples []vehicle.Sample
	for i := range 600 {
		x := vehicle.Sample{Vehicle: "carA", Time: signal.At(noon.Add(time.Duration(i-600) * time.Second))}
		kmh := 50.0
		if i > 120 {
			kmh = float64(i % 3) // a jam
		}
		testkit.NoError(t, x.Set(signal.Speed, kmh))
		samples = append(samples, x)
	}
	recent := func(_ context.Context, id vehicle.ID, _ int) ([]vehicle.Sample, time.Time, bool, error) {
		if id == "broken" {
			return nil, time.Time{}, false, errors.New("no engine")
		}
		return samples, noon.Add(-time.Hour), true, nil
	}
	con := New(Config{Recent: recent, Registry: prometheus.NewRegistry()})
	v := con.curve(t.Context(), "carA", &vehicle.State{}).view()
	if v.Points != 600 || !v.All || v.Most != 50 || v.Levels[0].Value != 60 || len(v.Bands) < 2 ||
		v.Bands[0].Class != "normal" || v.Bands[len(v.Bands)-1].Class != "jam" {
		t.Fatalf("got %+v, want 600 points that begin normal and end in a jam", v)
	}
	end := 0.
	for _, b := range v.Bands {
		if b.X != end {
			t.Errorf("the bands leave gaps: %+v", v.Bands)
		}
		end = b.X + b.Width
	}
	if end != chartWidth {
		t.Errorf("the bands end early: %+v", v.Bands)
	}
	if v.Spells[0].Class != "jam" || !v.Spells[0].Till.Equal(noon.Add(-time.Second)) {
		t.Errorf("got spells %+v, want the jam first", v.Spells)
	}
	if !strings.HasPrefix(v.Line, "M0.0 40.0L") || strings.Count(v.Line, "M") != 1 {
		t.Errorf("the line is %.40s…", v.Line)
	}
	if v := con.curve(t.Context(), "broken", &vehicle.State{}).view(); !v.Failed || v.Points != 0 {
		t.Errorf("got %+v, want a failed curve without points", v)
	}
}

func TestCurveGapsAndBounds(t *testing.T) {
	point := func(second int, kmh float32) speedPoint {
		return speedPoint{signal.At(noon.Add(time.Duration(second) * time.Second)), kmh, "normal"}
	}
	k := &curve{points: []speedPoint{point(0, 10), point(1, 10), point(600, 10), point(601, 10)}}
	if v := k.view(); strings.Count(v.Line, "M") != 2 || len(v.Bands) != 2 ||
		v.Bands[0].Till.After(noon.Add(time.Second)) {
		t.Errorf("got %+v, want two lines and two bands", v)
	}
	k = &curve{points: []speedPoint{point(0, 10), point(7200, 10), point(7201, 11)}}
	if v := k.view(); v.Points != 2 {
		t.Errorf("more than an hour is drawn: %+v", v)
	}
	for _, points := range [][]speedPoint{nil, {point(0, 1)}, {point(0, 1), point(7200, 2)}} {
		if v := (&curve{points: points}).view(); v.Points != 0 || v.Line != "" {
			t.Errorf("got %+v, want nothing to draw", v)
		}
	}
	var many []speedPoint
	for i := range maxPoints {
		many = append(many, speedPoint{signal.At(noon.Add(time.Duration(i) * curveSpan / maxPoints)),
			float32(i % 97), "normal"})
	}
	if v := (&curve{points: many}).view(); v.Points != maxPoints || strings.Count(v.Line, "L") > 2*drawnPieces ||
		!strings.Contains(v.Line, " 240.0") {
		t.Errorf("%d points are drawn as %.40s…", v.Points, v.Line)
	}
	k = new(curve)
	for i := range maxPoints + 10 {
		var s vehicle.State
		s.Latest[signal.OBDSpeed] = signal.Reading{Value: 1, Time: signal.At(noon).Add(time.Duration(i) * time.Second)}
		k.note(&s)
		k.note(&s) // the same state again
	}
	if len(k.points) > maxPoints || len(k.points) < maxPoints/2 || k.points[0].at >= k.points[1].at {
		t.Errorf("%d points are kept", len(k.points))
	}
}

func FuzzForms(f *testing.F) {
	f.Add("A, B\nC", "/tokens")
	f.Add("a-b\x00", "//evil")
	f.Fuzz(func(t *testing.T, list, next string) {
		v, err := parseVehicles(list)
		switch {
		case err != nil && strings.ContainsAny(err.Error(), "\n\r"):
			t.Errorf("%q", err)
		case err == nil && (v.All() || v.Len() == 0):
			t.Error("an empty list, or all, came of a list")
		}
		if p := localPath(next); !strings.HasPrefix(p, "/") || strings.HasPrefix(p, "//") ||
			strings.ContainsAny(p, "\\:?#%\r\n") {
			t.Errorf("%q leads to %q", next, p)
		}
	})
}
