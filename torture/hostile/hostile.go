// Package hostile is the row with malicious clients. Some send requests that parsers may
// misunderstand, some are slow on purpose, and some are cars that send what no real car would.
package hostile

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"example.org/carstate/bench/must"
	"example.org/carstate/internal/access"
	"example.org/carstate/internal/admin/client"
	"example.org/carstate/internal/nodeprocess"
	"example.org/carstate/internal/vehicle"
	"example.org/carstate/torture/defects"
	"example.org/carstate/torture/row"
)

// fullCount is the smallest count at which all slow clients and hostile cars take part.
const fullCount = 100_000

var Row = row.Row{
	Name: "hostile", Counts: "answers to hostile requests", CI: fullCount, Long: 10 * fullCount,
	Controls: defects.Controls("hostile", "overlooks-transfer-encoding", "echoes-input", "no-read-deadline",
		"answers-subscribe"),
	Needs: needs,
	Run:   run,
}

// descriptors is what this process needs, and the node, too.
const descriptors = 17_500

func needs() error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Max < descriptors {
		return fmt.Errorf("a process may open only %d files: allow it more with 'ulimit -n %d'", limit.Max, descriptors)
	}
	for program, pkg := range map[string]string{"slowhttptest": "slowhttptest", "nginx": "nginx-light",
		"haproxy": "haproxy", "chrt": "util-linux", "taskset": "util-linux"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%s is not installed: run 'apt-get install %s' as root", program, pkg)
		}
	}
	return nil
}

func run(ctx context.Context, a *row.Attempt) {
	w := &world{attempt: a, log: &logWatch{attempt: a},
		contract: &contract{make(map[string]*token), make(map[string]car), make(map[string]document)}}
	// Verdicts must not become stale during a long run.
	w.Node = must.Get(nodeprocess.StartReady(ctx, nodeprocess.Options{Binary: a.Binary, Dir: filepath.Join(a.Dir, "data"),
		Flags: []string{"--max-age", "48h"}, Heard: w.log.hear}, time.Minute))
	defer w.Kill()
	w.admin = must.Get(w.AdminClient())
	w.issueTokens(ctx)
	w.driveCars(ctx)
	for _, path := range []string{"/", "/openapi.json"} {
		w.documents[path] = readDocument(w.URL(nodeprocess.Query) + path)
	}
	for _, part := range []func(context.Context, *world){requests, dawdle, behindNginx, behindHAProxy, telemetry, slow} {
		part(ctx, w)
		must.Do(ctx.Err())
	}
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

// share scales n in proportion to the size of this attempt.
func share(a *row.Attempt, n, least int) int {
	return max(least, min(n, n*a.Count/fullCount))
}

type world struct {
	*nodeprocess.Node
	*contract
	attempt *row.Attempt
	admin   *client.Client
	log     *logWatch
	open    []*token // the tokens, none of them with a rate limit
	strange []string // texts that are no tokens
}

// issueTokens issues tokens with different rights, some of which end, and texts that are no tokens.
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
		r := access.Request{Developer: "Ada", Operations: x.operations, Vehicles: access.AllVehicles()}
		if x.only != "" {
			r.Vehicles = access.VehicleSet(vehicle.ID(x.only))
		}
		if x.ends {
			r.Expires = time.Now().Add(4 * time.Second) // late enough that it cannot expire before it is issued
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

// driveCars sends samples that lead to every kind of answer, and waits for all of them, and until
// the tokens that end are refused.
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
	return &writer{
		Rand: rng, name: string(rune('a' + worker)), tokens: w.open, strange: w.strange,
		cars: slices.Sorted(maps.Keys(w.cars)),
	}
}

type logWatch struct {
	attempt      *row.Attempt
	bytes, lines int64 // to be read after the node has ended

	mu     sync.Mutex // guards secret
	secret []string
}

func (l *logWatch) secrets(s ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.secret = append(l.secret, s...)
}

// hear checks one line of the log. A client must not be able to write a line of its own.
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
