package road_test

import (
	"encoding/binary"
	"math"
	"testing"
	"time"

	"example.org/carstate/internal/road"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

// fuzzedBytes are the car (1), the step to the report in milliseconds (int32), its speed (float32),
// latitude and longitude (float64), heading and accuracy (float32).
const fuzzedBytes = 1 + 4 + 4 + 8 + 8 + 4 + 4

func appendFuzzed(b []byte, car byte, stepMillis int32, kmh float32, latitude, longitude float64, heading,
	accuracy float32) []byte {
	b = binary.LittleEndian.AppendUint32(append(b, car), uint32(stepMillis))
	b = binary.LittleEndian.AppendUint32(b, math.Float32bits(kmh))
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(latitude))
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(longitude))
	b = binary.LittleEndian.AppendUint32(b, math.Float32bits(heading))
	return binary.LittleEndian.AppendUint32(b, math.Float32bits(accuracy))
}

func FuzzPositions(f *testing.F) {
	nan := math.NaN()
	drive := func(latitude, longitude, north, east float64) (b []byte) {
		for k := range 12 {
			b = appendFuzzed(b, byte(k%4), 1000, 60, latitude+north*float64(k), longitude+east*float64(k), 45, 5)
		}
		return b
	}
	f.Add([]byte{})
	f.Add(drive(townLatitude, townLongitude, 0.0003, 0.0003))
	f.Add(drive(10, 179.998, 0, 0.0003))
	f.Add(drive(89.999, 0, 0.0001, 30))
	f.Add(drive(-0.001, -0.001, 0.0002, 0.0002))
	f.Add(appendFuzzed(drive(44, 11, 0, 0), 0, -5000, 500, nan, math.Inf(1), float32(nan), -1))
	f.Add(appendFuzzed(drive(44, 11, 0.001, 0), 0, 1, 500, 44.012, 11.0009, 360, 50))
	f.Add(appendFuzzed(appendFuzzed(nil, 0, math.MaxInt32, 0, 90, 180, 0, 0), 0, math.MinInt32, 0, -90, -180, 0, 0))
	f.Fuzz(func(t *testing.T, b []byte) { foldFuzzed(t, b) })
}

// foldFuzzed checks states and stretches, that repeated and older reports change nothing, and that
// another map accepts the evidence.
func foldFuzzed(t interface{ Fatalf(string, ...any) }, b []byte) {
	var m road.Map
	m.Share()
	states := make(map[vehicle.ID]vehicle.State)
	at := start
	for ; len(b) >= fuzzedBytes; b = b[fuzzedBytes:] {
		at += signal.UnixMilli(int32(binary.LittleEndian.Uint32(b[1:])))
		x := vehicle.Sample{Vehicle: vehicle.ID(rune('a' + b[0]%4)), Time: at}
		single := func(at int) float64 {
			return float64(math.Float32frombits(binary.LittleEndian.Uint32(b[at:])))
		}
		double := func(at int) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(b[at:])) }
		for g, v := range map[signal.Signal]float64{
			signal.Speed: single(5), signal.CurrentLatitude: double(9), signal.CurrentLongitude: double(17),
			signal.CurrentHeading: single(25), signal.CurrentAccuracy: single(29),
		} {
			_ = x.Set(g, v)
		}
		s := states[x.Vehicle]
		next := s
		if changed := m.Fold(&next, &x, false); changed != (next != s) {
			t.Fatalf("Fold from %+v to %+v: got changed %t, want %t", s, next, changed, next != s)
		}
		inBounds(t, &next)
		if at < min(s.Latest.PositionTime(), s.Latest[signal.Speed].Time) && next != s {
			t.Fatalf("an older sample: got %+v, want %+v", next, s)
		}
		if again := next; m.Fold(&again, &x, false) || again != next {
			t.Fatalf("the same sample again: got %+v, want %+v", again, next)
		}
		states[x.Vehicle] = next
	}
	checkMap(t, &m, at)
	var n road.Map
	for _, message := range m.Drain(1000) {
		if err := n.Absorb(message); err != nil {
			t.Fatalf("what one node sends another: got %v, want no error", err)
		}
	}
	if n.Len() != m.Len() {
		t.Fatalf("the other node: got %d stretches, want %d", n.Len(), m.Len())
	}
}

// A message is refused as a whole, or leaves all within bounds.
func FuzzAbsorb(f *testing.F) {
	from := new(road.Map)
	from.Share()
	g := street
	g.cars, g.every, g.from, g.metres = 4, 10*time.Second, start, 300
	run(f, from, g)
	for _, message := range from.Drain(400) {
		f.Add(message)
	}
	f.Add([]byte{})
	f.Add(make([]byte, evidenceBytes))
	f.Add(pack(evidence{Stretch: here, From: here, Unix: math.MaxUint32, Metres: -1e6, Seconds: 1e6,
		FromMetres: 1e6, Voice: 255}))
	var many []evidence
	for k := range 6 {
		many = append(many, evidence{Stretch: here, Unix: 1_700_000_000 + uint32(600*k), Metres: 1e6,
			Seconds: 1e-38, Voice: byte(k), FromMetres: 100, FromSeconds: 1e-38, From: here})
	}
	f.Add(pack(many...))
	f.Fuzz(func(t *testing.T, message []byte) {
		var m road.Map
		if m.Absorb(message) != nil {
			if m.Len() != 0 {
				t.Fatalf("refused evidence: got %d known stretches, want 0", m.Len())
			}
			return
		}
		at := start
		if len(message) > 0 {
			at = signal.UnixMilli(binary.LittleEndian.Uint32(message[16:])) * 1000
		}
		checkMap(t, &m, at)
		drivesOn(t, &m, max(1, at))
	})
}

func drivesOn(t *testing.T, m *road.Map, at signal.UnixMilli) {
	t.Helper()
	c := newCar(m, "after", -100, 0, at)
	for range 10 {
		c.drive(t, 45, 90, step)
		inBounds(t, &c.state)
	}
}

// Profiles are refused as a whole, or leave all within bounds, and can be stored and loaded again.
func FuzzLoad(f *testing.F) {
	m := new(road.Map)
	g := street
	g.cars, g.every, g.from, g.metres = 30, 30*time.Second, start, 300
	run(f, m, g)
	for tile, b := range m.Changed(everyTile) {
		f.Add(tile.String(), b[:min(len(b), 3*profileBytes)])
		for _, fill := range []byte{0, 0xff} {
			odd := append([]byte(nil), b[:profileBytes]...)
			for i := 8; i < profileBytes-18; i++ {
				odd[i] = fill
			}
			f.Add(tile.String(), append(odd, odd...))
		}
	}
	f.Add("47", []byte{})
	f.Add("", make([]byte, profileBytes))
	f.Fuzz(func(t *testing.T, name string, packed []byte) {
		tile, err := road.ParseTile(name)
		if err != nil {
			return
		}
		if tile.String() != name {
			t.Fatalf("the tile: got %s, want %q", tile, name)
		}
		var m road.Map
		if m.Load(tile, packed) != nil {
			if m.Len() != 0 {
				t.Fatalf("refused profiles: got %d known stretches, want 0", m.Len())
			}
			return
		}
		checkMap(t, &m, start)
		drivesOn(t, &m, start)
		m.Touch()
		for is, b := range m.Changed(everyTile) {
			if err := new(road.Map).Load(is, b); err != nil {
				t.Fatalf("Load of what was stored: got %v, want no error", err)
			}
		}
	})
}
