// Package hostile is the row with malicious clients.
package hostile

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"example.org/carstate/bench/must"
	"example.org/carstate/bench/report"
	"example.org/carstate/internal/access"
	"example.org/carstate/internal/admin/client"
	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/internal/vehicle"
	"example.org/carstate/torture/row"
)

// With a count below fullCount, fewer slow clients and hostile cars take part.
const fullCount = 100_000

var Row = row.Row{
	Name: "hostile", Counts: "answers to hostile requests", CI: fullCount,
	Run: run,
}

// Of this process, and of the node.
const descriptors = 17_500

func mustHave() {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Max < descriptors {
		must.Fail("a process may open only %d files: allow it more with 'ulimit -n %d'", limit.Max, descriptors)
	}
	for program, pkg := range map[string]string{"nginx": "nginx-light", "haproxy": "haproxy"} {
		if _, err := exec.LookPath(program); err != nil {
			must.Fail("%s is not installed: run 'apt-get install %s' as root", program, pkg)
		}
	}
}

func run(ctx context.Context, a *row.Attempt) {
	mustHave()
	w := &world{attempt: a, log: &logWatch{attempt: a},
		contract: &contract{make(map[string]*token), make(map[string]car), make(map[string]document)}}
	// Verdicts must not become stale.
	w.Node = must.Get(nodeprocess.StartReady(ctx, nodeprocess.Options{Binary: a.Binary, Dir: filepath.Join(a.Dir, "data"),
		Flags: []string{"--max-age", "48h"}, Heard: w.log.hear}, time.Minute))
	defer w.Kill()
	w.admin = must.Get(w.AdminClient())
	w.issueTokens(ctx)
	w.driveCars(ctx)
	for _, path := range []string{"/", "/openapi.json"} {
		w.documents[path] = w.readDocument(ctx, path)
	}
	requests(ctx, w)
	dawdle(ctx, w)
	w.behind(ctx, "nginx", "-p DIR -c DIR/config -e stderr")
	w.behind(ctx, "haproxy", "-db -f DIR/config")
	telemetry(ctx, w)
	must.Do(ctx.Err())
	slow(ctx, w)
	must.Do(ctx.Err())
	if w.HasEnded() {
		a.Wrong("the process has ended; its last output: %.300q", w.Log()[max(0, len(w.Log())-300):])
		return
	}
	if err := w.Stop(); err != nil {
		a.Wrong("it does not stop in order: %v", err)
	}
	a.Figure("log", float64(w.log.lines), "lines")
	a.AtMost("log", float64(w.log.bytes)/(1<<20), "MiB", 1)
}

func share(a *row.Attempt, n, least int) int {
	return max(least, min(n, n*a.Count/fullCount))
}

type world struct {
	*nodeprocess.Node
	*contract
	attempt *row.Attempt
	admin   *client.Client
	log     *logWatch
	open    []*token
	strange []string

	hostileKey string
	met        row.Tally // of the hostile cars

	asked, failed int // good requests during slow clients
}

func (w *world) issueTokens(ctx context.Context) {
	for _, x := range []struct {
		operations    access.Operations
		only          string
		ends, revoked bool
	}{
		{operations: access.AllOperations}, {operations: access.CarDrivingState}, {operations: access.ThrottleSystem},
		{operations: access.AllOperations, only: "CarNormal"}, {operations: access.AllOperations, revoked: true},
		{operations: access.AllOperations, ends: true},
	} {
		r := access.Credential{Developer: "Ada", Operations: x.operations, Vehicles: access.AllVehicles()}
		if x.only != "" {
			r.Vehicles = access.VehicleSet(vehicle.ID(x.only))
		}
		if x.ends {
			r.Expires = time.Now().Add(4 * time.Second)
		}
		made := must.Get(w.admin.IssueToken(ctx, r))
		if x.revoked {
			must.Get(w.admin.RevokeToken(ctx, made.ID))
		}
		t := &token{secret: made.AccessToken, driving: x.operations.Has(access.CarDrivingState),
			throttle: x.operations.Has(access.ThrottleSystem), only: x.only, dead: x.revoked || x.ends}
		w.tokens[t.secret] = t
		w.open = append(w.open, t)
		w.log.secrets(t.secret)
	}
	unknown, _ := access.NewSecret(access.TokenKind)
	source, _ := access.NewSecret(access.SourceKind)
	operator, _ := access.NewSecret(access.OperatorKind)
	w.strange = []string{"", "x", "null", "cst_", unknown, source, operator, "Bearer+" + w.open[0].secret,
		w.open[0].secret + "0", w.open[0].secret[:39], strings.ToUpper(w.open[0].secret), "cstid0123456789", "'+OR+1=1+--"}
	w.log.secrets(unknown, source, operator)
}

