package local

import (
	"bytes"
	"encoding/binary"
	"testing"

	"carstate/internal/store/codec"
	"carstate/internal/vehicle"
)

// FuzzStored reads values as they could lie in a damaged store: a reader refuses them, and
// what it takes is what would be written.
func FuzzStored(f *testing.F) {
	state := vehicle.Observe(vehicle.State{}, sample("v", 1000, 50))
	record := codec.Seal("token.a", []byte{0, 'x'})
	f.Add(appendAnswer(nil, "v", &state))
	f.Add(appendRecord(nil, 7, "token.a", record))
	group := codec.AppendSample(append(binary.BigEndian.AppendUint64(nil, 1), 0), new(sample("v", 1000, 50)))
	f.Add(group[:timeBytes+len(codec.Seal(codec.TelemetrySubject(0), group[timeBytes:]))-4])
	f.Fuzz(func(t *testing.T, value []byte) {
		if r, err := decodeRecord(value); err == nil && len(r.Subject) < 128 {
			if again := appendRecord(nil, r.Seq, r.Subject, r.Sealed); !bytes.Equal(again, value) {
				if is, err := decodeRecord(again); err != nil || is.Subject != r.Subject || is.Seq != r.Seq {
					t.Errorf("%x becomes %x", value, again)
				}
			}
		}
		if id, d, th, err := decodeAnswer(value); err == nil && (len(id) > len(value) || d.Time == 0 && th.Time == 0 && len(value) == 0) {
			t.Errorf("%x is an answer", value)
		}
		if g, err := decodeGroup(0, telemetryKey(0, 1), value); err == nil {
			for _, x := range g.samples {
				if vehicle.CheckID(string(x.Vehicle)) != nil {
					t.Errorf("%x holds a vehicle %q", value, x.Vehicle)
				}
			}
		}
	})
}
