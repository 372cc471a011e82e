package admin_test

import (
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/test/testkit"
)

func TestAddSourceAnswersExactly(t *testing.T) {
	s := start(t)
	for _, tt := range []struct{ body, want string }{
		{`{"name":"car-7","vehicles":["A"]}`,
			`{"name":"car-7","key":"(css_[0-9A-Za-z]{36})","vehicles":\["A"\],"rate":"10/s a vehicle, 36000 at once","strict":false,"on_change":"","format":"","trusted_crowd":false}`},
		{`{"name":"gateway","vehicles":"all","rate":"1000/s","strict":true,"expires_at":"2026-11-20T13:00:00Z"}`,
			`{"name":"gateway","key":"(css_[0-9A-Za-z]{36})","vehicles":"all","rate":"1000/s","strict":true,"on_change":"","format":"","trusted_crowd":true}`},
	} {
		s.wantSecret(t, s.store.Sources.Verify, "/v1/sources", tt.body, http.StatusCreated, tt.want)
	}
	show, err := s.Source(t.Context(), "gateway")
	if err != nil || show.ExpiresAt == nil || *show.ExpiresAt != noon.Add(time.Hour) || !show.VehicleCount.All ||
		!show.Vehicles.All() || show.Rate != "1000/s" || !show.Strict {
		t.Errorf("the source: got %+v, %v; want all vehicles, 1000/s, strict, until %v", show, err, noon.Add(time.Hour))
	}
	s.want(t, "POST", "/v1/sources", `{"name":"x","vehicles":"all","rate":"many"}`, http.StatusBadRequest, "a rate is")
	if got, want := newest(t, s.Client, 1)[0].Detail,
		"vehicles all; expires 2026-11-20T13:00:00Z; rate 1000/s; strict"; got != want {
		t.Errorf("audited %s, want %s", got, want)
	}
}

func TestSourceSeen(t *testing.T) {
	s := startOps(t, func(c *ops.Config) {
		c.RoadsDoubted = func(uint32) map[string]int64 { return map[string]int64{"old": 3} }
	})
	s.add(t, "car-7")
	const before = `"seen":{"last_seen_at":null,"last_refused_at":null,"last_refused_reason":"",` +
		`"last_refused_text":"","accepted":0,"late":0,"refused":{},"refused_keys":{},"ignored_signals":0,"unused_values":0,"roads_doubted":{"old":3},"speed_factor":null}`
	s.want(t, "GET", "/v1/sources", "", http.StatusOK, before)
	g, _ := s.store.Sources.Get("car-7")
	g.CountSamples(access.SampleCounts{Accepted: 12, Late: 4, Ignored: 3, Unused: 5})
	g.CountRefused(access.Impossible, 2)
	g.CountRefused(access.OverRate, 1)
	g.CountRefused(access.WrongKey, 1)
	g.NoteRefused(access.OverRate, "too many: wait 3 s", noon)
	for _, path := range []string{"/v1/sources", "/v1/sources/car-7"} {
		s.want(t, "GET", path, "", http.StatusOK,
			`"last_refused_at":"2026-11-20T12:00:00Z","last_refused_reason":"rate",`+
				`"last_refused_text":"too many: wait 3 s","accepted":12,"late":4,"refused":{"impossible":2,"rate":1},`+
				`"refused_keys":{"wrong_key":1},"ignored_signals":3,"unused_values":5,"roads_doubted":{"old":3},"speed_factor":null}`)
	}
	show, err := s.Source(t.Context(), "car-7")
	if err != nil || show.Seen.Accepted != 12 || show.Seen.Refused.Total() != 3 ||
		show.Seen.LastRefusedReason != "rate" ||
		!slices.Equal(show.Refusals, []ops.NotedRefusal{{At: noon, Reason: "rate", Text: "too many: wait 3 s"}}) {
		t.Errorf("the source: got %+v, %v; want 12 samples accepted and 3 refused, the last for its rate", show, err)
	}
}