func (w *world) driveCars(ctx context.Context) {
	now := time.Now().Add(-5 * time.Second).Truncate(time.Millisecond)
	var lines strings.Builder
	sample := func(vid string, at time.Time, signals string) {
		fmt.Fprintf(&lines, `{"vid":%q,"time":%d,"signals":{%s}}`+"\n", vid, at.UnixMilli(), signals)
	}
	sample("CarNormal", now, `"Vehicle.Speed":50,"Vehicle.OBD.ThrottlePosition":20`)
	for ago := 5 * time.Minute; ago >= 0; ago -= time.Second {
		sample("CarJam", now.Add(-ago), `"Vehicle.Speed":10`)
	}
	sample("CarFaulty", now, `"Vehicle.Speed":60,"Vehicle.OBD.DTCList":["P0121"]`)
	sample("CarParked", now, `"Vehicle.LowVoltageSystemState":"OFF"`)
	w.cars["CarNormal"] = car{driving: "1", throttle: "1", read: now}
	w.cars["CarJam"] = car{driving: "3", read: now}
	w.cars["CarFaulty"] = car{driving: "1", throttle: "0", read: now}
	w.cars["CarParked"] = car{notDriving: true}
	key := must.Get(w.AddSource(ctx, "setup"))
	w.log.secrets(key)
	row.Feed(ctx, w.Node, key, lines.String())
	must.Do(nodeprocess.Until(ctx, time.Minute, func(ctx context.Context) error {
		for vid, truth := range w.cars {
			d, err1 := w.Ask(ctx, drivingPath, w.open[0].secret, vid)
			t, err2 := w.Ask(ctx, throttlePath, w.open[0].secret, vid)
			if err1 != nil || err2 != nil || truth.driving != "" && d.Driving != truth.driving || truth.throttle != "" &&
				t.Throttle != truth.throttle || truth.notDriving && d.Reason != "not_driving" {
				return fmt.Errorf("%s is answered %+v, %+v, %v, %v", vid, d, t, err1, err2)
			}
		}
		for _, t := range w.open {
			if a, err := w.Ask(ctx, drivingPath, t.secret, "CarNormal"); err != nil || t.dead && a.HTTP == 200 {
				return fmt.Errorf("a token that ended gets %d: %w", a.HTTP, err)
			}
		}
		return nil
	}))
}

func (w *world) writer(worker int, rng *rand.Rand) *writer {
	return &writer{world: w, Rand: rng, name: string(rune('a' + worker))}
}

type logWatch struct {
	attempt      *row.Attempt
	bytes, lines int64 // to be read after the end

	mu     sync.Mutex
	secret []string
}

func (l *logWatch) secrets(s ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.secret = append(l.secret, s...)
}

