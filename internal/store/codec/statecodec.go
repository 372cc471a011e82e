package codec

import (
	"encoding/binary"
	"math"
	"slices"

	"example.org/carstate/internal/vehicle"
)

// A packed state is
//
//	varint  newest event time, Unix milliseconds
//	5 bytes fault code, zeros if there is none
//	float32 mean speed
//	byte    pace
//	varint  resting since, as milliseconds before the newest event time; -1 if not resting
//	memory of the traffic rules, memory of the throttle rules, the car's way, and the road around it,
//	packed as described in sparse.go; way and road take three bytes for a car without positions
//	uvarint bit set of the signals ever read
//	for each of them, lowest bit first: float32 value, varint milliseconds before the newest event time

var (
	trafficLayout  = layoutOf[vehicle.TrafficMemory]()
	throttleLayout = layoutOf[vehicle.ThrottleMemory]()
	wayLayout      = layoutOf[vehicle.Way]()
	roadLayout     = layoutOf[vehicle.RoadAround]()
)

// mostStateBytes is the number of bytes that AppendState reserves for a sealed state. A state needs
// more only if its numbers are unusually large.
var mostStateBytes = 64 + trafficLayout.size + throttleLayout.size + wayLayout.size + roadLayout.size +
	12*vehicle.NumSignals

// AppendState appends the state s to b in its packed form.
func AppendState(b []byte, s *vehicle.State) []byte {
	b = slices.Grow(b, mostStateBytes) // one allocation in place of several
	b = binary.AppendVarint(b, int64(s.Time))
	b = append(b, s.FaultCode[:]...)
	b = binary.LittleEndian.AppendUint32(b, math.Float32bits(s.MeanSpeed))
	b = append(b, byte(s.Pace))
	resting := int64(-1)
	if s.RestingSince != 0 {
		resting = int64(s.Time - s.RestingSince)
	}
	b = binary.AppendVarint(b, resting)
	b = appendSparse(b, trafficLayout, &s.Traffic)
	b = appendSparse(b, throttleLayout, &s.ThrottleMemory)
	b = appendSparse(b, wayLayout, &s.Way)
	b = appendSparse(b, roadLayout, &s.Road)
	var present uint64
	for i := range s.Latest {
		if s.Latest[i].Time != 0 {
			present |= 1 << i
		}
	}
	b = binary.AppendUvarint(b, present)
	for i := range s.Latest {
		if r := s.Latest[i]; r.Time != 0 {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(r.Value))
			b = binary.AppendVarint(b, int64(s.Time-r.Time))
		}
	}
	return b
}

// DecodeState unpacks the body of a state's record. The error is [ErrNewer] if the state has a
// signal that this version does not know, and [ErrDamaged] if the body is malformed.
func DecodeState(body []byte) (vehicle.State, error) {
	var s vehicle.State
	r := reader{b: body}
	s.Time = vehicle.UnixMilli(r.varint())
	copy(s.FaultCode[:], r.bytes(len(s.FaultCode)))
	s.MeanSpeed = r.float32()
	if p := r.bytes(1); p != nil {
		s.Pace = vehicle.DrivingState(p[0])
	}
	if ago := r.varint(); ago >= 0 {
		s.RestingSince = s.Time - vehicle.UnixMilli(ago)
	}
	readSparse(&r, trafficLayout, &s.Traffic)
	readSparse(&r, throttleLayout, &s.ThrottleMemory)
	readSparse(&r, wayLayout, &s.Way)
	readSparse(&r, roadLayout, &s.Road)
	present := r.uvarint()
	if present>>vehicle.NumSignals != 0 {
		return vehicle.State{}, ErrNewer
	}
	for i := range s.Latest {
		if present&(1<<i) != 0 {
			s.Latest[i].Value = r.float32()
			s.Latest[i].Time = s.Time - vehicle.UnixMilli(r.varint())
		}
	}
	if r.short || len(r.b) != 0 || int(s.Way.Count) > vehicle.WaySteps {
		return vehicle.State{}, ErrDamaged
	}
	return s, nil
}

// SealMarker returns the sealed marker that replaces the state of a forgotten vehicle. The body of
// a marker is empty. The body of a state never is.
func SealMarker(subject string) []byte { return Seal(subject, []byte{0}) }

// IsMarker reports whether body is the body of a marker (see [SealMarker]).
func IsMarker(body []byte) bool { return len(body) == 0 }
