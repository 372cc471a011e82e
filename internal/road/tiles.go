package road

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/golang/geo/s2"

	"example.org/carstate/internal/driving"
)

// Tile names a cell of S2, about 2.5 km wide. One stored record has its profiles.
type Tile uint64

const tileLevel = 12

func tileOf(s driving.Stretch) Tile { return Tile(cellOf(s).Parent(tileLevel)) }

func (t Tile) String() string { return s2.CellID(t).ToToken() }

func ParseTile(token string) (Tile, error) {
	c := s2.CellIDFromToken(token)
	if !c.IsValid() || c.Level() != tileLevel || c.ToToken() != token {
		return 0, errMalformed
	}
	return Tile(c), nil
}

// A packed profile: stretch (uint64), free flow in m/s (float32), quarter hours and metres of a
// passage (bytes), two next stretches, each a uint64 and a byte of weight; little endian.
const profileBytes = 8 + 4 + 2 + 2*(8+1)

// Changed returns all profiles of each tile changed since the last call. A tile without profiles
// was forgotten. Tiles that want refuses are left out until they change again.
func (m *Map) Changed(want func(Tile) bool) map[Tile][]byte {
	packed := make(map[Tile][]byte)
	for i := range m.shards {
		sh := &m.shards[i]
		sh.mu.Lock()
		for k := range sh.count {
			if s := sh.at(k); s.changed {
				s.changed = false
				if t := tileOf(s.name); want(t) {
					packed[t] = nil
				}
			}
		}
		sh.mu.Unlock()
	}
	if len(packed) == 0 {
		return nil
	}
	for s := range m.all {
		t := tileOf(s.name)
		if _, ok := packed[t]; ok && s.free != 0 {
			packed[t] = m.appendProfile(packed[t], s)
		}
	}
	return packed
}

func (m *Map) appendProfile(b []byte, s *stretch) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(s.name))
	b = binary.LittleEndian.AppendUint32(b, math.Float32bits(s.free))
	b = append(b, s.quarters, s.lengthMetres)
	for i, p := range s.next {
		var name driving.Stretch
		if p != 0 {
			name = m.at(p).name
		}
		b = binary.LittleEndian.AppendUint64(b, uint64(name))
		b = append(b, s.nextWeight[i])
	}
	return b
}

// Load adds a tile's profiles, or none if one is malformed. The map keeps its own profile of a
// stretch if from at least as many quarter hours. What a full map refuses counts in [Map.Refused].
func (m *Map) Load(t Tile, packed []byte) error {
	if len(packed)%profileBytes != 0 {
		return errMalformed
	}
	for b := packed; len(b) > 0; b = b[profileBytes:] {
		if name := driving.Stretch(binary.LittleEndian.Uint64(b)); !Valid(name) || tileOf(name) != t {
			return errMalformed
		}
		if free := freeOf(b); !(free >= 0 && free <= fastestMetresPerSecond) {
			return errMalformed
		}
		for i := range 2 {
			if next := driving.Stretch(binary.LittleEndian.Uint64(b[profileBytes-18+9*i:])); next != 0 && !Valid(next) {
				return errMalformed
			}
		}
	}
	for b := packed; len(b) > 0; b = b[profileBytes:] {
		m.load(b)
	}
	return nil
}

// Outside returns packed without the stretches in boxes, or all if it is malformed.
func Outside(packed []byte, boxes []Box) (kept []byte) {
	if len(boxes) == 0 || len(packed)%profileBytes != 0 {
		return packed
	}
	for p := range slices.Chunk(packed, profileBytes) {
		middle := cellOf(driving.Stretch(binary.LittleEndian.Uint64(p))).LatLng()
		if !slices.ContainsFunc(boxes, func(b Box) bool { return b.rect().ContainsLatLng(middle) }) {
			kept = append(kept, p...)
		}
	}
	return kept
}

func freeOf(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b[8:])) }

func (m *Map) load(b []byte) {
	p := stretch{name: driving.Stretch(binary.LittleEndian.Uint64(b))}
	p.free = freeOf(b)
	p.quarters, p.lengthMetres = b[12], b[13]
	for i := range p.next {
		next := b[14+9*i:]
		if name := driving.Stretch(binary.LittleEndian.Uint64(next)); name != 0 {
			sh := m.shardOf(name)
			sh.mu.Lock()
			_, p.next[i] = sh.getAt(name, 0)
			sh.mu.Unlock()
			if p.next[i] != 0 {
				p.nextWeight[i] = next[8]
			}
		}
	}
	sh := m.shardOf(p.name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	s, _ := sh.getAt(p.name, 0)
	if s == nil {
		m.Refused.Add(1)
		return
	}
	if s.quarters >= p.quarters && s.free != 0 {
		return
	}
	s.free, s.quarters = p.free, p.quarters
	s.lengthMetres, s.next, s.nextWeight = p.lengthMetres, p.next, p.nextWeight
}
