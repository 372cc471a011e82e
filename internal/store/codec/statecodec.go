package codec

import (
	"encoding/binary"
	"math"
	"math/bits"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

// A packed state is a varint, its newest event time in Unix milliseconds, and then the sections of
// stateV7. Most numbers are zero, so a section is
//
//	byte     length of the outer bitmap
//	bitmap   a bit for each byte of the inner bitmap that is not zero
//	bitmap   these bytes: a bit for each number that is not zero, lowest bit of the first byte first
//	numbers  those that are not zero: a time as the varint of its distance to the time before it, a
//	         stretch of road too, a bool as nothing, and any other as its bytes, little endian
//
// No bit is lost, because verdicts depend on them.

// stateV7 lists the numbers of a state in the order of schema version 7, whatever the order of the
// fields. A number that is added at the end of a section is zero in states that were packed before.
func (p *packer) stateV7(s *vehicle.State) {
	p.section(func() { p.floats(&s.MeanSpeed).smalls((*uint8)(&s.Pace)).times(&s.RestingSince) })
	p.section(func() {
		for i := range s.Latest {
			p.floats(&s.Latest[i].Value).times(&s.Latest[i].Time)
		}
	})
	p.section(func() {
		c := &s.ThrottleMemory.FaultCode
		p.smalls(&c[0], &c[1], &c[2], &c[3], &c[4])
	})
	p.section(func() {
		m := &s.Traffic
		p.floats(&m.Kmh).times(&m.At, &m.Start, &m.Changed).
			floats(&m.Share, &m.FreeKmh, &m.MeanSeconds, &m.Stop, &m.Rolled, &m.TopKmh).times(&m.TopAt).
			floats(&m.Cruise).smalls((*uint8)(&m.Source)).bools(&m.Moved, &m.EngineMute).times(&m.Stood).
			smalls(&m.Repeats)
	})
	p.section(func() {
		w := &s.Way
		p.floats(&w.Latitude, &w.Longitude).times(&w.Time).
			floats(&w.AnchorLatitude, &w.AnchorLongitude, &w.SpeedKmh, &w.StayLatitude, &w.StayLongitude).
			times(&w.StaySince).floats(&w.LegKmh).bools(&w.Outside).floats(&w.LineMetres, &w.SpeedMetres).
			smalls(&w.Doubts).bools(&w.Distrusted).floats(&w.FromLatitude, &w.FromLongitude).
			bools(&w.OnRoad, &w.CompassWrong).smalls(&w.Octant).bools(&w.Heading).smalls(&w.Count)
		for i := range w.Steps {
			p.stretch(&w.Steps[i].Stretch).floats(&w.Steps[i].Metres, &w.Steps[i].Seconds)
		}
	})
	p.section(func() {
		r := &s.Road
		p.times(&r.Time).
			floats(&r.FreeSecondsBehind, &r.FreeSecondsAhead, &r.DelayBehind, &r.DelayAhead).
			floats(&r.ShownBehind, &r.FreeKmh, &r.Apart).times(&r.PassedFreely).smalls(&r.Cars).bools(&r.Young)
	})
	p.section(func() {
		m, f, a := &s.ThrottleMemory, &s.ThrottleMemory.Follow, &s.ThrottleMemory.Alarm
		p.times(&m.Last)
		for i := range m.Sensors {
			x := &m.Sensors[i]
			if p.skips(14) {
				continue
			}
			p.times(&x.Start, &x.PrevStart).
				floats(&x.Lo, &x.Hi, &x.PrevLo, &x.PrevHi, &x.Gap, &x.Step, &x.Travel, &x.AtLimit).
				shorts(&x.RestFor).smalls(&x.Rest, &x.Top, &x.Marks)
		}
		for i := range m.Pairs {
			x := &m.Pairs[i]
			if p.skips(27) {
				continue
			}
			p.times(&x.Last).floats(&x.Weight, &x.MeanX, &x.MeanY, &x.Sxx, &x.Sxy, &x.Disagreement)
			for k := range x.Stuck {
				y := &x.Stuck[k]
				p.times(&y.Since).floats(&y.At, &y.Low, &y.High, &y.PrevLow, &y.PrevHigh, &y.For)
			}
			for k := range x.Noise {
				p.floats(&x.Noise[k].Level, &x.Noise[k].Moved, &x.Noise[k].Wide)
			}
		}
		p.times(&f.Last).floats(&f.Low, &f.PlateLo, &f.PlateHi, &f.For, &f.Floor, &f.Rest, &f.RestFor).
			shorts(&f.Followed, &f.Ignored).smalls(&f.Missed, (*uint8)(&f.Demand))
		p.times(&a.Since, &a.Seen, &a.Looked).
			floats(&a.Calm, &a.ValueX, &a.ValueY, &a.Expected, &a.Measure).
			smalls((*uint8)(&a.Rule), (*uint8)(&a.X), (*uint8)(&a.Y), &a.Returns)
		for i := range m.Lags {
			x, y := &m.Lags[i][0], &m.Lags[i][1]
			p.shorts(&x.Behind, &x.Lag).bools(&x.Led).shorts(&y.Behind, &y.Lag).bools(&y.Led)
		}
		for i := range m.Ages {
			p.shorts(&m.Ages[i])
		}
		p.times(&m.CodeSeen).shorts(&m.CodeGap, &m.CodeGone, &m.Driven)
	})
}

const (
	mostNumbers    = 512 // of a section
	mostHeadBytes  = 1 + mostNumbers/64 + mostNumbers/8
	mostStateBytes = 4096
)

// packer appends numbers to packed, or if unpacks, reads them into a zero state.
type packer struct {
	unpacks, newer bool
	packed         []byte
	reader
	set           [mostNumbers / 64]uint64 // inner bitmap
	place         int                      // of the next number of the section
	timeBefore    signal.UnixMilli
	stretchBefore driving.Stretch
}

func (p *packer) section(numbers func()) {
	p.set, p.place = [len(p.set)]uint64{}, 0
	if p.unpacks {
		for i, outer := range p.bytes(int(p.byte())) {
			for ; outer != 0 && i < len(p.set); outer &= outer - 1 {
				p.set[i] |= uint64(p.byte()) << (8 * bits.TrailingZeros8(outer))
			}
			p.short = p.short || outer != 0
		}
		if p.set != [len(p.set)]uint64{} {
			numbers()
		}
		p.newer = p.newer || p.set != [len(p.set)]uint64{}
		return
	}
	start := len(p.packed)
	p.packed = append(p.packed, make([]byte, mostHeadBytes)...)
	numbers()
	behind, outer, length := p.packed[start+mostHeadBytes:], [len(p.set)]byte{}, 0
	inner := make([]byte, 0, mostNumbers/8)
	for i, set := range p.set {
		for k := 0; set != 0; k++ {
			if byte(set) != 0 {
				outer[i], length, inner = outer[i]|1<<k, i+1, append(inner, byte(set))
			}
			set >>= 8
		}
	}
	head := append(append(append(p.packed[:start], byte(length)), outer[:length]...), inner...)
	p.packed = append(head, behind...)
}

// next reports whether the next number is packed, which is so if it is set. The bit of one that is
// unpacked is cleared, so that those of unknown numbers are left.
func (p *packer) next(set bool) bool {
	word, bit := &p.set[p.place/64%len(p.set)], uint64(1)<<(p.place%64)
	p.place++
	if set = set || *word&bit != 0; set {
		*word ^= bit
	}
	return set
}

// skips passes over the next n numbers, at most 64, if none of them is to be unpacked.
func (p *packer) skips(n int) bool {
	word, at := p.place/64, p.place%64
	set := p.set[word]>>at | p.set[(word+1)%len(p.set)]<<(64-at)
	if !p.unpacks || set<<(64-n) != 0 {
		return false
	}
	p.place += n
	return true
}

func (p *packer) floats(all ...*float32) *packer {
	for _, v := range all {
		n := math.Float32bits(*v)
		switch {
		case !p.next(n != 0):
		case p.unpacks:
			*v = p.float32()
		default:
			p.packed = binary.LittleEndian.AppendUint32(p.packed, n)
		}
	}
	return p
}

func (p *packer) times(all ...*signal.UnixMilli) *packer {
	for _, v := range all {
		distance(p, v, &p.timeBefore)
	}
	return p
}

func (p *packer) stretch(v *driving.Stretch) *packer {
	distance(p, v, &p.stretchBefore)
	return p
}

func distance[T ~int64 | ~uint64](p *packer, v, before *T) {
	if !p.next(*v != 0) {
		return
	}
	if p.unpacks {
		*v = *before + T(p.varint())
	} else {
		p.packed = binary.AppendVarint(p.packed, int64(*v-*before))
	}
	*before = *v
}

func (p *packer) shorts(all ...*uint16) *packer {
	for _, v := range all {
		switch {
		case !p.next(*v != 0):
		case p.unpacks:
			*v = uint16(p.byte()) | uint16(p.byte())<<8
		default:
			p.packed = binary.LittleEndian.AppendUint16(p.packed, *v)
		}
	}
	return p
}

func (p *packer) smalls(all ...*uint8) *packer {
	for _, v := range all {
		switch {
		case !p.next(*v != 0):
		case p.unpacks:
			*v = p.byte()
		default:
			p.packed = append(p.packed, *v)
		}
	}
	return p
}

func (p *packer) bools(all ...*bool) *packer {
	for _, v := range all {
		if set := p.next(*v); p.unpacks {
			*v = set
		}
	}
	return p
}

func AppendState(b []byte, s *vehicle.State) []byte {
	p := packer{packed: binary.AppendVarint(b, int64(s.Time)), timeBefore: s.Time}
	p.stateV7(s)
	return p.packed
}

// The error of DecodeState is [ErrNewer] for a number that this version does not know, or
// [ErrDamaged].
func DecodeState(body []byte) (s vehicle.State, err error) {
	p := packer{unpacks: true, b: body}
	s.Time = signal.UnixMilli(p.varint())
	p.timeBefore = s.Time
	p.stateV7(&s)
	switch {
	case len(body) > mostStateBytes:
		return vehicle.State{}, ErrDamaged
	case p.newer:
		return vehicle.State{}, ErrNewer
	case p.short || len(p.b) != 0 || int(s.Way.Count) > driving.WaySteps:
		return vehicle.State{}, ErrDamaged
	}
	return s, nil
}
