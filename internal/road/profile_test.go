package road

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func everyTile(Tile) bool { return true }

// restart returns a new map that has loaded the given packed profiles.
func restart(t interface{ Fatal(...any) }, packed map[Tile][]byte) *Map {
	m := new(Map)
	for tile, b := range packed {
		if err := m.Load(tile, b); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// TestProfilesSurvive checks that a map that has loaded the profiles of another map knows the same
// free flows and next stretches.
func TestProfilesSurvive(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var m Map
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
			r.Fatalf("%d tiles changed by being stored", len(again))
		}
		loaded := restart(r, packed)
		for i := range m.shards {
			for k := range m.shards[i].count {
				a := m.shards[i].at(k)
				j, ok := loaded.shards[i].find(a.name)
				if !ok {
					if a.free != 0 {
						r.Fatalf("%+v is lost", a)
					}
					continue
				}
				b := loaded.shards[i].at(j)
				if a.free == 0 { // the stretch is only known as the next one of a stored stretch
					if b.free != 0 {
						r.Fatalf("%+v became %+v", a, b)
					}
					continue
				}
				kmh, young := a.freeFlow()
				if is, isYoung := b.freeFlow(); is != kmh || isYoung != young || a.length() != b.length() ||
					m.nameOrNone(a.likeliest()) != loaded.nameOrNone(b.likeliest()) {
					r.Fatalf("%+v became %+v", a, b)
				}
			}
		}
	})
}

// TestChangedOfWantedTiles checks that Changed returns only the tiles that are wanted, and that
// ParseTile parses their names.
func TestChangedOfWantedTiles(t *testing.T) {
	var m Map
	teach(t, &m, eastbound)
	if n := len(m.Changed(func(Tile) bool { return false })); n != 0 {
		t.Errorf("%d tiles that nobody wants", n)
	}
	teach(t, &m, westbound)
	all := make(map[Tile]bool)
	packed := m.Changed(func(tile Tile) bool { all[tile] = true; return len(all) == 1 })
	if len(all) < 2 || len(packed) != 1 {
		t.Errorf("%d of %d tiles", len(packed), len(all))
	}
	for tile := range packed {
		if is, err := ParseTile(tile.String()); is != tile || err != nil {
			t.Errorf("%s is read as %s: %v", tile, is, err)
		}
	}
}

// TestLoadKeepsWhatIsMore checks that a stored profile does not replace what a node has learned of
// the stretch since its start, if the node has learned it from more quarter hours.
func TestLoadKeepsWhatIsMore(t *testing.T) {
	var little, much Map
	f := street
	f.cars, f.every, f.from = 20, 60*time.Second, start.Add(-day)
	run(t, &little, f)
	f.cars, f.kmh = 100, 60
	run(t, &much, f)
	stored, want := little.Changed(everyTile), freeKmh(t, &much, street, start)
	for tile, b := range stored {
		for range 2 {
			if err := much.Load(tile, b); err != nil {
				t.Fatal(err)
			}
		}
	}
	if free := freeKmh(t, &much, street, start); math.Abs(free-want) > 1 {
		t.Errorf("a free flow of %g km/h became %g", want, free)
	}
}

// TestMalformedProfiles checks that a tile with a malformed profile is refused as a whole.
func TestMalformedProfiles(t *testing.T) {
	var m Map
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
			var n Map
			if err := n.Load(tile, spoil(append([]byte(nil), b...))); err == nil || n.Len() != 0 {
				t.Errorf("%s: error %v, %d stretches", name, err, n.Len())
			}
		}
		if err := new(Map).Load(tile, b); err != nil {
			t.Error(err)
		}
	}
}

// TestParseTile checks that ParseTile refuses names that no tile has.
func TestParseTile(t *testing.T) {
	for _, name := range []string{"", "X", "0", "1", "47a1cbd595", "479e7580", "ffffffffffffffff", "479E75",
		"../479e75"} {
		if tile, err := ParseTile(name); err == nil {
			t.Errorf("%q is tile %d", name, tile)
		}
	}
}

// TestQuartersCross checks that a quarter hour ends only once if readings arrive in the wrong order
// at its end, as from cars whose messages take different times. If it were counted more than once,
// the free flow of the road would too soon be taken for learned, although it is still a guess.
func TestQuartersCross(t *testing.T) {
	var s stretch
	end := (unixOf(start)/quarterSeconds + 1) * quarterSeconds
	for i := range uint32(40) {
		for voice := range uint8(8) {
			s.add(&evidence{Metres: 20, Seconds: 2, Voice: voice, Unix: end - 20 + i - 15*uint32(voice/4)})
		}
	}
	if s.quarters != 1 {
		t.Errorf("%d quarter hours were seen", s.quarters)
	}
}
