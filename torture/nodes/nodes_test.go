package nodes

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

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