func TestSourceLife(t *testing.T) {
	s := start(t)
	src := s.add(t, "car-7")
	s.add(t, "a_gateway")

	_, err := s.AddSource(t.Context(), access.Credential{Name: "car-7", Vehicles: access.AllVehicles()})
	refused(t, "a name twice", err, http.StatusConflict, "the name of this source is taken")
	list, err := s.Sources(t.Context())
	if err != nil || len(list) != 2 || list[0].Name != "a_gateway" || list[1].Name != "car-7" {
		t.Fatalf("the list: got %+v, %v; want a_gateway and car-7", list, err)
	}

	for range 2 {
		s.clock.Advance(time.Hour)
		got, err := s.RemoveSource(t.Context(), "car-7")
		if err != nil || got.RemovedAt == nil || *got.RemovedAt != noon.Add(time.Hour) {
			t.Fatalf("RemoveSource: got it removed at %v, %v; want %v", got.RemovedAt, err, noon.Add(time.Hour))
		}
	}
	if _, err := s.store.Sources.Verify([]byte(src.Key), noon); !errors.Is(err, access.ErrRevoked) {
		t.Errorf("the key of a removed source: got %v, want %v", err, access.ErrRevoked)
	}
	if list, err := s.Sources(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("the list after a removal: got %+v, %v; want one source", list, err)
	}
	if show, err := s.Source(t.Context(), "car-7"); err != nil || show.RemovedAt == nil {
		t.Errorf("the removed source: got %+v, %v; want a time of removal", show, err)
	}
	if again := s.add(t, "car-7"); again.Key == src.Key {
		t.Error("the new source of the same name: got the old key, want another")
	}
	if show, err := s.Source(t.Context(), "car-7"); err != nil || show.RemovedAt != nil {
		t.Errorf("the new source: got %+v, %v; want no time of removal", show, err)
	}
	for _, call := range []func() error{
		func() error { _, err := s.Source(t.Context(), "nobody"); return err },
		func() error { _, err := s.RemoveSource(t.Context(), "../tokens"); return err },
	} {
		if err := call(); !errors.Is(err, access.ErrNotFound) {
			t.Errorf("an unknown source: got %v, want %v", err, access.ErrNotFound)
		}
	}
	s.do(t, "GET", "/v1/sources", "").lacks(t, "hash")
}

func TestChangeSource(t *testing.T) {
	s := start(t)
	src := s.add(t, "car-7")
	for _, tt := range []struct {
		body   string
		status int
		want   string
	}{
		{`{"rate":"5/s","strict":true}`, 200, `"rate":"5/s","strict":true`},
		{`{"strict":false,"vehicles":["A","B"]}`, 200, `"vehicle_count":2,"rate":"5/s","strict":false`},
		{`{"expires_at":"2026-11-20T13:00:00Z"}`, 200, `"expires_at":"2026-11-20T13:00:00Z"`},
		{`{"vehicles":[]}`, 400, "a source needs vehicles"},
		{`{"expires_at":"2026-11-20T11:00:00Z"}`, 400, "remove it to end it at once"},
		{`{"rate":"many"}`, 400, "a rate is"},
		{`{"on_change":"15m"}`, 200, `"on_change":"15m0s"`},
		{`{"on_change":"1ms"}`, 400, "on_change: how long an unchanged speed holds is auto, or a time"},
		{`{"rate":null,"strict":true}`, 400, "rate has the wrong type"},
		{`{"vehicles":null,"strict":true}`, 400, "vehicles has the wrong type"},
		{`{"strict":null,"rate":"5/s"}`, 400, "strict has the wrong type"},
		{`{}`, 400, "nothing to change"},
	} {
		s.want(t, "PATCH", "/v1/sources/car-7", tt.body, tt.status, tt.want)
	}
	g, err := s.store.Sources.Verify([]byte(src.Key), noon)
	if err != nil || g.Strict || g.Rate.String() != "5/s" || !g.Vehicles.Include("B") {
		t.Errorf("got source %+v, %v; want rate 5/s, vehicle B, not strict", g, err)
	}
	var audited []string
	for _, e := range s.store.Events() {
		if e.Action == "source.change" && e.Outcome == "intended" {
			audited = append(audited, e.Detail)
		}
	}
	if !slices.Contains(audited, "rate 5/s; strict true") || !slices.Contains(audited, "expires 2026-11-20T13:00:00Z") {
		t.Errorf("the audit: got %q, want changes of rate and strict, and of the expiry", audited)
	}
	testkit.NoError(t, second(s.RemoveSource(t.Context(), "car-7")))
	if _, err := s.ChangeSource(t.Context(), "car-7", access.Change{Strict: new(true)}); !errors.Is(err,
		access.ErrNotFound) {
		t.Errorf("a change of a removed source: got %v, want %v", err, access.ErrNotFound)
	}
}
