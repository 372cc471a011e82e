package sender

import (
	"context"
	"iter"
	"slices"
	"time"

	"example.org/carstate/internal/lab/drivelog"
	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

const (
	// A pause of Between begins a new drive.
	Between = 20 * time.Minute
	Batch   = 500
)

// Samples returns drives from time zero on, with Between after each.
func Samples(drives []*drivelog.Drive, id vehicle.ID) []vehicle.Sample {
	var samples []vehicle.Sample
	start := signal.UnixMilli(0)
	for _, d := range drives {
		for i := range d.Rows {
			if r := &d.Rows[i]; !r.Readings.Empty() {
				samples = append(samples, vehicle.Sample{Vehicle: id, Time: start.Add(r.At), Readings: r.Readings})
			}
		}
		start = start.Add(d.Duration() + Between)
	}
	return samples
}

// Shift moves all times, so that the last is end.
func Shift(samples []vehicle.Sample, end signal.UnixMilli) {
	if len(samples) == 0 {
		return
	}
	by := end - samples[len(samples)-1].Time
	for i := range samples {
		samples[i].Time += by
	}
}

// All calls done with the size of each acknowledged batch. It ends at the first error, also at a
// [Refusal].
func All(ctx context.Context, s Sender, samples []vehicle.Sample, done func(int)) error {
	for batch := range slices.Chunk(samples, Batch) {
		if err := s.Send(ctx, batch); err != nil {
			return err
		}
		done(len(batch))
	}
	return nil
}

// Live sends each sample at its own time, the first at once.
func Live(ctx context.Context, s Sender, samples []vehicle.Sample, done func(int)) error {
	if len(samples) == 0 {
		return nil
	}
	Shift(samples, signal.At(time.Now())+samples[len(samples)-1].Time-samples[0].Time)
	for len(samples) > 0 {
		if err := periodic.Pause(ctx, time.Until(samples[0].Time.Time())); err != nil {
			return err
		}
		now, n := signal.At(time.Now()), 1
		for n < len(samples) && n < Batch && samples[n].Time <= now {
			n++
		}
		if err := s.Send(ctx, samples[:n]); err != nil {
			return err
		}
		done(n)
		samples = samples[n:]
	}
	return nil
}

// If samples yields an error, Stream does not send the batch begun.
func Stream(ctx context.Context, s Sender, samples iter.Seq2[vehicle.Sample, error], done func(int)) error {
	batch := make([]vehicle.Sample, 0, Batch)
	for x, err := range samples {
		if err != nil {
			return err
		}
		if batch = append(batch, x); len(batch) == Batch {
			if err := All(ctx, s, batch, done); err != nil {
				return err
			}
			batch = batch[:0]
		}
	}
	return All(ctx, s, batch, done)
}
