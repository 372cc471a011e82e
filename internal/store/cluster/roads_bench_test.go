package cluster

import (
	"context"
	"encoding/binary"
	"math"
	"runtime"
	"testing"

	"github.com/golang/geo/s2"

	"example.org/carstate/internal/road"
)

// manyRoads has evidence of three cars on each stretch, and one later.
func manyRoads(b *testing.B, stretches int) *road.Map {
	b.Helper()
	m := new(road.Map)
	var message []byte
	cell := s2.CellIDFromLatLng(s2.LatLngFromDegrees(44.5, 11.34)).Parent(16)
	from := uint64(0)
	for i := range stretches {
		name := uint64(cell) | uint64(i%2*4) // both directions of a road
		if i%2 == 1 {
			cell = cell.Next()
		}
		for voice := range 4 {
			unix := uint32(1_795_000_000) + uint32(voice/3*900)
			message = binary.LittleEndian.AppendUint64(message, name)
			message = binary.LittleEndian.AppendUint64(message, from)
			message = binary.LittleEndian.AppendUint32(message, unix)
			for _, v := range []float32{140, 10, 140, 10} { // in turn: metres, seconds
				message = binary.LittleEndian.AppendUint32(message, math.Float32bits(v))
			}
			message = append(message, byte(voice))
		}
		from = name
		if len(message) > 1<<20 || i == stretches-1 {
			if err := m.Absorb(message); err != nil {
				b.Fatal(err)
			}
			message = message[:0]
		}
	}
	return m
}

// The start of a node waits for this.
func BenchmarkLoadRoads(b *testing.B) {
	const stretches = 1_000_000
	e := open(b, Config{Partitions: 4})
	ctx, cancel := context.WithCancel(b.Context())
	m := manyRoads(b, stretches)
	for p := range e.Partitions() {
		take(b, e, p)
	}
	idle(e).KeepRoads(ctx, m, true, cancel) // loads nothing, and stores all stretches when it ends
	for b.Loop() {
		m = new(road.Map)
		ctx, cancel := context.WithCancel(b.Context())
		idle(e).KeepRoads(ctx, m, false, cancel)
	}
	if m.Len() != stretches {
		b.Fatalf("%d stretches of %d", m.Len(), stretches)
	}
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	b.ReportMetric(float64(memory.HeapAlloc)/stretches, "heap-bytes/stretch")
	runtime.KeepAlive(m)
}
