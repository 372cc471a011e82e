package roadtest

import (
	"math"
	"testing"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/road"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

// State returns almost the largest state that can be stored.
func State(t testing.TB) vehicle.State {
	t.Helper()
	var s vehicle.State
	roads, latitude := new(road.Map), 44.5
	for i := range 600 {
		x := vehicle.Sample{Vehicle: "carA", Time: signal.UnixMilli(1_795_000_000_000 + int64(i)*1000)}
		pedal := 50 + 45*math.Sin(float64(i)/7)
		latitude += pedal / 2 / 3.6 / 111_195
		for g := range signal.Signal(signal.Num) {
			var err error
			switch g {
			case signal.Speed, signal.OBDSpeed:
				err = x.Set(g, pedal/2)
			case signal.EngineSpeed:
				err = x.Set(g, 800+30*pedal)
			case signal.FreeFlowSpeed:
				err = x.Set(g, 50)
			case signal.CurrentLatitude:
				err = x.Set(g, latitude)
			case signal.CurrentLongitude:
				err = x.Set(g, 11.34)
			case signal.CurrentHeading, signal.CurrentAccuracy:
				err = x.Set(g, 1)
			case signal.MILOn:
				err = x.Set(g, 0)
			case signal.DTCList:
				err = x.SetCodes(nil)
			case signal.LowVoltageSystemState:
				err = x.SetIgnition(signal.IgnitionOn.String())
			default:
				err = x.Set(g, pedal*0.8+float64(g))
			}
			testkit.NoError(t, err)
		}
		roads.Fold(&s, &x, false)
	}
	if s.Way.Count == 0 || s.Road == (driving.RoadAround{}) {
		t.Fatalf("the car: got no way, want one: %+v", s)
	}
	return s
}
