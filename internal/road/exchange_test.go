package road_test

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/road"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/test/roadtest"
)

// Speeds are the same within 0.1 % or 0.001 km/h.
func sameConditions(t interface {
	Helper()
	Errorf(string, ...any)
}, m, n *road.Map, at signal.UnixMilli) {
	t.Helper()
	want, got := conditions(m, at), conditions(n, at)
	if len(want) != len(got) {
		t.Errorf("the stretches: got %d, want %d", len(got), len(want))
	}
	near := func(a, b float64) bool { return math.Abs(a-b) <= 0.001*max(1, a) }
	for name, a := range want {
		b := got[name]
		if near(a.SpeedKmh, b.SpeedKmh) && near(a.FreeKmh, b.FreeKmh) {
			a.SpeedKmh, a.FreeKmh = b.SpeedKmh, b.FreeKmh
		}
		if a != b {
			t.Errorf("the condition: got %+v, want %+v", b, a)
		}
	}
}

func someFlows(t *rapid.T) (flows []flow) {
	for i := range rapid.IntRange(1, 3).Draw(t, "flows") {
		flows = append(flows, flow{
			name: string(rune('a' + i)), from: start,
			cars:    rapid.IntRange(1, 8).Draw(t, "cars"),
			every:   time.Duration(rapid.IntRange(1, 100).Draw(t, "every")) * time.Second,
			east:    rapid.Float64Range(-200, 200).Draw(t, "east"),
			north:   rapid.Float64Range(-200, 200).Draw(t, "north"),
			degrees: rapid.Float64Range(0, 360).Draw(t, "degrees"),
			kmh:     rapid.Float64Range(8, 200).Draw(t, "km/h"),
			metres:  rapid.Float64Range(30, 500).Draw(t, "metres"),
		})
	}
	return flows
}

// A node that absorbs the evidence of another node knows the same.
func TestExchange_SameConditions(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var from, to road.Map
		from.Share()
		most := rapid.SampledFrom([]int{0, evidenceBytes, 1000, 1 << 20}).Draw(r, "most")
		for round := range rapid.IntRange(1, 3).Draw(r, "rounds") {
			later := time.Duration(round) * 15 * time.Minute
			flows := someFlows(r)
			for i := range flows {
				flows[i].from, flows[i].cars = start.Add(later), 3*flows[i].cars
			}
			run(t, &from, flows...)
			for _, message := range from.Drain(most) {
				if len(message) > max(most, evidenceBytes) {
					r.Fatalf("got a message of %d bytes, want at most %d", len(message), most)
				}
				if err := to.Absorb(message); err != nil {
					r.Fatalf("Absorb: got %v, want no error", err)
				}
			}
			sameConditions(r, &from, &to, start.Add(later))
			sameConditions(r, &from, &to, start.Add(later+10*time.Minute))
		}
		if left := from.Drain(1 << 20); len(left) != 0 {
			r.Fatalf("the messages that are left: got %d, want 0", len(left))
		}
		if want, got := profiles(&from), profiles(&to); !maps.Equal(got, want) {
			r.Fatalf("got the profiles %x, want %x", got, want)
		}
	})
}

func profiles(m *road.Map) map[string]string {
	m.Touch()
	all := make(map[string]string)
	for _, packed := range m.Changed(everyTile) {
		for p := range slices.Chunk(packed, profileBytes) {
			all[string(p[:8])] = string(p[8:])
		}
	}
	return all
}

func TestDrainOfAMapThatSharesNothing(t *testing.T) {
	var m road.Map
	f := street
	f.cars, f.from, f.metres = 1, start, 500
	run(t, &m, f)
	if m.Len() == 0 || len(m.Drain(1000)) != 0 {
		t.Errorf("one car alone: got %d stretches, perhaps evidence; want some, and none", m.Len())
	}
}

