package codec_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"testing"

	"pgregory.net/rapid"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/road"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/vehicle"
)

var (
	ids      = rapid.StringMatching(`[0-9A-Za-z]{1,256}`)
	times    = rapid.Int64Range(1, math.MaxInt64/4)
	subjects = rapid.StringMatching(`(state|token|telemetry)\.[0-9]{1,3}(\.[0-9A-Za-z]{1,20})?`)
)

func code(t *rapid.T) signal.TroubleCode {
	return signal.TroubleCode([]byte(rapid.StringMatching(`[PCBU][0-3][0-9A-F]{3}`).Draw(t, "code")))
}

func anySample(t *rapid.T) vehicle.Sample {
	x := vehicle.Sample{
		Vehicle: vehicle.ID(ids.Draw(t, "vid")), Time: signal.UnixMilli(times.Draw(t, "time")),
		Source: rapid.Uint32().Draw(t, "source"), Crowd: rapid.Bool().Draw(t, "crowd"),
	}
	for s := range signal.Signal(signal.Num) {
		if !rapid.Bool().Draw(t, "has") {
			continue
		}
		var err error
		switch s {
		case signal.DTCList:
			err = x.SetCodes(rapid.SliceOfN(rapid.Custom(code), 0, 40).Draw(t, "codes"))
		case signal.LowVoltageSystemState:
			err = x.SetIgnition(signal.Ignition(rapid.IntRange(0, 5).Draw(t, "ignition")).String())
		case signal.CurrentLatitude:
			err = x.Set(s, rapid.Float64Range(-90, 90).Draw(t, "latitude"))
		case signal.CurrentLongitude:
			err = x.Set(s, rapid.Float64Range(-180, 180).Draw(t, "longitude"))
		default:
			limit := map[signal.Signal]float64{
				signal.Speed: 500, signal.OBDSpeed: 500, signal.EngineSpeed: 20000, signal.MILOn: 1,
			}[s]
			if limit == 0 {
				limit = 100
			}
			err = x.Set(s, rapid.Float64Range(0, limit).Draw(t, "value"))
		}
		if err != nil {
			t.Fatalf("%v: got %v, want no error", s, err)
		}
	}
	return x
}

func TestSamplesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(rapid.Custom(anySample), 0, 20).Draw(t, "samples")
		var body []byte
		for i := range want {
			body = codec.AppendSample(codec.AppendSource(body, &want[i]), &want[i])
		}
		var got []vehicle.Sample
		if err := codec.DecodeSamples(body, func(x vehicle.Sample) { got = append(got, x) }); err != nil {
			t.Fatalf("DecodeSamples: got %v, want no error", err)
		}
		if len(got) != len(want) {
			t.Fatalf("got %d samples, want %d", len(got), len(want))
		}
		for i := range want {
			if len(want[i].Codes) == 0 {
				want[i].Codes, got[i].Codes = nil, nil
			}
			if !reflect.DeepEqual(got[i], want[i]) {
				t.Fatalf("got %+v, want %+v", got[i], want[i])
			}
		}
	})
}

// The rules compute the states from arbitrary samples in any order, along one road or anywhere.
func TestStatesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var want vehicle.State
		var roads road.Map
		drives := rapid.Bool().Draw(t, "drives")
		base := times.Draw(t, "base")
		for i := range rapid.IntRange(0, 30).Draw(t, "samples") {
			x := anySample(t)
			if rapid.Bool().Draw(t, "near") {
				x.Time = signal.UnixMilli(base + rapid.Int64Range(0, 3_600_000).Draw(t, "after"))
			}
			if drives {
				x.Time = signal.UnixMilli(base + int64(i)*10_000)
				metres := rapid.Float64Range(0, 300).Draw(t, "metres")
				if err := errors.Join(x.Set(signal.CurrentLatitude, 44.5+float64(i)*0.0025+metres/111e3),
					x.Set(signal.CurrentLongitude, 11.34),
					x.Set(signal.CurrentAccuracy, 5)); err != nil {
					t.Fatalf("the position: got %v, want no error", err)
				}
			}
			roads.Fold(&want, &x, false)
		}
		if rapid.Bool().Draw(t, "any") {
			want.Way, want.Road = anyWay(t)
		}
		got, err := codec.DecodeState(codec.AppendState(nil, &want))
		if err != nil {
			t.Fatalf("DecodeState: got %v, want no error", err)
		}
		if got != want {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	})
}

func anyWay(t *rapid.T) (w driving.Way, r driving.RoadAround) {
	number := func() float32 { return rapid.Float32().Draw(t, "number") }
	w = driving.Way{
		Latitude: number(), Longitude: number(), Time: signal.UnixMilli(times.Draw(t, "fix")),
		AnchorLatitude: number(), AnchorLongitude: number(),
		SpeedKmh: number(),
		Octant:   rapid.Byte().Draw(t, "octant"), Heading: rapid.Bool().Draw(t, "heading"),
		Count: rapid.ByteMax(driving.WaySteps).Draw(t, "count"),
	}
	for i := range w.Steps {
		w.Steps[i] = driving.WayStep{
			Stretch: driving.Stretch(rapid.Uint64().Draw(t, "stretch")), Metres: number(), Seconds: number(),
		}
	}
	return w, driving.RoadAround{
		Time: w.Time, FreeSecondsBehind: number(), FreeSecondsAhead: number(),
		DelayBehind: number(), DelayAhead: number(), ShownBehind: number(), FreeKmh: number(),
		Cars: rapid.Byte().Draw(t, "cars"), Young: rapid.Bool().Draw(t, "young"),
	}
}

