package codec

import (
	"encoding/binary"
	"math"

	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

// A packed sample is
//
//	uvarint length of vid, vid
//	varint  time, Unix milliseconds
//	uvarint bit set of the signals present, bit i for signal.Signal(i)
//	float32 little endian, for each signal present, lowest bit first
//	uvarint number of codes and 5 bytes each, if DTCList is present
//
// A byte 0 and a uvarint are the source of the samples that follow; bit 32 is set if each of its
// cars is a voice on roads. Packed samples can be joined, because each series begins with a source.

func AppendSample(b []byte, x *vehicle.Sample) []byte {
	b = binary.AppendUvarint(b, uint64(len(x.Vehicle)))
	b = append(b, x.Vehicle...)
	b = binary.AppendVarint(b, int64(x.Time))
	var present uint64
	for s := range signal.Signal(signal.Num) {
		if x.Has(s) {
			present |= 1 << s
		}
	}
	b = binary.AppendUvarint(b, present)
	for s := range signal.Signal(signal.Num) {
		if v, ok := x.Value(s); ok {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
	}
	if x.Has(signal.DTCList) {
		b = binary.AppendUvarint(b, uint64(len(x.Codes)))
		for _, c := range x.Codes {
			b = append(b, c[:]...)
		}
	}
	return b
}

const crowdBit = 1 << 32

func AppendSource(b []byte, x *vehicle.Sample) []byte {
	n := uint64(x.Source)
	if x.Crowd {
		n |= crowdBit
	}
	return binary.AppendUvarint(append(b, 0), n)
}

// No sample shares memory with body. The samples before one that cannot be decoded are yielded. The
// error is [ErrNewer] for an unknown signal, and otherwise [ErrDamaged].
func DecodeSamples(body []byte, yield func(vehicle.Sample)) error {
	r := reader{b: body}
	var last vehicle.ID // shared, because most samples are followed by one of the same vehicle
	var source uint64
	for len(r.b) > 0 {
		if r.b[0] == 0 {
			r.bytes(1)
			if source = r.uvarint(); r.short || source >= 2*crowdBit {
				return ErrDamaged
			}
			continue
		}
		x := vehicle.Sample{Source: uint32(source), Crowd: source&crowdBit != 0}
		if id := r.bytes(int(r.uvarint())); string(id) != string(last) {
			last = vehicle.ID(id)
			if vehicle.CheckID(string(last)) != nil {
				return ErrDamaged // the vid would not be valid in a subject
			}
		}
		x.Vehicle = last
		x.Time = signal.UnixMilli(r.varint())
		present := r.uvarint()
		if present>>signal.Num != 0 {
			return ErrNewer
		}
		for s := range signal.Signal(signal.Num) {
			if present&(1<<s) != 0 {
				if err := x.Set(s, float64(r.float32())); err != nil {
					return ErrDamaged
				}
			}
		}
		if x.Has(signal.DTCList) {
			n := r.uvarint()
			if n > uint64(len(r.b)) {
				return ErrDamaged
			}
			x.Codes = make([]signal.TroubleCode, n)
			for i := range x.Codes {
				copy(x.Codes[i][:], r.bytes(len(x.Codes[i])))
			}
		}
		if r.short || x.Vehicle == "" {
			return ErrDamaged
		}
		yield(x)
	}
	return nil
}

// If b is too short, or a length is invalid, reader returns the zero value and sets short, which is
// never reset.
type reader struct {
	b     []byte
	short bool
}

func (r *reader) bytes(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.b, r.short = nil, true
		return nil
	}
	v := r.b[:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) byte() byte {
	if v := r.bytes(1); v != nil {
		return v[0]
	}
	return 0
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	r.bytes(skip(n))
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	r.bytes(skip(n))
	return v
}

// -1 stands for an invalid varint: reader.bytes then sets short
func skip(n int) int {
	if n <= 0 {
		return -1
	}
	return n
}

func (r *reader) float32() float32 {
	if v := r.bytes(4); v != nil {
		return math.Float32frombits(binary.LittleEndian.Uint32(v))
	}
	return 0
}