func TestOutboxIsBounded(t *testing.T) {
	var m road.Map
	m.Share()
	newCar(&m, "car", 0, 0, start).drive(t, 45, 90, 70_000*step)
	var n int
	for _, message := range m.Drain(1 << 20) {
		n += len(message) / evidenceBytes
	}
	if n != 1<<16 {
		t.Errorf("got %d pieces of evidence, want %d", n, 1<<16)
	}
}

// Nodes of different versions exchange messages during a rolling upgrade. evidence is little
// endian.
type evidence struct {
	Stretch, From                            driving.Stretch
	Unix                                     uint32
	Metres, Seconds, FromMetres, FromSeconds float32
	Voice, Gap                               uint8
	Source                                   uint32
}

const evidenceBytes, profileBytes = 42, 32

func pack(some ...evidence) []byte {
	b, err := binary.Append(nil, binary.LittleEndian, some)
	if err != nil {
		panic(err)
	}
	return b
}

func unix(t signal.UnixMilli) uint32 { return uint32(t / 1000) }

var here = roadtest.StretchAt(townLatitude, townLongitude, 90)

func TestEvidenceFormat(t *testing.T) {
	var m road.Map
	m.Share()
	c := newCar(&m, "car", 0, 0, start)
	c.source = liars
	c.drive(t, 45, 90, time.Minute)
	last := driving.Stretch(0)
	for _, message := range m.Drain(evidenceBytes) {
		var e [1]evidence
		if n, err := binary.Decode(message, binary.LittleEndian, e[:]); err != nil || n != len(message) {
			t.Fatalf("a message of %d bytes: got %d read, error %v; want all", len(message), n, err)
		}
		x := &e[0]
		if !road.Valid(x.Stretch) || road.HeadingDegrees(x.Stretch) != 90 || x.Unix < unix(start) || x.Unix > unix(c.at) ||
			x.Metres <= 0 || x.Metres > 26 || x.Seconds <= 0 || x.Seconds > 2.01 || x.Gap != 2 || x.Source != liars ||
			x.Voice != liars {
			t.Errorf("got %+v, want what a car at 45 km/h shows in 2 s", *x)
		}
		if entered := x.Stretch != last && last != 0; entered != (x.From == last && x.FromMetres > 20 && x.FromSeconds > 1) {
			t.Errorf("after the stretch %d: got %+v, want the way out of it: %t", last, *x, entered)
		}
		last = x.Stretch
	}
	if last == 0 {
		t.Error("the evidence: got none, want some")
	}
}

func TestMalformedEvidence(t *testing.T) {
	good := evidence{Stretch: here, Metres: 50, Seconds: 4, Unix: 1000}
	spoilt := func(change func(e *evidence)) []byte {
		bad := good
		change(&bad)
		return pack(good, bad)
	}
	nan := float32(math.NaN())
	for name, message := range map[string][]byte{
		"cut":              pack(good)[:evidenceBytes-1],
		"no stretch":       spoilt(func(e *evidence) { e.Stretch = 0 }),
		"another level":    spoilt(func(e *evidence) { e.Stretch = 1 << 60 }),
		"from no stretch":  spoilt(func(e *evidence) { e.From = 7 }),
		"no metres":        spoilt(func(e *evidence) { e.Metres = nan }),
		"endless":          spoilt(func(e *evidence) { e.Metres = float32(math.Inf(-1)) }),
		"no seconds":       spoilt(func(e *evidence) { e.Seconds = nan }),
		"negative seconds": spoilt(func(e *evidence) { e.FromSeconds = -1 }),
		"too far":          spoilt(func(e *evidence) { e.FromMetres = 2e6 }),
	} {
		var m road.Map
		if err := m.Absorb(message); err == nil || m.Len() != 0 {
			t.Errorf("%s: got error %v, %d stretches; want an error, 0", name, err, m.Len())
		}
	}
	var m road.Map
	if err := m.Absorb(pack(good, good)); err != nil || m.Len() != 1 {
		t.Errorf("good evidence: got error %v, %d stretches; want nil, 1", err, m.Len())
	}
	if err := m.Absorb(nil); err != nil {
		t.Errorf("no evidence: got %v, want no error", err)
	}
}