func TestSealCatches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		subject := subjects.Draw(t, "subject")
		body := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "body")
		record := codec.Seal(subject, append([]byte{0}, body...))
		got, err := codec.Unseal(subject, record)
		if err != nil || !bytes.Equal(got, body) {
			t.Fatalf("got %x, error %v; want %x", got, err, body)
		}
		at := rapid.IntRange(0, len(record)-1).Draw(t, "byte")
		flipped := bytes.Clone(record)
		flipped[at] ^= byte(rapid.IntRange(1, 255).Draw(t, "bits"))
		if _, err := codec.Unseal(subject, flipped); !errors.Is(err, codec.ErrDamaged) {
			t.Fatalf("byte %d changed: got %v, want %v", at, err, codec.ErrDamaged)
		}
		if _, err := codec.Unseal(subject, record[:rapid.IntRange(0, len(record)-1).Draw(t, "cut")]); !errors.Is(err, codec.ErrDamaged) {
			t.Fatalf("cut short: got %v, want %v", err, codec.ErrDamaged)
		}
		if other := subjects.Draw(t, "other"); other != subject {
			if _, err := codec.Unseal(other, record); !errors.Is(err, codec.ErrDamaged) {
				t.Fatalf("under another subject: got %v, want %v", err, codec.ErrDamaged)
			}
		}
	})
}

func TestUnseal_NewerVersion(t *testing.T) {
	const subject = "state.0.car"
	record := []byte{codec.SchemaVersion + 1, 1, 2, 3}
	sum := codec.Checksum(subject, record)
	record = append(record, byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24))
	if _, err := codec.Unseal(subject, record); !errors.Is(err, codec.ErrNewer) {
		t.Fatalf("Unseal: got %v, want %v", err, codec.ErrNewer)
	}
	for _, c := range []struct {
		name   string
		want   error
		decode func() error
	}{
		{"a sample with a signal that is not known", codec.ErrNewer, func() error {
			return codec.DecodeSamples(binary.AppendUvarint([]byte{1, 'a', 2}, 1<<signal.Num), func(vehicle.Sample) {})
		}},
		{"a source with a number that is too large", codec.ErrDamaged, func() error {
			return codec.DecodeSamples(binary.AppendUvarint([]byte{0}, 1<<33), func(vehicle.Sample) {})
		}},
		{"a way of too many stretches", codec.ErrDamaged, func() error {
			_, err := codec.DecodeState(codec.AppendState(nil, &vehicle.State{Way: driving.Way{Count: driving.WaySteps + 1}}))
			return err
		}},
		{"a state with a signal that is not known", codec.ErrNewer, func() error {
			s := vehicle.State{Time: 1}
			s.Latest[signal.Num-1].Time = 1
			packed := codec.AppendState(nil, &s)
			packed[4] |= 0x40 // after the length and the outer bitmap of the second section
			_, err := codec.DecodeState(packed)
			return err
		}},
	} {
		if err := c.decode(); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
		}
	}
}

// These formats must stay readable for as long as there are records.
func TestStoredFormat(t *testing.T) {
	x := vehicle.Sample{Vehicle: "carA", Time: 1000}
	for _, err := range []error{x.Set(signal.Speed, 12.5), x.SetCodes([]signal.TroubleCode{{'P', '0', '1', '2', '0'}})} {
		if err != nil {
			t.Fatalf("the sample: got %v, want no error", err)
		}
	}
	state := vehicle.Observe(vehicle.State{}, x)
	for _, c := range []struct {
		what string
		got  []byte
		want string
	}{
		{"a sample", codec.AppendSample(nil, &x), "0463617241d00f8108000048410000803f015030313230"},
		{"a source", codec.AppendSource(nil, &vehicle.Sample{Source: 300}), "00ac02"},
		{"a crowd", codec.AppendSource(nil, &vehicle.Sample{Source: 300, Crowd: true}), "00ac82808010"},
		{"a state", codec.AppendState(nil, &state), "d00f01010300004841010105033000004841000000803f0001011f503031323001" +
			"0337260000484100000000803f00000442000048410000000400000004c0000100"},
		{"a seal", codec.Seal("state.0.carA", []byte{0, 'x'}), "0778f78bbf18"},
	} {
		if got := hex.EncodeToString(c.got); got != c.want {
			t.Errorf("%s: got\n%s, want\n%s", c.what, got, c.want)
		}
	}
}

