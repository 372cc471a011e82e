package derive_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"example.org/carstate/internal/derive"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/local"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

// One operation is one sample that is stored, synced and folded, in requests of 1,000. cpu-ns is of
// all processors.
func BenchmarkSamples(b *testing.B) {
	for _, each := range []int{10, 1} {
		b.Run(fmt.Sprintf("%d a car", each), func(b *testing.B) {
			e, err := local.Open(b.Context(), local.Config{DataDir: b.TempDir()})
			testkit.NoError(b, err)
			ctx, cancel := context.WithCancel(b.Context())
			var running sync.WaitGroup
			running.Go(func() {
				if err := e.FollowAnswers(ctx, func(vehicle.ID, *store.Answer) {}, func() {}); err != nil {
					b.Errorf("FollowAnswers: got %v, want no error", err)
				}
			})
			d := derive.New(derive.Config{
				Partitions: e.Partitions(), Records: e, Checkpoint: time.Second,
				Take: func(ctx context.Context, p int, owner store.Owner) (store.Partition, error) {
					return e.Take(ctx, p, "bench", owner, store.Anyone)
				},
			})
			running.Go(func() { d.Run(ctx) })
			const request, senders, cars = 1000, 4, 100_000
			poll := time.NewTicker(time.Millisecond)
			defer poll.Stop()
			began := testkit.ProcessorTime()
			b.ResetTimer()
			var sending sync.WaitGroup
			for s := range senders {
				sending.Go(func() {
					at := time.Now().UnixMilli()
					for n := s * request; n < b.N; n += senders * request {
						batch := make([]vehicle.Sample, 0, request)
						for i := range request {
							x := vehicle.Sample{
								Vehicle: vehicle.ID(fmt.Sprintf("CAR%06d", (n+i)/each%cars)),
								Time:    signal.UnixMilli(at + int64((n+i)%each) + int64(n)*int64(each)),
							}
							_ = x.Set(signal.Speed, float64(i%120))
							_ = x.Set(signal.ThrottlePosition, float64(i%100))
							batch = append(batch, x)
						}
						for e.Append(ctx, batch) != nil {
							<-poll.C
						}
					}
				})
			}
			sending.Wait()
			for d.Samples.Load() < uint64(b.N) {
				<-poll.C
			}
			b.StopTimer()
			b.ReportMetric(float64(testkit.ProcessorTime()-began)/float64(b.N), "cpu-ns/op")
			cancel()
			running.Wait()
			testkit.NoError(b, e.Close())
		})
	}
}
