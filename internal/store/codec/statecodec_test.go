package codec

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"flag"
	"os"
	"testing"

	"pgregory.net/rapid"

	"example.org/carstate/internal/road/roadtest"
	"example.org/carstate/internal/testkit"
	"example.org/carstate/internal/vehicle"
)

// TestLayoutIsEncodingBinary checks that a layout packs a type into the same bytes as
// encoding/binary, and unpacks them, with and without padding between the fields.
func TestLayoutIsEncodingBinary(t *testing.T) {
	type gaps struct {
		A bool
		B int64
		C [3]struct {
			D uint8
			E float32
			F bool
		}
		G int16
		H bool
	}
	checkLayout(t, gaps{true, -1, [3]struct {
		D uint8
		E float32
		F bool
	}{{1, 2.5, true}, {3, -4, false}, {5, 6, true}}, -7, true})
	s := roadtest.State(t)
	checkLayout(t, s.Traffic)
	checkLayout(t, s.ThrottleMemory)
	checkLayout(t, s.Way)
	checkLayout(t, s.Road)
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.SliceOfN(rapid.Byte(), throttleLayout.size, throttleLayout.size).Draw(t, "raw")
		for _, at := range throttleLayout.bools {
			raw[at] &= 1
		}
		var m vehicle.ThrottleMemory
		throttleLayout.decode(bytes.Clone(raw), &m)
		if got := throttleLayout.append(nil, &m); !bytes.Equal(got, raw) {
			t.Fatalf("got %x, want %x", got, raw)
		}
	})
}

func checkLayout[T comparable](t *testing.T, v T) {
	t.Helper()
	l := layoutOf[T]()
	want, err := binary.Append([]byte("x"), binary.LittleEndian, &v)
	testkit.NoError(t, err)
	if got := l.append([]byte("x"), &v); !bytes.Equal(got, want) || l.size != len(want)-1 {
		t.Errorf("%T: got %d bytes\n%x, want\n%x", v, l.size, got, want)
	}
	for i := range want {
		if want[i] == 1 {
			want[i] = 0xff // also in place of a true bool
		}
	}
	var got, plain T
	if _, err := binary.Decode(want[1:], binary.LittleEndian, &plain); err != nil {
		t.Fatal(err)
	}
	l.decode(bytes.Clone(want[1:]), &got)
	if got != plain {
		t.Errorf("%T: got %+v, want %+v", v, got, plain)
	}
}

// TestLayoutRefusesPointers checks that for a type without a fixed size, layoutOf panics. So such a
// type is noticed before anything is stored.
func TestLayoutRefusesPointers(t *testing.T) {
	for _, f := range []func(){
		func() { layoutOf[struct{ A *int }]() },
		func() { layoutOf[struct{ A []byte }]() },
		func() { layoutOf[struct{ A [2]string }]() },
		func() { layoutOf[struct{ A int }]() },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("a type without a fixed size has a layout")
				}
			}()
			f()
		}()
	}
}

var updateGolden = flag.Bool("update", false, "rewrite testdata/state.json; only before version 1 is released")

// TestStateOfThisVersion checks that a stored state of an earlier release decodes to the same
// values. testdata holds a state in which every field is set, as bytes and as JSON. Fields that
// were added to the state later are zero. A change that breaks this test needs a new schema
// version.
func TestStateOfThisVersion(t *testing.T) {
	const file = "testdata/state.json"
	var golden struct {
		Packed []byte        `json:"packed"` // base64
		State  vehicle.State `json:"state"`
	}
	if *updateGolden {
		golden.State = roadtest.State(t)
		golden.State.FaultCode = vehicle.TroubleCode{'P', '0', '1', '2', '0'}
		golden.Packed = AppendState(nil, &golden.State)
		text, err := json.Marshal(golden)
		testkit.NoError(t, err)
		testkit.NoError(t, os.WriteFile(file, append(text, '\n'), 0o600))
	}
	text, err := os.ReadFile(file)
	testkit.NoError(t, err)
	testkit.NoError(t, json.Unmarshal(text, &golden))
	got, err := DecodeState(golden.Packed)
	if err != nil || got != golden.State || got.ThrottleMemory == (vehicle.ThrottleMemory{}) || got.Way.Count == 0 {
		t.Errorf("error %v; got\n%+v, want\n%+v", err, got, golden.State)
	}
}

func BenchmarkAppendState(b *testing.B) {
	s := roadtest.State(b)
	var packed []byte
	b.ReportAllocs()
	for b.Loop() {
		packed = AppendState(packed[:0], &s)
	}
	b.ReportMetric(float64(len(packed)), "bytes")
}

// BenchmarkSealState measures how long derive takes to prepare one state for storing.
func BenchmarkSealState(b *testing.B) {
	s := roadtest.State(b)
	b.ReportAllocs()
	for b.Loop() {
		Seal("state.0.NHeN4UqVsohGS55I7LBdh", AppendState([]byte{0}, &s))
	}
}

func BenchmarkDecodeState(b *testing.B) {
	s := roadtest.State(b)
	packed := AppendState(nil, &s)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeState(packed); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkVerdicts measures the time that a feed needs for one state after decoding it.
func BenchmarkVerdicts(b *testing.B) {
	s := roadtest.State(b)
	b.ReportAllocs()
	for b.Loop() {
		s.Driving()
		s.Throttle()
	}
}
