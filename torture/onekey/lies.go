package onekey

import (
	"context"
	"fmt"
	"strings"
	"time"

	"example.org/carstate/bench/must"
	"example.org/carstate/internal/access"
	"example.org/carstate/internal/nodeprocess"
	"example.org/carstate/internal/vehicle"
	"example.org/carstate/torture/row"
)

// lie is what the cars of one source claim about a street where traffic flows at flowKmh.
type lie struct {
	name     string
	kmh      float64
	ago      time.Duration // of the newest quarter hour
	quarters int
}

const (
	flowKmh, streetMetres = 45, 1500
	invented              = 30 // cars of the lying source
)

var lies = []lie{
	{"290 km/h two days ago", 290, 48 * time.Hour, 6},
	{"130 km/h since yesterday", 130, 16 * time.Hour, 12},
	{"290 km/h now", 290, 5 * time.Minute, 1},
	{"4 km/h now", 4, 5 * time.Minute, 1},
}

// tellLies tells each lie about a street of its own, and counts the gateway's cars that are then
// not called normal.
func (t *target) tellLies(ctx context.Context, a *row.Attempt) {
	c := must.Get(t.AdminClient())
	gateway, token := must.Get(t.AddSource(ctx, "gateway")), must.Get(t.IssueToken(ctx, "Ada")).AccessToken
	drive := func(street int, key, name string, cars int, kmh float64, last time.Time, gap time.Duration) {
		var lines strings.Builder
		steps := int(min(streetMetres/(kmh/3.6*5), 24))
		for i := range steps + 1 {
			for k := range cars {
				at := last.Add(time.Duration(k-cars)*gap - time.Duration(steps-i)*5*time.Second)
				fmt.Fprintf(&lines, `{"vid":"%s%dx%d","time":%d,"signals":{"Vehicle.Speed":%g,`+
					`"Vehicle.CurrentLocation.Latitude":%.7f,"Vehicle.CurrentLocation.Longitude":11.34,`+
					`"Vehicle.CurrentLocation.Heading":0}}`+"\n", name, street, k, at.UnixMilli(), kmh,
					44.5+float64(street)/10+min(float64(i)*kmh/3.6*5, streetMetres)/111_195)
			}
		}
		row.Feed(ctx, t.Node, key, lines.String())
	}
	for i, l := range lies {
		var vids []vehicle.ID
		for k := range invented {
			vids = append(vids, vehicle.ID(fmt.Sprintf("Liar%dx%d", i, k)))
		}
		key := must.Get(c.AddSource(ctx, access.Request{Name: fmt.Sprint("liar", i), Vehicles: access.VehicleSet(vids...)})).Key
		now := time.Now()
		for q := range 6 {
			drive(i, gateway, fmt.Sprintf("Free%dx", q), 6, flowKmh, now.Add(time.Duration(q-8)*15*time.Minute), 20*time.Second)
		}
		for q := range l.quarters {
			drive(i, key, "Liar", invented, l.kmh, now.Add(-l.ago+time.Duration(q-l.quarters+1)*15*time.Minute), 2*time.Second)
		}
		const cars = 12
		drive(i, gateway, "Car", cars, flowKmh, now, 20*time.Second)
		wrong := 0
		for k := range cars {
			vid := fmt.Sprintf("Car%dx%d", i, k)
			end := now.Add(time.Duration(k-cars) * 20 * time.Second).Truncate(time.Second)
			must.Do(nodeprocess.Until(ctx, time.Minute, func(ctx context.Context) error {
				answer, err := t.Ask(ctx, nodeprocess.DrivingPath, token, vid)
				switch {
				case err == nil && answer.Modified.Before(end):
					return fmt.Errorf("%s is folded until %s", vid, answer.Modified)
				case err == nil && answer.Driving == "3":
					wrong++
				}
				return err
			}))
		}
		a.None("cars of another source in a false jam: "+l.name, wrong)
	}
}
