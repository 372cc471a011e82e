package console_test

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/carstate/internal/admin/console"
	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/fleet"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/throttle"
	"example.org/carstate/internal/vehicle"
)

func TestCountFleet(t *testing.T) {
	table, now := fleet.New(), signal.At(noon)
	put := func(n int, driving vehicle.DrivingVerdict, throttle vehicle.ThrottleVerdict) {
		for i := range n {
			table.Put(vehicle.ID(fmt.Sprintf("car%d%d%d", driving.State, n, i)),
				fleet.Answer{Driving: driving, Throttle: throttle})
		}
	}
	good := func(age time.Duration) vehicle.ThrottleVerdict {
		return vehicle.ThrottleVerdict{System: throttle.Normal, Time: now.Add(-age)}
	}
	put(2, vehicle.DrivingVerdict{State: driving.Normal, Time: now}, good(0))
	put(3, vehicle.DrivingVerdict{State: driving.Slow, Time: now.Add(-30 * time.Second)}, good(30*time.Second))
	put(4, vehicle.DrivingVerdict{State: driving.Jam, Time: now.Add(-5 * time.Minute)},
		vehicle.ThrottleVerdict{Time: now.Add(-5 * time.Minute)})
	put(5, vehicle.DrivingVerdict{State: driving.Jam, Time: now.Add(-time.Hour)}, good(time.Hour))
	put(6, vehicle.DrivingVerdict{NotDriving: true, Time: now.Add(-2 * time.Minute)}, good(30*24*time.Hour))
	put(7, vehicle.DrivingVerdict{}, good(8*24*time.Hour))
	s := console.NewMonitor(table, prometheus.NewRegistry(), 5*time.Minute, func() time.Time { return noon }).Counts()
	want := console.FleetCounts{
		At: noon, Vehicles: 27,
		Driving:  map[string]int{"normal": 2, "slow": 3, "jam": 4, "not_driving": 6, "stale": 5, "unknown": 7},
		Throttle: map[string]int{"anomaly": 4, "normal": 5, "stale": 18, "unknown": 0},
		Ages:     []int{2, 3, 10, 5, 0, 0, 7},
	}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("got %+v, want\n%+v", s, want)
	}
}

func TestFleetPage_RefusedKeys(t *testing.T) {
	keys := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "carstate_ingest_keys_refused_total", Help: "x"},
		[]string{"reason"})
	f := loggedIn(t, func(c *console.Config) { c.Registry.MustRegister(keys) })
	const none = "No sample, no source's key and no query was refused"
	f.want(f.get("/"), http.StatusOK, none)
	keys.WithLabelValues("unknown").Add(3)
	f.readMetrics()
	a := f.get("/")
	f.want(a, http.StatusOK, `<td>key</td><th scope="row"><code>unknown</code></th><td class="n">3</td>`)
	f.lacks("the page says that nothing was refused", a, "was refused since")
}

func TestEngine_HidesWhatIsNotMeasured(t *testing.T) {
	f := loggedIn(t)
	of := func(name, label string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: "x"}, []string{label})
		f.metrics.MustRegister(g)
		return g
	}
	size, limit := of("carstate_stream_bytes", "stream"), of("carstate_stream_limit_bytes", "stream")
	for _, stream := range []string{"TELEMETRY", "STATES"} {
		size.WithLabelValues(stream).Set(0)
		limit.WithLabelValues(stream).Set(4 << 30)
	}
	size.WithLabelValues("STATES").Set(2048)
	const backlog, behind = "Oldest sample not folded yet", "Partitions behind"
	check := func(when, shown string, hidden ...string) {
		t.Helper()
		f.readMetrics()
		page := f.get("/")
		f.want(page, http.StatusOK, "Accepts writes", shown)
		for _, text := range hidden {
			if strings.Contains(page.body, text) {
				t.Errorf("%s: got %q in the page, want no such row", when, text)
			}
		}
	}
	check("without feeds", "2.0 KiB", "0 B", "TELEMETRY", "Age of this node", "not known yet", backlog)
	of("carstate_feed_age_seconds", "stream").WithLabelValues("STATES").Set(.5)
	ages := of("carstate_backlog_seconds", "partition")
	ages.WithLabelValues("0").Set(4)
	check("with feeds", "500 ms", behind)
	f.want(f.get("/"), http.StatusOK, backlog, "<dd>4 s</dd>", "Age of this node")
	for p := range 9 {
		ages.WithLabelValues(strconv.Itoa(10 + p)).Set(float64(20 + p))
	}
	const row = `<tr><th scope="row">%d</th><td class="n">%d s</td></tr>`
	check("with a backlog", behind, fmt.Sprintf(row, 10, 20), fmt.Sprintf(row, 0, 4))
	f.want(f.get("/"), http.StatusOK, "<dd>28 s</dd>", "<tbody>"+fmt.Sprintf(row+row, 18, 28, 17, 27))
}

func TestHowFarTheCurveGot(t *testing.T) {
	since, all := noon, false
	begun, release := make(chan struct{}), make(chan struct{})
	f := newFixture(t, func(c *console.Config) {
		c.Recent = func(_ context.Context, id vehicle.ID, _ int) (store.Recent, error) {
			if id == "other" {
				begun <- struct{}{}
				<-release
			}
			return store.Recent{Since: since, All: all}, nil
		}
	})
	f.report("carA", jammed(time.Minute))
	f.logIn(f.key)
	f.want(f.get("/vehicles/carA"), 200, "No retained telemetry could be read within 2 s")
	since = noon.Add(-3 * time.Minute)
	f.want(f.get("/vehicles/carA"), 200, "From the telemetry stored in the last 3 min;")
	all = true
	f.want(f.get("/vehicles/carA"), 200, "From all telemetry that is retained.")
	var reading sync.WaitGroup
	defer reading.Wait()
	defer close(release)
	f.report("other", jammed(time.Minute))
	for range 2 { // as many as are read at a time
		reading.Go(func() { f.get("/vehicles/other") })
		<-begun
	}
	f.want(f.get("/vehicles/carA"), 200, "others are being read at the moment: load the page again")
}
