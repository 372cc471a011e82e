// Package soak is the row with a steady load of all kinds, during which the node must not grow.
package soak

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"example.org/carstate/bench/must"
	"example.org/carstate/bench/report"
	"example.org/carstate/internal/access"
	"example.org/carstate/internal/admin/client"
	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/torture/load"
	"example.org/carstate/torture/row"
)

var Row = row.Row{
	Name: "soak", Counts: "minutes", CI: 1, FlagOnly: true,
	Run: run,
}

const sampleEvery = 2 * time.Second

func run(ctx context.Context, a *row.Attempt) {
	// The journal's samples are a day old at first.
	n := must.Get(a.Start(ctx, "--retention", "1m", "--max-age", "87600h"))
	defer n.Kill()
	t := newTraffic(ctx, a, n)
	during := time.Duration(a.Count) * time.Minute
	running, cancel := context.WithTimeout(ctx, during)
	defer cancel()
	s := &series{of: make(map[string][]float64)}
	tasks := append(t.tasks(), func(ctx context.Context) { s.watch(ctx, n) })
	must.Together(running, len(tasks), func(ctx context.Context, i int) {
		if err := must.Caught(func() { tasks[i](ctx) }); ctx.Err() == nil {
			must.Do(err)
		}
	})
	must.Do(ctx.Err())
	s.report(a)
	t.held.HoldVehicles(ctx, n, t.held.Vehicles())
}

type series struct {
	at []float64 // hours
	of map[string][]float64
}

// floor is the growth over the second half that chance can cause.
var limits = []struct {
	name, unit string
	floor      float64
	most       float64
}{
	{"resident memory", "MiB", 16, 512},
	{"goroutines", "", 10, 0},
	{"descriptors", "", 10, 0},
	{"store", "MiB", 32, 256},
}

// Allowed growth per hour, of the median, besides the floor.
const anHour = 0.01

func (s *series) watch(ctx context.Context, n *nodeprocess.Node) {
	for began := time.Now(); ctx.Err() == nil; row.Pause(ctx, sampleEvery) {
		if n.HasEnded() {
			must.Fail("the node ended:\n%s", n.Log())
		}
		m := must.Get(n.Metrics(ctx))
		s.at = append(s.at, time.Since(began).Hours())
		for name, v := range map[string]float64{
			"resident memory": float64(must.Get(n.Resident())) / (1 << 20), "goroutines": m["go_goroutines"],
			"descriptors": m["process_open_fds"], "store": float64(must.Get(report.DirSize(n.Dir))) / (1 << 20),
		} {
			s.of[name] = append(s.of[name], v)
		}
	}
}

func (s *series) report(a *row.Attempt) {
	half := len(s.at) / 2
	if len(s.at)-half < 5 {
		a.Wrong("there were only %d measurements", len(s.at))
		return
	}
	hours := s.at[len(s.at)-1] - s.at[half]
	for _, l := range limits {
		values := s.of[l.name][half:]
		middle, most := report.Median(values), slices.Max(values)
		grown := slope(s.at[half:], values) * hours
		allowed := l.floor + anHour*middle*hours
		a.Figure(l.name+", median of the second half", middle, l.unit)
		a.Aimed(l.name+": trend over the second half", grown, l.unit, fmt.Sprintf("≤ %.1f %s", allowed, l.unit),
			grown <= allowed)
		if l.most > 0 {
			a.AtMost(l.name+" at most", most, l.unit, l.most)
		}
	}
}

const (
	cars            = 2000
	tickTime        = 100 * time.Millisecond
	tickSamples     = 20
	tickQueries     = 20
	mqttCars        = 20
	carStays        = 30 * time.Second
	operationsEvery = 10 * time.Second
)

type traffic struct {
	a     *row.Attempt
	n     *nodeprocess.Node
	admin *client.Client
	key   string
	token string

	held *load.Load
}

func newTraffic(ctx context.Context, a *row.Attempt, n *nodeprocess.Node) (t *traffic) {
	t = &traffic{a: a, n: n, held: load.New(a)}
	t.admin = must.Get(n.AdminClient())
	t.key, t.token = t.held.Prepare(ctx, n)
	for i := range cars / tickSamples {
		t.post(ctx, i)
	}
	must.Do(n.AwaitAnswer(ctx, time.Minute, t.token, vid(cars-1), time.Time{}))
	return t
}

func (t *traffic) tasks() (all []func(context.Context)) {
	each := func(every time.Duration, do func(context.Context, int)) {
		all = append(all, func(ctx context.Context) {
			for i := 0; ctx.Err() == nil; i++ {
				next := time.Now().Add(every)
				do(ctx, i)
				row.Pause(ctx, time.Until(next))
			}
		})
	}
	each(tickTime, t.post)
	each(tickTime, t.ask)
	each(operationsEvery, t.operations)
	each(operationsEvery, t.console)
	each(operationsEvery, t.hold)
	for i := range mqttCars {
		r := t.a.Rand(i)
		each(time.Millisecond, func(ctx context.Context, _ int) { t.drive(ctx, vid(r.IntN(cars/mqttCars)*mqttCars+i)) })
	}
	return all
}

