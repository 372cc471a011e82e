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
// A byte 0 and a uvarint are the number of the source of the samples that follow, with bit 32 for
// vehicle.Sample.Crowd. Packed series of samples can be joined, because each begins with a source.

func AppendSample(b []byte, x *vehicle.Sample) []byte {
	b = binary.AppendUvarint(b, uint64(len(x.Vehicle)))
	b = append(b, x.Vehicle...)
	b = binary.AppendVarint(b, int64(x.Time))
	b = binary.AppendUvarint(b, uint64(x.Present()))
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

// DecodeSamples yields samples that share no memory with body, up to the first that it cannot
// decode. The error is then [ErrNewer] for an unknown signal, and otherwise [ErrDamaged].
func DecodeSamples(body []byte, yield func(vehicle.Sample)) error {
	r := Reader{Rest: body}
	var last vehicle.ID // shared, because most samples are followed by one of the same vehicle
	var source uint64
	for len(r.Rest) > 0 {
		if r.Rest[0] == 0 {
			r.Bytes(1)
			if source = r.Uvarint(); r.Short || source >= 2*crowdBit {
				return ErrDamaged
			}
			continue
		}
		x := vehicle.Sample{Source: uint32(source), Crowd: source&crowdBit != 0}
		if id := r.Counted(); string(id) != string(last) {
			last = vehicle.ID(id)
			if vehicle.CheckID(string(last)) != nil {
				return ErrDamaged // the vid would not be valid in a subject
			}
		}
		x.Vehicle = last
		x.Time = signal.UnixMilli(r.Varint())
		present := r.Uvarint()
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
			n := r.Uvarint()
			if n > uint64(len(r.Rest)) {
				return ErrDamaged
			}
			x.Codes = make([]signal.TroubleCode, n)
			for i := range x.Codes {
				copy(x.Codes[i][:], r.Bytes(len(x.Codes[i])))
			}
		}
		if r.Short || x.Vehicle == "" {
			return ErrDamaged
		}
		yield(x)
	}
	return nil
}

// Reader decodes Rest. If that is too short, or a number is invalid, it returns the zero value and
// sets Short, which is never reset.
type Reader struct {
	Rest  []byte
	Short bool
}

func (r *Reader) fail() { r.Rest, r.Short = nil, true }

// Bytes returns a part of Rest, not a copy.
func (r *Reader) Bytes(n int) []byte {
	if n < 0 || n > len(r.Rest) {
		r.fail()
		return nil
	}
	v := r.Rest[:n]
	r.Rest = r.Rest[n:]
	return v
}

// Counted reads a number, and as many bytes.
func (r *Reader) Counted() []byte { return r.Bytes(int(r.Uvarint())) }

func (r *Reader) Byte() byte {
	if v := r.Bytes(1); v != nil {
		return v[0]
	}
	return 0
}

func (r *Reader) Uvarint() uint64 {
	v, n := binary.Uvarint(r.Rest)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.Rest = r.Rest[n:]
	return v
}

func (r *Reader) Varint() int64 {
	v, n := binary.Varint(r.Rest)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.Rest = r.Rest[n:]
	return v
}

func (r *Reader) float32() float32 {
	if v := r.Bytes(4); v != nil {
		return math.Float32frombits(binary.LittleEndian.Uint32(v))
	}
	return 0
}
