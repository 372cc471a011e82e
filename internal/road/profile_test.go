package road_test

import (
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"example.org/carstate/internal/road"
)

func everyTile(road.Tile) bool { return true }

func restart(t interface{ Fatal(...any) }, packed map[road.Tile][]byte) *road.Map {
	m := new(road.Map)
	for tile, b := range packed {
		if err := m.Load(tile, b); err != nil {
			t.Fatal("Load of ", tile, ": got ", err, ", want no error")
		}
	}
	return m
}

func TestProfilesSurvive(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var m road.Map
		for d := range rapid.IntRange(1, 2).Draw(r, "days") {
			flows := someFlows(r)
			for i := range flows {
				flows[i].cars *= 3
				flows[i].from = start.Add(time.Duration(d) * 15 * day)
			}
			run(t, &m, flows...)
		}
		packed := m.Changed(everyTile)
		if again := m.Changed(everyTile); again != nil {
			r.Fatalf("tiles changed by being stored: got %d, want 0", len(again))
		}
		if want, got := profiles(&m), profiles(restart(r, packed)); !maps.Equal(got, want) {
			r.Fatalf("got the profiles %x, want %x", got, want)
		}
	})
}

func TestChangedOfWantedTiles(t *testing.T) {
	var m road.Map
	teach(t, &m, eastbound)
	if n := len(m.Changed(func(road.Tile) bool { return false })); n != 0 {
		t.Errorf("%d tiles that nobody wants", n)
	}
	teach(t, &m, westbound)
	all := make(map[road.Tile]bool)
	packed := m.Changed(func(tile road.Tile) bool { all[tile] = true; return len(all) == 1 })
	if len(all) < 2 || len(packed) != 1 {
		t.Errorf("the tiles: got %d stored of %d, want 1 of several", len(packed), len(all))
	}
	for tile := range packed {
		if is, err := road.ParseTile(tile.String()); is != tile || err != nil {
			t.Errorf("%s: got the tile %s, error %v; want the same", tile, is, err)
		}
	}
}

// A profile of fewer quarter hours replaces nothing.
func TestLoadKeepsWhatIsMore(t *testing.T) {
	var little, much road.Map
	f := street
	f.cars, f.every, f.from = 20, 60*time.Second, start.Add(-day)
	run(t, &little, f)
	f.cars, f.kmh = 100, 60
	run(t, &much, f)
	stored, want := little.Changed(everyTile), freeKmh(t, &much, street, start)
	for tile, b := range stored {
		for range 2 {
			if err := much.Load(tile, b); err != nil {
				t.Fatalf("Load: got %v, want no error", err)
			}
		}
	}
	if free := freeKmh(t, &much, street, start); math.Abs(free-want) > 1 {
		t.Errorf("the free flow: got %g km/h, want %g", free, want)
	}
}

func TestMalformedProfiles(t *testing.T) {
	var m road.Map
	teach(t, &m, street)
	for tile, b := range m.Changed(everyTile) {
		for name, spoil := range map[string]func(b []byte) []byte{
			"cut":               func(b []byte) []byte { return b[:len(b)-1] },
			"no stretch":        func(b []byte) []byte { clear(b[len(b)-profileBytes:][:8]); return b },
			"another level":     func(b []byte) []byte { b[len(b)-profileBytes] |= 8; return b },
			"next is none":      func(b []byte) []byte { b[len(b)-18] ^= 8; return b },
			"free flow is NaN":  func(b []byte) []byte { copy(b[len(b)-profileBytes+8:], "\xff\xff\xff\xff"); return b },
			"of another's tile": func(b []byte) []byte { b[len(b)-profileBytes+7] ^= 0x20; return b },
		} {
			var n road.Map
			if err := n.Load(tile, spoil(append([]byte(nil), b...))); err == nil || n.Len() != 0 {
				t.Errorf("%s: got error %v, %d stretches; want an error, 0", name, err, n.Len())
			}
		}
		if err := new(road.Map).Load(tile, b); err != nil {
			t.Errorf("Load: got %v, want no error", err)
		}
	}
}

func TestParseTile(t *testing.T) {
	for _, name := range []string{"", "X", "0", "1", "47a1cbd595", "479e7580", "ffffffffffffffff", "479E75",
		"../479e75"} {
		if tile, err := road.ParseTile(name); err == nil {
			t.Errorf("%q: got the tile %d, want an error", name, tile)
		}
	}
}

// A quarter hour ends once if readings of several cars cross at its end. Otherwise a guess would
// soon be taken for learned.
func TestQuartersCross(t *testing.T) {
	var m road.Map
	const quarter = 15 * 60
	end := (unix(start)/quarter + 1) * quarter
	for i := range uint32(40) {
		for voice := range uint8(8) {
			if err := m.Absorb(pack(evidence{Stretch: here, Metres: 20, Seconds: 2, Voice: voice,
				Unix: end - 20 + i - 15*uint32(voice/4)})); err != nil {
				t.Fatalf("Absorb: got %v, want no error", err)
			}
		}
	}
	packed := slices.Concat(slices.Collect(maps.Values(m.Changed(everyTile)))...)
	if len(packed) != profileBytes || packed[12] != 1 {
		t.Errorf("got the profiles %x, want one of 1 quarter hour", packed)
	}
}