func vid(i int) string { return fmt.Sprint("Soak", i) }

func (t *traffic) post(ctx context.Context, i int) {
	at := time.Now().Unix()
	samples := make([]load.Sample, tickSamples)
	for k := range samples {
		samples[k] = load.Sample{VID: vid((i*tickSamples + k) % cars), At: at}
	}
	if ok, err := t.held.Post(ctx, t.n, samples); !ok {
		must.Do(ctx.Err())
		t.a.Wrong("telemetry was not taken: %v", err)
	}
}

// The last query uses a new connection.
func (t *traffic) ask(ctx context.Context, i int) {
	for k := range tickQueries - 1 {
		path := nodeprocess.DrivingPath
		if k%2 == 1 {
			path = nodeprocess.ThrottlePath
		}
		r := must.Get(t.n.Ask(ctx, path, t.token, vid((i*tickQueries+k)%(2*cars))))
		if r.HTTP != http.StatusOK {
			t.a.Wrong("a query was answered with %d", r.HTTP)
		}
	}
	once := t.connection(nodeprocess.Query)
	defer once.Close()
	answer, _ := must.Get2(once.Ask(ctx, row.Question(nodeprocess.DrivingPath, t.token, vid(i%cars))))
	if answer.StatusCode != http.StatusOK {
		t.a.Wrong("a query on a new connection was answered with %d", answer.StatusCode)
	}
}

func (t *traffic) connection(listener string) *row.Conn {
	return &row.Conn{To: t.n.Address(listener), Limit: 30 * time.Second}
}

func (t *traffic) operations(ctx context.Context, i int) {
	token := must.Get(t.admin.IssueToken(ctx, access.Credential{Developer: "Bob", Operations: access.AllOperations,
		Vehicles: access.AllVehicles()}))
	rotated := must.Get(t.admin.RotateToken(ctx, token.ID, 0))
	t.expect(ctx, rotated.AccessToken, http.StatusOK)
	must.Get(t.admin.RevokeToken(ctx, token.ID))
	t.expect(ctx, rotated.AccessToken, http.StatusUnauthorized)
	must.Get(t.admin.Tokens(ctx))
	must.Get(t.admin.Sources(ctx))
	must.Get(t.admin.SearchAudit(ctx, url.Values{"limit": {"100"}}))
}

// An operator's change takes effect after a moment.
func (t *traffic) expect(ctx context.Context, token string, status int) {
	must.Do(nodeprocess.Until(ctx, 10*time.Second, func(ctx context.Context) error {
		r, err := t.n.Ask(ctx, nodeprocess.DrivingPath, token, vid(0))
		if err == nil && r.HTTP != status {
			err = fmt.Errorf("a token is answered with %d and not %d", r.HTTP, status)
		}
		return err
	}))
}

func (t *traffic) console(ctx context.Context, i int) {
	c := t.connection(nodeprocess.Admin)
	defer c.Close()
	head, form := " HTTP/1.1\r\nHost: "+c.To+"\r\n", url.Values{"key": {t.admin.Key}}.Encode()
	answer, _ := must.Get2(c.Ask(ctx, fmt.Sprintf("POST /login%sContent-Type: application/x-www-form-urlencoded\r\n"+
		"Content-Length: %d\r\n\r\n%s", head, len(form), form)))
	if len(answer.Cookies()) != 1 {
		must.Fail("a login was answered with %d and no cookie", answer.StatusCode)
	}
	session := answer.Cookies()[0]
	for _, path := range []string{"", "/vehicles", "/vehicles/" + vid(i%cars), "/tokens", "/sources", "/audit"} {
		answer, _ = must.Get2(c.Ask(ctx, "GET "+session.Path+path+head+"Cookie: "+session.Name+"="+session.Value+"\r\n\r\n"))
		if answer.StatusCode != http.StatusOK {
			must.Fail("the page %s was answered with %d", path, answer.StatusCode)
		}
	}
}

func (t *traffic) drive(ctx context.Context, vid string) {
	car := must.Get(load.Dial(ctx, t.n, "fleet", t.key))
	defer car.Close()
	for came := time.Now(); time.Since(came) < carStays && ctx.Err() == nil; row.Pause(ctx, time.Second) {
		sending, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := t.held.Publish(sending, car, []load.Sample{{VID: vid, At: time.Now().Unix()}})
		cancel()
		must.Do(err)
	}
}

// Each check compares a part of the cars, so its cost does not grow.
const parts = 10

func (t *traffic) hold(ctx context.Context, i int) {
	all := t.held.Vehicles()
	t.held.HoldVehicles(ctx, t.n, all[i%parts*len(all)/parts:(i%parts+1)*len(all)/parts])
}

// slope is the Theil–Sen estimate: the median of the slopes between pairs of points. x ascends.
func slope(x, y []float64) float64 {
	const enough = 1500
	step := len(x)/enough + 1
	var all []float64
	for i := 0; i < len(x); i += step {
		for j := i + step; j < len(x); j += step {
			if x[j] > x[i] {
				all = append(all, (y[j]-y[i])/(x[j]-x[i]))
			}
		}
	}
	return report.Median(all)
}
