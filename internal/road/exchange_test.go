package road

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// sameConditions fails the test if, the given seconds after start, two maps differ in the condition
// of any stretch. Speeds are equal if they differ by at most 0.1 % or 0.001 km/h.
func sameConditions(t interface {
	Helper()
	Errorf(string, ...any)
}, m, n *Map, seconds uint32) {
	t.Helper()
	at := start.Add(time.Duration(seconds) * time.Second)
	want, got := conditions(m, at), conditions(n, at)
	if len(want) != len(got) {
		t.Errorf("%d stretches became %d", len(want), len(got))
	}
	near := func(a, b float64) bool { return math.Abs(a-b) <= 0.001*max(1, a) }
	for name, a := range want {
		b := got[name]
		if near(a.SpeedKmh, b.SpeedKmh) && near(a.FreeKmh, b.FreeKmh) {
			a.SpeedKmh, a.FreeKmh = b.SpeedKmh, b.FreeKmh
		}
		if a != b {
			t.Errorf("%+v became %+v", a, b)
		}
	}
}

// someFlows draws some minutes of traffic around the crossing of roads that the other tests use.
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

// TestExchange_SameConditions checks that a node that absorbs the evidence of another node's cars,
// batch by batch, knows the same as the other node: of every stretch, the same condition and the
// same next stretch.
func TestExchange_SameConditions(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var from, to Map
		from.Share()
		most := rapid.SampledFrom([]int{0, evidenceBytes, 1000, 1 << 20}).Draw(r, "most")
		for range rapid.IntRange(1, 3).Draw(r, "rounds") {
			run(t, &from, someFlows(r)...)
			for _, message := range from.Drain(most) {
				if len(message) > max(most, evidenceBytes) {
					r.Fatalf("a message of %d bytes", len(message))
				}
				if err := to.Absorb(message); err != nil {
					r.Fatal(err)
				}
			}
			sameConditions(r, &from, &to, 0)
			sameConditions(r, &from, &to, 600)
		}
		if left := from.Drain(1 << 20); len(left) != 0 {
			r.Fatalf("%d messages are left", len(left))
		}
		for i := range from.shards {
			for k := range from.shards[i].count {
				a, b := from.shards[i].at(k), to.shards[i].at(min(k, to.shards[i].count-1))
				if c, ok := to.shards[i].find(a.name); ok {
					b = to.shards[i].at(c)
				}
				if from.nameOrNone(a.likeliest()) != to.nameOrNone(b.likeliest()) || a.lengthMetres != b.lengthMetres {
					r.Fatalf("%+v became %+v", a, b)
				}
			}
		}
	})
}

// nameOrNone returns the name of the stretch at a place, or 0 for no place.
func (m *Map) nameOrNone(p place) uint64 {
	if p == 0 {
		return 0
	}
	return uint64(m.at(p).name)
}

// TestDrainOfAMapThatSharesNothing checks that a map on which Share was not called, as on a single
// node, keeps no evidence for Drain.
func TestDrainOfAMapThatSharesNothing(t *testing.T) {
	var m Map
	f := street
	f.cars, f.from, f.metres = 1, start, 500
	run(t, &m, f)
	if m.Len() == 0 || len(m.Drain(1000)) != 0 {
		t.Error("evidence was kept")
	}
}

// TestOutboxIsBounded checks that evidence is dropped if mostWaiting pieces of evidence already
// wait to be sent.
func TestOutboxIsBounded(t *testing.T) {
	var m Map
	m.Share()
	for range mostWaiting + 10 {
		m.out.add(evidence{})
	}
	if n := len(m.out.waiting); n != mostWaiting {
		t.Errorf("%d wait", n)
	}
}

// TestEvidenceFormat checks every byte of a packed piece of evidence, because nodes of different
// versions exchange evidence during a rolling upgrade.
func TestEvidenceFormat(t *testing.T) {
	e := evidence{Stretch: 0x0807060504030201, From: 0x1817161514131211, Unix: 0x24232221, Metres: 1, Seconds: 2,
		FromMetres: -1, FromSeconds: 0.5, Voice: 31, Gap: 32,
		Source: 0x36353433}
	const want = "0102030405060708" + "1112131415161718" + "21222324" + "0000803f" + "00000040" + "000080bf" + "0000003f" +
		"1f" + "20" + "33343536"
	if got := fmt.Sprintf("%x", pack(e)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestMalformedEvidence checks that a message with one malformed piece of evidence is refused as a
// whole.
func TestMalformedEvidence(t *testing.T) {
	good := evidence{Stretch: stretchAt(townLatitude, townLongitude, 2), Metres: 50, Seconds: 4, Unix: 1000}
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
		var m Map
		if err := m.Absorb(message); err == nil || m.Len() != 0 {
			t.Errorf("%s: error %v, %d stretches", name, err, m.Len())
		}
	}
	var m Map
	if err := m.Absorb(pack(good, good)); err != nil || m.Len() != 1 {
		t.Errorf("error %v, %d stretches", err, m.Len())
	}
	if err := m.Absorb(nil); err != nil {
		t.Error(err)
	}
}
