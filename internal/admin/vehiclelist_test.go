package admin_test

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/test/opstest"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/throttle"
	"example.org/carstate/internal/vehicle"
)

func listing(t *testing.T) *service {
	t.Helper()
	table := opstest.NewFleet()
	s := startOps(t, func(c *ops.Config) { c.Fleet, c.MaxAge = table.Table, 5*time.Minute })
	put := func(id vehicle.ID, ago time.Duration, d vehicle.DrivingVerdict, system throttle.System) {
		at := signal.At(noon.Add(-ago))
		d.Time = at
		throttle := vehicle.ThrottleVerdict{System: system, Time: at}
		if id == "NoThrottle" {
			throttle = vehicle.ThrottleVerdict{}
		}
		table.Put(id, d, throttle)
	}
	normal := vehicle.DrivingVerdict{State: driving.Normal}
	put("Normal", 1*time.Second, normal, throttle.Normal)
	put("NoThrottle", 2*time.Second, normal, throttle.Normal)
	put("Slow", 3*time.Second, vehicle.DrivingVerdict{State: driving.Slow}, throttle.Normal)
	put("Anomaly", 4*time.Second, normal, throttle.Anomaly)
	put("Parked", 5*time.Second, vehicle.DrivingVerdict{NotDriving: true}, throttle.Normal)
	put("Stale", time.Hour, vehicle.DrivingVerdict{State: driving.Jam}, throttle.Anomaly)
	table.Put("Unknown", vehicle.DrivingVerdict{}, vehicle.ThrottleVerdict{})
	for i := range 20 {
		put(vehicle.ID(fmt.Sprintf("Jam%02d", i)), time.Duration(10+i)*time.Second,
			vehicle.DrivingVerdict{State: driving.Jam}, throttle.Normal)
	}
	return s
}

func vidsOf(list []ops.ListedVehicle) (vids []string) {
	for _, v := range list {
		vids = append(vids, v.VID)
	}
	return vids
}

func TestVehiclesAreFiltered(t *testing.T) {
	s := listing(t)
	for _, body := range []string{`{"name":"north","vehicles":["Normal","Slow","Stale","Never"]}`,
		`{"name":"everywhere","vehicles":"all"}`} {
		s.want(t, "POST", "/v1/sources", body, http.StatusCreated, "")
	}
	for _, c := range []struct {
		q    ops.VehicleQuery
		want string
	}{
		{ops.VehicleQuery{Driving: "normal"}, "Anomaly Normal NoThrottle"},
		{ops.VehicleQuery{Driving: "normal", Sort: "newest"}, "Normal NoThrottle Anomaly"},
		{ops.VehicleQuery{Driving: "normal", Sort: "oldest"}, "Anomaly NoThrottle Normal"},
		{ops.VehicleQuery{Driving: "slow"}, "Slow"},
		{ops.VehicleQuery{Driving: "jam", Prefix: "Jam1", Limit: 3}, "Jam10 Jam11 Jam12"},
		{ops.VehicleQuery{Throttle: "anomaly"}, "Anomaly"},
		{ops.VehicleQuery{Throttle: "normal", Driving: "normal"}, "Normal"},
		{ops.VehicleQuery{Reason: "stale"}, "Stale"},
		{ops.VehicleQuery{Reason: "not_driving"}, "Parked"},
		{ops.VehicleQuery{Reason: "unknown"}, "Unknown"},
		{ops.VehicleQuery{Prefix: "No"}, "Normal NoThrottle"},
		{ops.VehicleQuery{Prefix: "no"}, ""},
		{ops.VehicleQuery{Source: "north"}, "Slow Stale Normal"},
		{ops.VehicleQuery{Source: "north", Driving: "normal"}, "Normal"},
		{ops.VehicleQuery{Source: "north", Prefix: "S", Sort: "oldest"}, "Stale Slow"},
		{ops.VehicleQuery{Source: "everywhere", Driving: "slow"}, "Slow"},
		{ops.VehicleQuery{Limit: 3}, "Anomaly Jam00 Jam01"},
		{ops.VehicleQuery{Sort: "oldest", Limit: 2}, "Unknown Stale"},
	} {
		page, err := s.Vehicles(t.Context(), c.q)
		if got := strings.Join(vidsOf(page.Vehicles), " "); err != nil || got != c.want || page.Known != 27 {
			t.Errorf("%+v: got %q of %d, %v; want %q of 27", c.q, got, page.Known, err, c.want)
		}
		if c.q.Limit != 0 || c.q.Sort != "" {
			continue
		}
		var out bytes.Buffer
		testkit.NoError(t, s.Export(t.Context(), &out, "/v1/vehicles", c.q.Values(), "csv"))
		rows, err := csv.NewReader(&out).ReadAll()
		if err != nil || len(rows) != page.Matched+1 || rows[0][0] != "vid" {
			t.Fatalf("the export of %+v: got %d rows, %v; want %d", c.q, len(rows), err, page.Matched+1)
		}
		var vids []string
		for _, row := range rows[1:] {
			vids = append(vids, row[0])
		}
		slices.Sort(vids)
		want := strings.Fields(c.want)
		if slices.Sort(want); !slices.Equal(vids, want) {
			t.Errorf("the export of %+v: got %q, want %q", c.q, vids, want)
		}
	}
	s.want(t, "GET", "/v1/vehicles?reason=stale", "", http.StatusOK,
		`"vehicles":[{"vid":"Stale","driving":{"outcome":"stale","verdict":"traffic jam","value":"3",`+
			`"time":"2026-11-20T11:00:00Z"},"throttle":{"outcome":"stale","verdict":"anomaly","value":"0",`+
			`"time":"2026-11-20T11:00:00Z"}}],"next":""}`)
}