// Partitions must never change, because they are part of stored subjects.
func TestPartitionOf(t *testing.T) {
	for _, c := range []struct {
		id          vehicle.ID
		p4, p64, p7 int
	}{
		{"a", 0, 12, 5},
		{"NHeN4UqVsohGS55I7LBdh", 0, 28, 3},
		{"WVWZZZ1KZAW000001", 2, 54, 1},
		{"0", 3, 47, 4},
		{"carA", 0, 0, 2},
	} {
		p4, p64, p7 := codec.PartitionOf(c.id, 4), codec.PartitionOf(c.id, 64), codec.PartitionOf(c.id, 7)
		if p4 != c.p4 || p64 != c.p64 || p7 != c.p7 {
			t.Errorf("%s: got partitions %d of 4, %d of 64, %d of 7; want %d, %d, %d", c.id, p4, p64, p7, c.p4, c.p64, c.p7)
		}
	}
	seen := make([]int, 64)
	for i := range 64_000 {
		seen[codec.PartitionOf(vehicle.ID(fmt.Sprintf("car%d", i)), 64)]++
	}
	for p, n := range seen {
		if n < 800 || n > 1200 {
			t.Errorf("partition %d has %d of 64,000 vehicles, want 800 to 1,200", p, n)
		}
	}
}

func FuzzDecodeSamples(f *testing.F) {
	x := vehicle.Sample{Vehicle: "carA", Time: 1000}
	x.Set(signal.Speed, 12.5)
	x.SetCodes([]signal.TroubleCode{{'P', '0', '1', '2', '0'}})
	f.Add(codec.AppendSample(nil, &x))
	f.Add(codec.AppendSample(codec.AppendSample(nil, &x), &x))
	f.Add([]byte{1, 'a', 2, 0x80, 0x08, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, body []byte) {
		bounded(t, len(body), func() {
			err := codec.DecodeSamples(body, func(x vehicle.Sample) {
				if _, err := vehicle.ParseID(string(x.Vehicle)); err != nil {
					t.Errorf("the vid: got %q, want a valid one", x.Vehicle)
				}
			})
			if err != nil && !errors.Is(err, codec.ErrDamaged) && !errors.Is(err, codec.ErrNewer) {
				t.Errorf("DecodeSamples: got %v, want %v or %v", err, codec.ErrDamaged, codec.ErrNewer)
			}
		})
	})
}

func FuzzDecodeState(f *testing.F) {
	x := vehicle.Sample{Vehicle: "carA", Time: 1000}
	x.Set(signal.Speed, 12.5)
	s := vehicle.Observe(vehicle.State{}, x)
	f.Add(codec.AppendState(nil, &s))
	f.Add(codec.AppendState(nil, &vehicle.State{}))
	f.Fuzz(func(t *testing.T, body []byte) {
		bounded(t, len(body), func() {
			if _, err := codec.DecodeState(body); err != nil && !errors.Is(err, codec.ErrDamaged) && !errors.Is(err, codec.ErrNewer) {
				t.Errorf("DecodeState: got %v, want %v or %v", err, codec.ErrDamaged, codec.ErrNewer)
			}
		})
	})
}

// Seal must make the same record from the subject and body that Unseal accepts.
func FuzzUnseal(f *testing.F) {
	f.Add("state.0.CARA", codec.Seal("state.0.CARA", []byte{0, 'x'}))
	f.Add("state.0.CARB", codec.Seal("state.0.CARA", []byte{0, 'x'}))
	f.Add("", []byte{})
	f.Fuzz(func(t *testing.T, subject string, sealed []byte) {
		body, err := codec.Unseal(subject, sealed)
		if err != nil {
			if !errors.Is(err, codec.ErrDamaged) && !errors.Is(err, codec.ErrNewer) {
				t.Errorf("Unseal: got %v, want %v or %v", err, codec.ErrDamaged, codec.ErrNewer)
			}
			return
		}
		if again := codec.Seal(subject, append([]byte{sealed[0]}, body...)); string(again) != string(sealed) {
			t.Errorf("sealing the body again: got %x, want %x", again, sealed)
		}
	})
}

// bounded checks that f allocates at most 64 KiB and 100 bytes for each of its input bytes.
func bounded(t *testing.T, input int, f func()) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	if got, limit := after.TotalAlloc-before.TotalAlloc, uint64(64<<10+100*input); got > limit {
		t.Errorf("%d bytes of input: allocated %d bytes, want at most %d", input, got, limit)
	}
}

func TestPartitionOfCursor(t *testing.T) {
	for subject, want := range map[string]int{"cursor.0": 0, "cursor.4095": 4095} {
		if p, ok := codec.PartitionOfCursor(subject); !ok || p != want {
			t.Errorf("%s: got %d, %v; want %d", subject, p, ok, want)
		}
	}
	for _, subject := range []string{"cursor.-1", "cursor.", "cursor.x", "state.0.V1", "cursor.99999999999999999999"} {
		if p, ok := codec.PartitionOfCursor(subject); ok {
			t.Errorf("%s: got %d, want none", subject, p)
		}
	}
}
