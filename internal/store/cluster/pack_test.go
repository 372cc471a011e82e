package cluster

import (
	"fmt"
	"testing"

	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/store/engine"
	"example.org/carstate/internal/vehicle"
)

// usualSamples returns the samples of a full commit. perCar is the number of consecutive samples of
// each car.
func usualSamples(b *testing.B, perCar int) []vehicle.Sample {
	samples := make([]vehicle.Sample, engine.ChunkSamples)
	for i := range samples {
		x := vehicle.Sample{Vehicle: vehicle.ID(fmt.Sprintf("NHeN4UqVsohGS5%07d", i/perCar)), Time: 1795147200250}
		for s, v := range map[vehicle.Signal]float64{
			vehicle.Speed: 12.4, vehicle.ThrottlePosition: 17.6, vehicle.EngineSpeed: 1820,
		} {
			if err := x.Set(s, v); err != nil {
				b.Fatal(err)
			}
		}
		samples[i] = x
	}
	return samples
}

// BenchmarkPack packs the samples of one commit.
func BenchmarkPack(b *testing.B) {
	samples := usualSamples(b, 1)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := engine.Pack(samples, 1, false); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(samples)), "ns/sample")
}

// BenchmarkUnpack unpacks the samples of one commit.
func BenchmarkUnpack(b *testing.B) {
	for _, perCar := range []int{1, 10} {
		b.Run(fmt.Sprintf("%d a car", perCar), func(b *testing.B) {
			var packed []byte
			samples := usualSamples(b, perCar)
			for i := range samples {
				packed = codec.AppendSample(packed, &samples[i])
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := codec.DecodeSamples(packed, func(vehicle.Sample) {}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(samples)), "ns/sample")
		})
	}
}
