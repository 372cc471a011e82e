package matrix

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"carstate/internal/access"
	"carstate/internal/admin"
	"carstate/internal/nodeprocess"
	"carstate/internal/vehicle"
	"carstate/torture/row"
)

// How many of each there are.
const (
	carsOfAKind = 12
	toForget    = 36 // cars that are forgotten while all is asked
	toTime      = 256
	tokens      = 160
	maxAge      = time.Hour
)

// world is a node and everything that can be asked of it.
type world struct {
	a     *row.Attempt
	node  *nodeprocess.Node
	admin *admin.Client
	rng   *rand.Rand

	cars      []*car // of all kinds
	forgets   []*car // among cars: forgotten meanwhile
	sandboxed []*car
	mu        sync.Mutex // guards holders while all is asked
	holders   []*holder
	strangers []string // that are no token, or none that was issued

	// For what is measured: cars that report and cars that never did.
	reporting, silent []*car
}

// vid makes a vid. All have one length, so that answers about them do.
func (w *world) vid() string {
	const letters = "ABCDEFGHJKLMNPRSTUVWXYZ0123456789abcdefghij"
	b := make([]byte, 17)
	for i := range b {
		b[i] = letters[w.rng.IntN(len(letters))]
	}
	return string(b)
}

// kind is a sort of car: what it last sent, and what is then known.
type kind struct {
	signals           string // "": it never reported
	age               time.Duration
	driving, throttle verdict
	forgotten         bool // once it had reported
}

var kinds = []kind{
	{signals: `"Vehicle.Speed":50,"Vehicle.OBD.ThrottlePosition":20`, driving: verdict{value: "1"}, throttle: verdict{value: "1"}},
	{signals: `"Vehicle.Speed":50`, driving: verdict{value: "1"}, throttle: unknown},
	{signals: `"Vehicle.OBD.ThrottlePosition":20`, driving: unknown, throttle: verdict{value: "1"}},
	{signals: `"Vehicle.Speed":80,"Vehicle.OBD.DTCList":["P0121"]`, driving: verdict{value: "1"}, throttle: verdict{value: "0"}},
	{signals: `"Vehicle.LowVoltageSystemState":"OFF"`, driving: verdict{reason: "not_driving"}, throttle: unknown},
	{signals: `"Vehicle.Speed":50,"Vehicle.OBD.ThrottlePosition":20`, age: 2 * maxAge, driving: verdict{reason: "stale"}, throttle: verdict{reason: "stale"}},
	{signals: `"Vehicle.Speed":50,"Vehicle.OBD.ThrottlePosition":20`, forgotten: true, driving: unknown, throttle: unknown},
	{driving: unknown, throttle: unknown},
}

// build starts the node and fills it.
func build(ctx context.Context, a *row.Attempt) (w *world, err error) {
	w = &world{a: a, rng: rand.New(rand.NewPCG(a.Seed, 0))}
	if w.node, err = nodeprocess.Start(ctx, nodeprocess.Options{
		Binary: a.Binary, Dir: a.Dir + "/data", Flags: []string{"--max-age", maxAge.String(), "--trusted-proxies", "127.0.0.1"},
	}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			w.node.Kill()
		}
	}()
	if err := w.node.AwaitReady(ctx, time.Minute); err != nil {
		return nil, err
	}
	if w.admin, err = w.node.AdminClient(); err != nil {
		return nil, err
	}
	if err := w.addCars(ctx); err != nil {
		return nil, err
	}
	if err := w.addTokens(ctx); err != nil {
		return nil, err
	}
	return w, w.addStrangers(ctx)
}

