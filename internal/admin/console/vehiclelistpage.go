package console

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/vehicle"
)

type vehiclesView struct {
	ops.VehiclePage
	ops.VehicleQuery
	Rows []vehicleRow
}

type vehicleRow struct {
	ops.ListedVehicle
	Driving, Throttle string // CSS classes
	Read              *time.Time
	Why               []string
}

func (v vehiclesView) Filtered() bool { return v.Address("sort", "") != "/vehicles" }

// Address returns the page's URL with one parameter changed. An export ("format") has no order.
func (v vehiclesView) Address(name, value string) string {
	q := v.VehicleQuery
	q.Limit, q.Cursor = 0, ""
	if name == "format" {
		q.Sort = ""
	}
	values := q.Values()
	values.Set(name, value)
	return address("/vehicles", values)
}

func (c *Console) vehiclesPage(w http.ResponseWriter, r *http.Request, s *session) {
	values := r.URL.Query()
	// The form has one field for two parameters of the API.
	if is := values.Get("is"); slices.Contains(ops.DrivingFilters, is) {
		values.Set("driving", is)
	} else if is != "" {
		values.Set("reason", is)
	}
	values.Del("is")
	format := values.Get("format")
	values.Del("format")
	q, err := ops.AskedVehicles(values)
	if err != nil {
		c.showVehicles(w, r, s, err, ops.VehicleQuery{})
		return
	}
	if format != "" {
		if err := c.Ops.ServeVehicles(w, r, q, format); err != nil {
			c.fail(w, s, "Vehicles", c.Ops.Explain("vehicle.list", err))
		}
		return
	}
	c.showVehicles(w, r, s, nil, q)
}

func (c *Console) showVehicles(w http.ResponseWriter, r *http.Request, s *session, problem error, q ops.VehicleQuery) {
	v := vehiclesView{VehicleQuery: q}
	q.Limit = listed
	list, err := c.Ops.Vehicles(r.Context(), q)
	if err != nil {
		v.Cursor, q.Cursor = "", ""
		problem = cmp.Or[error](problem, c.Ops.Explain("vehicle.list", err))
		list, _ = c.Ops.Vehicles(r.Context(), q) // the cursor may be invalid
	}
	v.VehiclePage = list
	for _, listed := range list.Vehicles {
		if row, ok := c.vehicleRow(r.Context(), listed); ok {
			v.Rows = append(v.Rows, row)
		}
	}
	c.showForm(w, s, problem, "vehicles", page{Title: "Vehicles", Section: "vehicles", Data: v})
}

func (c *Console) vehicleRow(ctx context.Context, v ops.ListedVehicle) (row vehicleRow, ok bool) {
	row = vehicleRow{ListedVehicle: v, Driving: "none", Throttle: "none", Read: v.Driving.Time}
	if v.Throttle.Time != nil && (row.Read == nil || v.Throttle.Time.After(*row.Read)) {
		row.Read = v.Throttle.Time
	}
	switch d := v.Driving; {
	case d.Outcome == vehicle.NotDriving.String():
		row.Driving = "rest"
	case d.Outcome == "answered":
		row.Driving = map[string]string{"1": "normal", "2": "slow", "3": "jam"}[d.Value]
	}
	if v.Throttle.Outcome == "answered" {
		row.Throttle = map[string]string{"0": "anomaly", "1": "healthy"}[v.Throttle.Value]
	}
	s, ok, err := c.Ops.State(ctx, vehicle.ID(v.VID))
	switch {
	case err != nil:
		row.Why = []string{"its state cannot be read at present"}
		return row, true
	case !ok:
		return row, false
	}
	if row.Throttle == "anomaly" {
		row.Why = append(row.Why, s.ExplainThrottle().Text)
	}
	if row.Driving == "jam" || row.Driving == "slow" {
		row.Why = append(row.Why, s.ExplainDriving().Text)
	}
	return row, true
}