func TestVehiclesArePaged(t *testing.T) {
	s := listing(t)
	q, seen := ops.VehicleQuery{Driving: "jam", Limit: 7}, []string{}
	for {
		page, err := s.Vehicles(t.Context(), q)
		if err != nil || page.Matched != 20 {
			t.Fatalf("a page of %+v: got %d matched, %v; want 20", q, page.Matched, err)
		}
		seen = append(seen, vidsOf(page.Vehicles)...)
		if page.Next == "" {
			break
		}
		q.Cursor = page.Next
	}
	if len(seen) != 20 || seen[0] != "Jam00" || seen[19] != "Jam19" || !slices.IsSorted(seen) {
		t.Errorf("all pages: got %q, want Jam00 to Jam19", seen)
	}
	for _, cursor := range []string{"AAAA", "*", q.Cursor + "A", q.Cursor[1:]} {
		_, err := s.Vehicles(t.Context(), ops.VehicleQuery{Driving: "jam", Cursor: cursor})
		refused(t, fmt.Sprintf("the cursor %q", cursor), err, http.StatusBadRequest, "begin with the first page")
	}
}

func second[A any](_ A, err error) error { return err }

func TestVehiclesRefusesWhatThereIsNot(t *testing.T) {
	s := listing(t)
	for query, says := range map[string]string{
		"driving=fast":                     "driving must be one of normal, slow, jam",
		"throttle=0":                       "throttle must be one of normal, anomaly",
		"reason=answered":                  "reason must be one of stale, not_driving, unknown",
		"sort=vid":                         "sort must be one of trouble, newest, oldest",
		"prefix=" + url.QueryEscape("a b"): "prefix must be the beginning of a vid",
		"limit=0":                          "limit must be a number from 1 to 1000",
		"limit=1001":                       "limit must be a number from 1 to 1000",
		"limit=x":                          "limit must be a number from 1 to 1000",
		"driving=jam&reason=stale":         "give one of them",
		"driving=jam&driving=slow":         "each parameter is given once",
		"source=gateway":                   "there is no source of this name",
		"origin=gateway":                   "a list of vehicles takes driving",
		"format=xml":                       "format is json, ndjson or csv",
		"format=csv&sort=newest":           "leave out sort, limit and cursor",
	} {
		s.want(t, "GET", "/v1/vehicles?"+query, "", http.StatusBadRequest, says)
	}
}

func TestVehiclesExport(t *testing.T) {
	s := listing(t)
	accept := func(kind string) func(*http.Request) { return header("Accept", kind) }
	a := s.do(t, "GET", "/v1/vehicles?throttle=anomaly", "", accept("text/csv;q=1, */*"))
	want := "Anomaly,answered,normal driving,1,2026-11-20T11:59:56Z,answered,anomaly,0,2026-11-20T11:59:56Z\n"
	if a.header.Get("Content-Type") != "text/csv; charset=utf-8" ||
		!strings.HasSuffix(a.body, "throttle_time\n"+want) ||
		a.header.Get("Content-Disposition") != `attachment; filename="vehicles.csv"` {
		t.Errorf("the CSV: got %v %s, want the file vehicles.csv that ends with %s", a.header, a.body, want)
	}
	a = s.do(t, "GET", "/v1/vehicles", "", accept("application/x-ndjson"))
	if a.header.Get("Content-Type") != "application/x-ndjson" || strings.Count(a.body, "\n") != 27 ||
		!strings.Contains(a.body, "\n{\"vid\":") {
		t.Errorf("the NDJSON: got %v %s, want 27 lines of vehicles", a.header, a.body)
	}
	for _, kind := range []string{"*/*", "application/json", "text/*;q=nonsense", ""} {
		if a = s.do(t, "GET", "/v1/vehicles", "", accept(kind)); a.header.Get("Content-Type") != "application/json" {
			t.Errorf("Accept %q: got the header %v, want application/json", kind, a.header)
		}
	}
	a = s.do(t, "GET", "/v1/vehicles?format=csv&prefix=Nobody", "")
	if a.status != 200 || a.body != "vid,driving_outcome,driving_verdict,driving_value,driving_time,"+
		"throttle_outcome,throttle_verdict,throttle_value,throttle_time\n" {
		t.Errorf("the CSV of nobody: got %d %s, want 200 and the head alone", a.status, a.body)
	}
}

func TestVehiclesOfANodeThatStarts(t *testing.T) {
	for _, path := range []string{"/v1/vehicles", "/v1/vehicles?format=csv"} {
		s := startOps(t, func(c *ops.Config) { c.Filled = func() error { return errors.New("starting") } })
		s.want(t, "GET", path, "", http.StatusServiceUnavailable, "try again in a few seconds")
	}
}