// addCars makes cars of every kind and has them report.
func (w *world) addCars(ctx context.Context) error {
	key, err := w.node.AddSource(ctx, "gateway")
	if err != nil {
		return err
	}
	now := time.Now().Truncate(time.Millisecond)
	var lines strings.Builder
	var gone []*car
	add := func(k kind) *car {
		made := now.Add(-k.age)
		c := &car{vid: w.vid(), verdicts: [2]verdict{k.driving, k.throttle}, made: [2]time.Time{made, made}}
		if k.signals != "" {
			fmt.Fprintf(&lines, `{"vid":"%s","time":%d,"signals":{%s}}`+"\n", c.vid, made.UnixMilli(), k.signals)
		}
		if k.forgotten {
			gone = append(gone, c)
		}
		return c
	}
	for _, k := range kinds {
		for range carsOfAKind {
			w.cars = append(w.cars, add(k))
		}
	}
	for range toForget {
		w.forgets = append(w.forgets, add(kinds[0]))
	}
	w.cars = append(w.cars, w.forgets...)
	for range toTime {
		w.reporting, w.silent = append(w.reporting, add(kinds[0])), append(w.silent, add(kinds[len(kinds)-1]))
	}
	for vid := range access.SandboxVehicles().Sorted() {
		c := &car{vid: string(vid), verdicts: [2]verdict{unknown, unknown}}
		w.sandboxed, w.cars = append(w.sandboxed, c), append(w.cars, c)
	}
	if status, text, err := w.node.Post(ctx, key, lines.String()); err != nil || status != http.StatusAccepted {
		return fmt.Errorf("the cars' samples were answered with %d %s %w", status, text, err)
	}
	reported := strings.Count(lines.String(), "\n")
	if err := nodeprocess.Until(ctx, time.Minute, func(ctx context.Context) error {
		m, err := w.node.Metrics(ctx)
		if err == nil && m["carstate_vehicles"] != float64(reported) {
			err = errors.New("not all cars are known yet")
		}
		return err
	}); err != nil {
		return err
	}
	for _, c := range gone {
		if _, err := w.admin.Forget(ctx, vehicle.ID(c.vid)); err != nil {
			return err
		}
		c.forgetting.Store(true)
		c.forgotten.Store(true)
	}
	return nil
}

// addTokens issues tokens of every sort.
func (w *world) addTokens(ctx context.Context) error {
	for i := range tokens {
		h := &holder{mutable: i%2 == 0}
		g, names := w.grant(w.rng, w.cars)
		fate := w.rng.IntN(10) // of those that nobody changes later
		if h.mutable {
			fate = 9
		}
		now := time.Now()
		switch fate {
		case 0:
			h.expires = now.Add(time.Second)
		case 1:
			h.expires = now.Add(time.Duration(2+w.rng.IntN(15)) * time.Second) // meanwhile
		case 2:
			h.expires = now.Add(24 * time.Hour)
		case 3:
			h.sandbox = true
		}
		h.expires = h.expires.Truncate(time.Millisecond)
		if err := w.issue(ctx, h, g, names); err != nil {
			return err
		}
		if err := w.befall(ctx, h, names, fate); err != nil {
			return err
		}
		w.holders = append(w.holders, h)
	}
	// The tokens of the first sort have expired by then.
	return nodeprocess.Until(ctx, time.Minute, func(context.Context) error {
		for _, h := range w.holders {
			if left := time.Until(h.expires); left > 0 && left < time.Second {
				return errors.New("a token has not expired yet")
			}
		}
		return nil
	})
}

// grant makes up what a token may do, with some of the cars.
func (w *world) grant(rng *rand.Rand, cars []*car) (g grant, names []vehicle.ID) {
	g.operations = [2]bool{true, true}
	if lacks := rng.IntN(3); lacks < 2 {
		g.operations[lacks] = false
	}
	if g.all = rng.IntN(4) == 0; g.all {
		return g, nil
	}
	g.vids = make(map[string]bool)
	for n := 1 + rng.IntN(40); n > 0 || len(names) == 0; n-- {
		c := cars[rng.IntN(len(cars))]
		if !c.forgetting.Load() && !g.vids[c.vid] {
			g.vids[c.vid] = true
			names = append(names, vehicle.ID(c.vid))
		}
	}
	return g, names
}

