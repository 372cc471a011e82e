package nodes

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"carstate/internal/stream"
	"carstate/internal/vehicle"
	"carstate/torture/row"
)

func seeded(n uint64) *rand.Rand { return rand.New(rand.NewPCG(n, n)) }

func attempt(t *testing.T) *row.Attempt { return &row.Attempt{Logf: t.Logf, Stop: func() {}} }

// What is in the journal and not stored is found, and nothing else.
func TestMissing(t *testing.T) {
	stored := func(at ...vehicle.UnixMilli) (all []vehicle.Sample) {
		for _, m := range at {
			all = append(all, vehicle.Sample{Vehicle: "A", Time: m})
		}
		return all
	}
	for _, c := range []struct {
		journal []vehicle.UnixMilli
		stored  []vehicle.Sample
		want    []vehicle.UnixMilli
	}{
		{nil, nil, nil},
		{nil, stored(1), nil},
		{[]vehicle.UnixMilli{1, 2, 3}, stored(1, 2, 3), nil},
		{[]vehicle.UnixMilli{2}, stored(1, 1, 2, 2, 3), nil}, // twice, and not acknowledged
		{[]vehicle.UnixMilli{1, 2, 3}, stored(1, 3), []vehicle.UnixMilli{2}},
		{[]vehicle.UnixMilli{1, 2}, nil, []vehicle.UnixMilli{1, 2}},
		{[]vehicle.UnixMilli{5}, stored(4, 6), []vehicle.UnixMilli{5}},
	} {
		if got := missing(c.journal, c.stored); !slices.Equal(got, c.want) {
			t.Errorf("of %v is missing %v, want %v", c.journal, got, c.want)
		}
	}
}

// Readings that are stored twice, or again after newer ones, come to the same.
func TestFold(t *testing.T) {
	var all []vehicle.Sample
	for at := range int64(20) {
		all = append(all, reading(0, 1, 1_700_000_000_000+at*100, seeded(1)))
	}
	want := fold(all)
	if fold(append(slices.Clone(all), all...)) != want || want.Time != all[19].Time || want.Driving().State != vehicle.NormalDriving || want.Throttle().System != vehicle.ThrottleAnomaly {
		t.Errorf("%+v", want)
	}
	if fold(append(slices.Clone(all[:10]), all[11:]...)) == want {
		t.Error("a reading that is missing makes no difference")
	}
	all[0] = reading(0, 0, 1_700_000_000_000, seeded(1))
	if s := fold(all[:1]); s.Throttle().System != vehicle.ThrottleNormal {
		t.Errorf("a sound car: %+v", s.Throttle())
	}
}

// The longest wait counts from the moment on that is asked about.
func TestStalls(t *testing.T) {
	var s stalls
	zero := time.Unix(1000, 0)
	at := func(seconds float64) time.Time { return zero.Add(time.Duration(seconds * float64(time.Second))) }
	s.begin(at(0))
	if s.flowing(at(0)) == nil {
		t.Error("nothing was acknowledged")
	}
	for w := range writers {
		s.acknowledged(w, at(0.5), at(1))
	}
	if err := s.flowing(at(0)); err != nil {
		t.Error(err)
	}
	s.acknowledged(0, at(2), at(4))
	s.acknowledged(0, at(5), at(6))
	if d, over := s.worst(at(3)); d != 3*time.Second || over != at(4) {
		t.Errorf("%s until %s", d, over)
	}
	// The others still wait.
	if d, over := s.worst(at(7)); d != 6*time.Second || over != at(7) || s.flowing(at(1)) == nil {
		t.Errorf("%s until %s", d, over)
	}
	s.begin(at(7))
	if d, _ := s.worst(at(8)); d != time.Second {
		t.Errorf("what was before counts: %s", d)
	}
}

// A state that is older than the one before is found.
func TestFollowing(t *testing.T) {
	a := attempt(t)
	f := newFollowing(a)
	for _, id := range cars() {
		f.put(id, vehicle.State{Time: 10})
		f.put(id, vehicle.State{Time: 10})
	}
	id := cars()[3]
	f.put(id, vehicle.State{Time: 12})
	if f.newerThan(9) != nil || f.newerThan(10) == nil || f.reached(map[vehicle.ID]vehicle.UnixMilli{id: 12}) != nil || f.reached(map[vehicle.ID]vehicle.UnixMilli{id: 13}) == nil {
		t.Error("it says wrongly how far the states are")
	}
	if o := a.Outcome(); !o.Passed() {
		t.Error(o.Findings)
	}
	f.put(id, vehicle.State{Time: 11})
	if o := a.Outcome(); o.Wrong != 1 {
		t.Errorf("%+v", o)
	}
}