func (l *logWatch) hear(line []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bytes += int64(len(line)) + 1
	l.lines++
	var parsed struct{ Level, Msg, Panic, Stack string }
	wrong := ""
	switch err := json.Unmarshal(line, &parsed); {
	case err != nil || parsed.Level == "" || parsed.Msg == "":
		wrong = "is not JSON of a log"
	case parsed.Panic != "" || parsed.Stack != "":
		wrong = "reports a panic"
	case parsed.Level == "ERROR":
		wrong = "is an error"
	}
	for _, s := range l.secret {
		if strings.Contains(string(line), s) {
			wrong = "contains a secret"
		}
	}
	if wrong != "" {
		l.attempt.Wrong("a line of the log %s: %.300q", wrong, line)
	}
}

const (
	slowClients  = 4000
	rounds       = 3         // the best counts, as other load can only lengthen delays
	never        = time.Hour // a round with too few connections
	recoveries   = 6
	heldWithin   = 15 * time.Second
	pauseBetween = 8 * time.Second // until a refused client tries again, about as slowhttptest does
	beginWithin  = 2 * time.Second
)

func slow(ctx context.Context, w *world) {
	a := w.attempt
	connections, windows := share(a, slowClients, 100), share(a, 8, 1)
	aimed := a.Count >= fullCount/5
	atRest := must.Get(w.Descriptors())
	// The attackers get a processor.
	parts := row.Split(w.PID())
	row.Confine(w.PID(), &parts.Others)
	row.Confine(os.Getpid(), &parts.One)
	defer row.Confine(w.PID(), &parts.All)
	defer row.Confine(os.Getpid(), &parts.All)
	w.measure(ctx, 2)
	before := w.measure(ctx, windows)
	a.Figure("p99 of good requests before any slow client", row.Millis(before), "ms")
	toBefore := func(d time.Duration) float64 {
		return math.Round(100*float64(d)/float64(max(before, 1))) / 100
	}
	best := func(rounds int, measure func() time.Duration) time.Duration {
		d := never
		for i := 0; i < rounds && toBefore(d) > 2; i++ {
			d = min(d, measure())
		}
		return d
	}
	head := strings.TrimSuffix(row.Question(drivingPath, w.open[0].secret, "CarJam"), "\r\n")
	for _, x := range []struct {
		name        string
		first, more string
		reads       int  // bytes a second
		holds       bool // the connections stay open; else they are refused. Half must be.
	}{
		{"heads sent slowly", head, "X: y\r\n", 4096, true},
		{"bodies sent slowly", "POST" + head[3:] + "Content-Length: 8192\r\n\r\n", "x", 4096, false},
		{"answers read slowly", strings.Repeat("GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n", 3), "", 32, true},
	} {
		flood := row.Flood{Count: connections, Within: beginWithin, Between: pauseBetween,
			Stall: func(ctx context.Context, _ int, begun func()) error {
				return row.Stall(ctx, w.Address(nodeprocess.Query), x.first, x.more, x.reads, begun)
			}}
		held, refused := 0, w.refused(ctx, "")
		with := best(rounds, func() time.Duration {
			stop := flood.Start(ctx)
			row.Pause(ctx, beginWithin)
			_ = nodeprocess.Until(ctx, heldWithin, func(context.Context) error {
				n, err := w.Descriptors()
				if err == nil && x.holds && n < connections/2+connections/20 {
					err = fmt.Errorf("%d of %d are connected", n, connections)
				}
				return err
			})
			connected := row.Median(ctx, w.Descriptors)
			m := w.measure(ctx, windows)
			n := connected() - atRest
			stop()
			w.settle(ctx, atRest)
			must.Do(ctx.Err())
			if held = max(held, n); x.holds && n < connections/2 {
				return never
			}
			return m
		})
		refused = w.refused(ctx, "") - refused
		after := best(recoveries, func() time.Duration { return w.measure(ctx, windows) })
		must.Do(ctx.Err())
		a.Figure(x.name+": p99 of other clients during it", row.Millis(with), "ms")
		if !aimed {
			continue
		}
		if x.holds {
			a.AtLeast(x.name+": connections at once, median", float64(held), "", float64(connections/2))
		} else {
			a.AtLeast(x.name+": refused", refused, "", float64(connections/2))
		}
		a.AtMost(x.name+": p99 of other clients during it, relative to before", toBefore(with), "×", 2)
		a.AtMost(x.name+": p99 of other clients afterwards, relative to before", toBefore(after), "×", 2)
	}
	a.Offered(w.asked)
	a.Acknowledged(w.asked - w.failed)
	a.Figure("good requests during slow clients", float64(w.asked), "")
	a.None("of them failed", w.failed)
}

