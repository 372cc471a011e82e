package local

import (
	"bytes"
	"encoding/binary"
	"testing"

	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/vehicle"
)

// A decoder must refuse a value, or return what is the same after another round, and valid vids.
func FuzzStored(f *testing.F) {
	record := codec.Seal("token.a", []byte{0, 'x'})
	f.Add(appendRecord(nil, 7, "token.a", record))
	group := codec.AppendSample(append(binary.BigEndian.AppendUint64(nil, 1), 0), new(sample("v", 1000, 50)))
	f.Add(group[:timeBytes+len(codec.Seal(codec.TelemetrySubject(0), group[timeBytes:]))-4])
	f.Fuzz(func(t *testing.T, value []byte) {
		if r, err := decodeRecord(value); err == nil {
			again, err := decodeRecord(appendRecord(nil, r.Seq, r.Subject, r.Sealed))
			if err != nil || again.Subject != r.Subject || again.Seq != r.Seq || !bytes.Equal(again.Body, r.Body) {
				t.Errorf("%x: got %+v, then %+v, error %v; want twice the same", value, r, again, err)
			}
		}
		if g, _, err := decodeGroup(0, telemetryKey(0, 1), value, nil); err == nil {
			for _, x := range g.Samples {
				if vehicle.CheckID(string(x.Vehicle)) != nil {
					t.Errorf("%x: got the vehicle %q, want a valid vid", value, x.Vehicle)
				}
			}
		}
	})
}