// What the nodes say is summed up since the window began.
func TestWatching(t *testing.T) {
	w := newWatching(nil)
	if w.healthy() == nil {
		t.Error("nobody was looked at")
	}
	now := time.Unix(1000, 0)
	for i := range w.seen {
		w.seen[i] = look{at: now.Add(9 * time.Second), age: time.Second}
	}
	if err := w.healthy(); err != nil {
		t.Error(err)
	}
	if _, ok := w.feedsBehind(); ok {
		t.Error("all could store all the time")
	}
	w.seen[1].refused, w.seen[1].old = now.Add(5*time.Second), now.Add(7*time.Second)
	w.seen[2].refused, w.seen[2].old = now.Add(5*time.Second), now.Add(4*time.Second)
	if d, ok := w.feedsBehind(); !ok || d != 2*time.Second {
		t.Errorf("%s, %t", d, ok)
	}
	w.seen[0].old = w.seen[0].at
	if w.healthy() == nil {
		t.Error("a copy is old")
	}
	w.begin()
	if w.greatestAge() != 0 || w.healthy() == nil {
		t.Error("what was seen before counts")
	}
}

func TestPercentile(t *testing.T) {
	all := make([]time.Duration, 200)
	for i := range all {
		all[i] = time.Duration(200-i) * time.Millisecond
	}
	if p := percentile(all, 0.99); p != 199*time.Millisecond || percentile(nil, 0.5) != 0 || percentile(all[:1], 0.99) == 0 {
		t.Error(p)
	}
}

// However few disturbances there are, a server is killed for as long as it takes; of
// any three in a row from the first on, each is of another kind.
func TestPlan(t *testing.T) {
	for seed := range uint64(100) {
		for n := 1; n <= 9; n++ {
			turns := plan(seeded(seed), n)
			if len(turns) != n || turns[0].name != killed || !turns[0].lasting || !turns[0].freeze {
				t.Fatalf("seed %d: %d of %d, and the first is %+v", seed, len(turns), n, turns[0])
			}
			for i := 0; i+3 <= n; i += 3 {
				if a, b, c := turns[i].name, turns[i+1].name, turns[i+2].name; a == b || b == c || a == c {
					t.Errorf("seed %d: %s, %s, %s", seed, a, b, c)
				}
			}
		}
	}
}

// An aim of which nothing was measured is missed, each by itself.
func TestNothingMeasured(t *testing.T) {
	full := func() *measured {
		m := newMeasured()
		for _, l := range []*longest{&m.by[killed].stall, &m.by[killed].verdict, &m.by[killed].feeds, &m.taken} {
			l.take(time.Second)
			l.take(0)
		}
		return m
	}
	for name, c := range map[string]struct {
		change func(*measured)
		passed bool
	}{
		"all of it":          {func(*measured) {}, true},
		"another kind too":   {func(m *measured) { m.by["stopped"].verdict.take(time.Minute) }, true},
		"no stall":           {func(m *measured) { m.by[killed].stall = longest{} }, false},
		"no verdict":         {func(m *measured) { m.by[killed].verdict = longest{} }, false},
		"no copies":          {func(m *measured) { m.by[killed].feeds = longest{} }, false},
		"nobody was stopped": {func(m *measured) { m.taken = longest{} }, false},
		"too long":           {func(m *measured) { m.by[killed].verdict.take(11 * time.Second) }, false},
	} {
		a, m := attempt(t), full()
		c.change(m)
		m.judge(a)
		if o := a.Outcome(); o.Passed() != c.passed {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

// No partition can be without an owner and nobody notice.
func TestEveryPartitionHasCars(t *testing.T) {
	has := make(map[int]int)
	for _, id := range cars() {
		has[stream.PartitionOf(id, partitions)]++
	}
	if len(has) != partitions {
		t.Errorf("of %d partitions only %d have cars: %v", partitions, len(has), has)
	}
}

// When every car had a state of after a moment is told by when the first of those came,
// of the car that was last.
func TestRenewed(t *testing.T) {
	f := newFollowing(attempt(t))
	at := func(seconds int) time.Time { return time.Unix(1000+int64(seconds), 0) }
	put := func(seconds int, of vehicle.UnixMilli, ids ...vehicle.ID) {
		for _, id := range ids {
			f.putAt(at(seconds), id, vehicle.State{Time: of})
		}
	}
	put(0, 9, cars()...)
	f.begin()
	put(1, 5, "W0CAR0") // is found fault with, and is not new
	put(2, 10, cars()...)
	put(3, 11, cars()[1:]...)
	put(4, 12, cars()...)
	put(5, 13, cars()...)
	if got := f.renewed(10); got != at(4) {
		t.Errorf("renewed at %s", got)
	}
	f.begin()
	put(6, 14, cars()[1:]...)
	if got := f.renewed(13); !got.IsZero() {
		t.Errorf("renewed at %s although a car was not", got)
	}
}