func (w *world) settle(ctx context.Context, atRest int) {
	const slack = 40
	err := nodeprocess.Until(ctx, time.Minute, func(context.Context) error {
		n, err := w.Descriptors()
		if err == nil && n > atRest+slack {
			err = fmt.Errorf("%d descriptors are open, %d were", n, atRest)
		}
		return err
	})
	must.Do(ctx.Err())
	if err != nil {
		w.attempt.Wrong("the descriptors of the attackers are not closed: %v", err)
	}
}

// Each must be closed, with status 408 after more than two bytes.
func dawdle(ctx context.Context, w *world) {
	const headTimeout, slack = 5 * time.Second, 15 * time.Second
	a := w.attempt
	must.Together(ctx, share(a, 200, 30), func(ctx context.Context, i int) {
		text := []string{"", "G", "GET " + drivingPath + "?vid=A", "HEAD / HTTP/1.1\r\nHost: a\r\n",
			"GET / HTTP/1.1\r\nHost: a\r\nX: ", "\r\n"}[i%6]
		c, err := dialFrom(ctx, "127.0.0.1", w.Address(nodeprocess.Query))
		if err != nil {
			a.Wrong("a new client cannot connect: %v", err)
			return
		}
		defer c.Close()
		defer context.AfterFunc(ctx, func() { _ = c.Close() })()
		began := time.Now()
		_ = c.SetDeadline(began.Add(headTimeout + slack))
		a.Offered(1)
		if i%2 == 1 && text != "" { // single bytes must not extend the limit
			go func() {
				for err := error(nil); err == nil; time.Sleep(500 * time.Millisecond) {
					_, err = io.WriteString(c, "x")
				}
			}()
		}
		_, _ = io.WriteString(c, text)
		got, err := io.ReadAll(c)
		switch {
		case ctx.Err() != nil:
		case timedOut(err):
			a.Wrong("a client that sends %q, and then little, is not disconnected: %s", text,
				time.Since(began).Round(time.Second))
		case (len(text) > 2 || len(got) > 0) && !bytes.HasPrefix(got, []byte("HTTP/1.1 408 ")):
			a.Wrong("a client that sends only %q receives %.100q", text, got)
		case text != "" && text[0] == 'H' && len(got) > 0 && !bytes.HasSuffix(got, []byte("\r\n\r\n")):
			a.Wrong("a slow HEAD receives a body: %.100q", got)
		default:
			a.Acknowledged(1)
		}
	})
	must.Do(ctx.Err())
}

const (
	probers   = 8
	probeRate = 400
)

func (w *world) measure(ctx context.Context, windows int) time.Duration {
	request := row.Question(drivingPath, w.open[0].secret, "CarNormal")
	clients := make([]row.Send, probers)
	for i := range clients {
		c := &row.Conn{To: w.Address(nodeprocess.Query), Limit: patience}
		defer c.Close()
		clients[i] = func(ctx context.Context) error {
			answer, body, err := c.Ask(ctx, request)
			if err == nil && (answer.StatusCode != http.StatusOK || !strings.Contains(body, `"status":1`)) {
				err = fmt.Errorf("a good request got %d %.200q", answer.StatusCode, body)
			}
			return err
		}
	}
	return report.Quantile(row.Measure(ctx, windows, probeRate, clients, func(err error) {
		if w.asked++; err == nil {
			return
		}
		if w.failed++; w.failed <= 5 {
			w.attempt.Wrong("during slow clients: %v", err)
		}
	}), 0.5)
}