// anyHolder is any token that there is by now.
func (w *world) anyHolder(rng *rand.Rand) *holder {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.holders[rng.IntN(len(w.holders))]
}

func (w *world) issue(ctx context.Context, h *holder, g grant, names []vehicle.ID) error {
	r := access.TokenRequest{Developer: "Ada", Expires: h.expires, Sandbox: h.sandbox, Vehicles: access.VehicleSet(names...)}
	if g.all {
		r.Vehicles = access.AllVehicles()
	}
	for op, o := range []access.Operations{access.CarDrivingState, access.ThrottleSystem} {
		if g.operations[op] {
			r.Operations |= o
		}
	}
	t, err := w.admin.IssueToken(ctx, r)
	h.id, h.lives, h.secrets = t.ID, []grant{g}, []string{t.AccessToken}
	return err
}

// befall is what becomes of a token before it is first asked with.
func (w *world) befall(ctx context.Context, h *holder, names []vehicle.ID, fate int) error {
	switch fate {
	case 4:
		return w.revoke(ctx, h)
	case 5:
		return w.rotate(ctx, h, 24*time.Hour)
	case 6:
		return w.rotate(ctx, h, 0)
	case 7:
		if len(names) == 0 {
			return nil
		}
		return w.regrant(ctx, h, nil, names) // of a list, nothing is left
	}
	return nil
}

func (w *world) revoke(ctx context.Context, h *holder) error {
	h.begin(func(g *grant) { g.revoked = true })
	_, err := w.admin.RevokeToken(ctx, h.id)
	h.settle()
	return err
}

func (w *world) rotate(ctx context.Context, h *holder, overlap time.Duration) error {
	old := h.secrets[len(h.secrets)-1] // only who changes it appends
	h.begin(func(g *grant) {
		g.unsure = old
		if overlap == 0 { // ends all that were replaced before, too
			for s := range g.ends {
				g.ends[s] = time.Time{}
			}
		}
	})
	t, err := w.admin.RotateToken(ctx, h.id, overlap)
	if err != nil {
		return err
	}
	h.begin(func(g *grant) {
		g.unsure = ""
		if g.ends[old] = (time.Time{}); overlap > 0 {
			g.ends[old] = t.EarlierUntil[len(t.EarlierUntil)-1]
		}
	})
	h.settle()
	h.mu.Lock()
	h.secrets = append(h.secrets, t.AccessToken)
	h.mu.Unlock()
	return nil
}

func (w *world) regrant(ctx context.Context, h *holder, add, remove []vehicle.ID) error {
	h.begin(func(g *grant) {
		for _, id := range add {
			g.vids[string(id)] = true
		}
		for _, id := range remove {
			delete(g.vids, string(id))
		}
	})
	_, err := w.admin.GrantToken(ctx, h.id, add, remove)
	h.settle()
	return err
}

// addStrangers makes what somebody might send in place of a token.
func (w *world) addStrangers(ctx context.Context) error {
	source, err := w.node.AddSource(ctx, "car")
	if err != nil {
		return err
	}
	operator, err := w.admin.AddOperator(ctx, "grace")
	if err != nil {
		return err
	}
	real := w.holders[0].secrets[0]
	never, _ := access.NewSecret(access.TokenKind)
	neverTest, _ := access.NewSecret(access.SandboxKind)
	w.strangers = []string{
		never, neverTest, source, operator.Key, w.admin.Key, w.holders[0].id, "", "Bearer%20" + real,
		real[:len(real)-1], real + "0", real[1:], "cst_", strings.ToUpper(real), strings.ToLower(real), real + "%00", real + "%20",
		"0", "null", "cst_" + strings.Repeat("0", 36), strings.Repeat("A", 4000),
	}
	// One letter of a real token is another.
	for range 20 {
		at := 4 + w.rng.IntN(len(real)-4)
		other := byte('0' + w.rng.IntN(10))
		if real[at] != other {
			w.strangers = append(w.strangers, real[:at]+string(other)+real[at+1:])
		}
	}
	return nil
}
