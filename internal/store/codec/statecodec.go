package codec

import (
	"encoding/binary"
	"math/bits"
	"unsafe"

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

// stateV7 lists the numbers of a state in the order of schema version 7, whatever the order of the
// fields. A number that is added at the end of a section is zero in states that were packed before.
func (p *list) stateV7(s *vehicle.State) {
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
			p.times(&x.Start, &x.PrevStart).
				floats(&x.Lo, &x.Hi, &x.PrevLo, &x.PrevHi, &x.Gap, &x.Step, &x.Travel, &x.AtLimit).
				shorts(&x.RestFor).smalls(&x.Rest, &x.Top, &x.Marks)
		}
		for i := range m.Pairs {
			x := &m.Pairs[i]
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

// list says where the numbers of a state are, by section. A loop over list takes half as long as a
// function call for each number; packing and unpacking are a fifth of the work of a sample.
type list struct {
	state    *vehicle.State
	sections [][]number
}

type number struct {
	kind kind
	at   uint16 // offset in bytes in the state
}

type kind uint8

const (
	isTime kind = iota
	isStretch
	isFloat
	isShort
	isSmall
	isBool
)

var sections = func() [][]number {
	l := list{state: new(vehicle.State)}
	l.stateV7(l.state)
	return l.sections
}()

func (p *list) section(numbers func()) {
	p.sections = append(p.sections, nil)
	numbers()
}

func add[T any](p *list, kind kind, all []*T) *list {
	at := &p.sections[len(p.sections)-1]
	for _, v := range all {
		*at = append(*at, number{kind, uint16(uintptr(unsafe.Pointer(v)) - uintptr(unsafe.Pointer(p.state)))})
	}
	return p
}

func (p *list) floats(all ...*float32) *list         { return add(p, isFloat, all) }
func (p *list) times(all ...*signal.UnixMilli) *list { return add(p, isTime, all) }
func (p *list) stretch(v *driving.Stretch) *list     { return add(p, isStretch, []*driving.Stretch{v}) }
func (p *list) shorts(all ...*uint16) *list          { return add(p, isShort, all) }
func (p *list) smalls(all ...*uint8) *list           { return add(p, isSmall, all) }
func (p *list) bools(all ...*bool) *list             { return add(p, isBool, all) }

const (
	mostNumbers    = 512 // of a section
	mostHeadBytes  = 1 + mostNumbers/64 + mostNumbers/8
	mostStateBytes = 4096
)

// bitmap is the inner bitmap of a section.
type bitmap [mostNumbers / 64]uint64

func AppendState(b []byte, s *vehicle.State) []byte {
	b = binary.AppendVarint(b, int64(s.Time))
	before := [...]int64{isTime: int64(s.Time), isStretch: 0}
	for _, numbers := range sections {
		var set bitmap
		start := len(b)
		b = append(b, make([]byte, mostHeadBytes)...)
		for i := 0; i < len(numbers); i += 64 {
			var word uint64
			for k, n := range numbers[i:min(i+64, len(numbers))] {
				switch v := unsafe.Add(unsafe.Pointer(s), n.at); n.kind {
				case isFloat:
					f := *(*uint32)(v)
					if f == 0 {
						continue
					}
					b = binary.LittleEndian.AppendUint32(b, f)
				case isTime, isStretch:
					t := *(*int64)(v)
					if t == 0 {
						continue
					}
					b, before[n.kind] = binary.AppendVarint(b, t-before[n.kind]), t
				case isShort:
					x := *(*uint16)(v)
					if x == 0 {
						continue
					}
					b = binary.LittleEndian.AppendUint16(b, x)
				default:
					x := *(*uint8)(v)
					if x == 0 {
						continue
					}
					if n.kind == isSmall {
						b = append(b, x)
					}
				}
				word |= 1 << (k % 64)
			}
			set[i/64] = word
		}
		b = set.insert(b, start)
	}
	return b
}

// insert puts the bitmaps of a section at start, in place of the mostHeadBytes left for them.
func (set *bitmap) insert(b []byte, start int) []byte {
	var outer [len(set)]byte
	inner, length := make([]byte, 0, mostNumbers/8), 0
	for i, word := range set {
		for word != 0 {
			k := bits.TrailingZeros64(word) / 8
			outer[i], length, inner = outer[i]|1<<k, i+1, append(inner, byte(word>>(8*k)))
			word &^= 0xff << (8 * k)
		}
	}
	behind := b[start+mostHeadBytes:]
	head := append(append(append(b[:start], byte(length)), outer[:length]...), inner...)
	return append(head, behind...)
}

// The error of DecodeState is [ErrNewer] for a number that this version does not know, or
// [ErrDamaged].
func DecodeState(body []byte) (s vehicle.State, err error) {
	t, n := binary.Varint(body)
	if n <= 0 || len(body) > mostStateBytes {
		return s, ErrDamaged
	}
	s.Time = signal.UnixMilli(t)
	r, before := Reader{Rest: body[n:]}, [2]int64{isTime: t, isStretch: 0}
	for _, numbers := range sections {
		if err := r.section(numbers, &s, &before); err != nil {
			return vehicle.State{}, err
		}
	}
	if len(r.Rest) != 0 || int(s.Way.Count) > driving.WaySteps {
		return vehicle.State{}, ErrDamaged
	}
	return s, nil
}

func (r *Reader) section(numbers []number, s *vehicle.State, before *[2]int64) error {
	var set bitmap
	for i, outer := range r.Bytes(int(r.Byte())) {
		for ; outer != 0 && i < len(set); outer &= outer - 1 {
			set[i] |= uint64(r.Byte()) << (8 * bits.TrailingZeros8(outer))
		}
		r.Short = r.Short || outer != 0
	}
	if r.Short {
		return ErrDamaged
	}
	b := r.Rest
	for i, word := range set {
		for ; word != 0; word &= word - 1 {
			place := i*64 + bits.TrailingZeros64(word)
			if place >= len(numbers) {
				return ErrNewer
			}
			n := numbers[place]
			if len(b) < leastBytes[n.kind] {
				return ErrDamaged
			}
			switch v := unsafe.Add(unsafe.Pointer(s), n.at); n.kind {
			case isFloat:
				*(*uint32)(v) = binary.LittleEndian.Uint32(b)
				b = b[4:]
			case isTime, isStretch:
				d, size := binary.Varint(b)
				if size <= 0 {
					return ErrDamaged
				}
				before[n.kind], b = before[n.kind]+d, b[size:]
				*(*int64)(v) = before[n.kind]
			case isShort:
				*(*uint16)(v) = binary.LittleEndian.Uint16(b)
				b = b[2:]
			case isSmall:
				*(*uint8)(v) = b[0]
				b = b[1:]
			case isBool:
				*(*bool)(v) = true
			}
		}
	}
	r.Rest = b
	return nil
}

var leastBytes = [...]int{isFloat: 4, isShort: 2, isSmall: 1, isBool: 0}
