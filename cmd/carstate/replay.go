package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"carstate/internal/access"
	"carstate/internal/lab/drivelog"
	"carstate/internal/vehicle"
)

type replayCommand struct {
	adminFlags
	doorFlags
	fleetReplayFlags
	Files []string `arg:"" optional:"" name:"file" help:"Recorded drives, plain or gzip; the format is known by the header."`
	VID   string   `name:"vid" placeholder:"VID" help:"The vehicle that the drives are said to be of."`
	Live  bool     `help:"Send each reading when it is due, as the car did, beginning now."`
}

// Help is shown by --help.
func (*replayCommand) Help() string {
	return `Times are shifted so that the last drive ends now, unless --live paces it.
Returns when every reading is acknowledged.

With --fleet, sends a whole fleet in order of time, as fast as the service takes it,
shifted so that its last reading is now, or --ago: another day teaches the roads.

Example:
  carstate replay drive.csv.gz --vid NHeN4UqVsohGS55I7LBdh
  carstate replay drive.csv.gz --vid NHeN4UqVsohGS55I7LBdh --live --mqtt-url mqtt://127.0.0.1:1883
  carstate replay --fleet learn.csv.gz --ago 24h
  carstate replay --fleet fcd.csv.gz --prefix BOLOGNA`
}

// between is the silence between two drives that are replayed one after the
// other: long enough to count as two.
const between = 20 * time.Minute

// Run replays the drives.
func (c *replayCommand) Run(ctx context.Context, w streams) error {
	if err := c.validate(); err != nil {
		return err
	}
	if err := c.checkDoor(); err != nil {
		return err
	}
	if c.Fleet != "" {
		return c.replayFleet(ctx, w)
	}
	id, err := vehicle.ParseID(c.VID)
	if err == nil && len(id) > vehicle.MaxReportingID {
		err = fmt.Errorf("a vid has at most %d characters", vehicle.MaxReportingID)
	}
	if err != nil {
		return usageError("--vid: %v", err)
	}
	var drives []*drivelog.Drive
	for _, name := range c.Files {
		d, err := openDrive(ctx, name)
		if err != nil {
			return err
		}
		fmt.Fprintf(w.err, "%s: a %s log of %s, %d of %d rows\n", name, d.Format, d.Duration().Round(time.Second), len(d.Rows), d.Lines)
		for _, n := range d.Notes() {
			fmt.Fprintf(w.err, "  %s\n", n)
		}
		drives = append(drives, d)
	}
	return c.withLogin(ctx, access.VehicleSet(id), func(as sourceLogin) error { return c.send(ctx, w, drives, id, as) })
}

// withLogin calls send as the source of the flags, else as one that lives as long as
// the call.
func (c *replayCommand) withLogin(ctx context.Context, of access.Vehicles, send func(sourceLogin) error) error {
	if c.Source != "" {
		return send(sourceLogin{name: c.Source, key: c.Key})
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	return withSource(ctx, client, "replay", of, temporaryLife, send)
}

// send replays the drives as a source.
func (c *replayCommand) send(ctx context.Context, w streams, drives []*drivelog.Drive, id vehicle.ID, as sourceLogin) error {
	s, err := c.connect(ctx, as)
	if err != nil {
		return err
	}
	defer s.close()
	samples := samplesOf(drives, id)
	progress := newProgress(w.err, len(samples))
	if c.Live {
		err = sendLive(ctx, s, samples, progress)
	} else {
		shift(samples, vehicle.At(time.Now()))
		err = sendAll(ctx, s, samples, progress)
	}
	progress.end(err == nil)
	if err != nil {
		return partly{err, fmt.Sprintf("; %d of %d samples of %s were acknowledged", progress.done, len(samples), id)}
	}
	_, err = fmt.Fprintf(w.out, "%d samples of %s acknowledged by %s; what they mean can be asked within a second\n", len(samples), id, s.door())
	return err
}

// openDrive reads a drive until ctx ends: a large file takes a while, and a pipe may
// stay silent for ever. What still reads then ends with the program.
func openDrive(ctx context.Context, name string) (*drivelog.Drive, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	type opened struct {
		drive *drivelog.Drive
		err   error
	}
	done := make(chan opened, 1)
	go func() {
		d, err := drivelog.Open(name)
		done <- opened{d, err}
	}()
	select {
	case o := <-done:
		if o.err != nil {
			return nil, readError(name, o.err)
		}
		return o.drive, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// readError names a file that could not be read, once.
func readError(name string, err error) error {
	if p, ok := errors.AsType[*os.PathError](err); ok {
		return fmt.Errorf("the drive %s cannot be read: %w", name, p.Err)
	}
	return fmt.Errorf("the drive cannot be read: %w", err)
}

// samplesOf makes samples of the drives' rows, with times from zero on.
func samplesOf(drives []*drivelog.Drive, id vehicle.ID) []vehicle.Sample {
	var samples []vehicle.Sample
	start := vehicle.UnixMilli(0)
	for _, d := range drives {
		for i := range d.Rows {
			if r := &d.Rows[i]; !r.Readings.Empty() {
				samples = append(samples, vehicle.Sample{Vehicle: id, Time: start.Add(r.At), Readings: r.Readings})
			}
		}
		start = start.Add(d.Duration() + between)
	}
	return samples
}

// shift moves times so that the last one is end.
func shift(samples []vehicle.Sample, end vehicle.UnixMilli) {
	if len(samples) == 0 {
		return
	}
	by := end - samples[len(samples)-1].Time
	for i := range samples {
		samples[i].Time += by
	}
}

// batchSamples is how many samples travel together.
const batchSamples = 500

// sendAll sends everything at once.
func sendAll(ctx context.Context, s sender, samples []vehicle.Sample, p *progress) error {
	for len(samples) > 0 {
		n := min(batchSamples, len(samples))
		if err := s.send(ctx, samples[:n]); err != nil {
			return err
		}
		p.add(n)
		samples = samples[n:]
	}
	return nil
}

// sendLive sends each sample when it is due, the first one now.
func sendLive(ctx context.Context, s sender, samples []vehicle.Sample, p *progress) error {
	if len(samples) == 0 {
		return nil
	}
	begin := vehicle.At(time.Now()) - samples[0].Time
	for i := range samples {
		samples[i].Time += begin
	}
	for len(samples) > 0 {
		due := time.NewTimer(time.Until(samples[0].Time.Time()))
		select {
		case <-ctx.Done():
			due.Stop()
			return ctx.Err()
		case <-due.C:
		}
		now, n := vehicle.At(time.Now()), 1
		for n < len(samples) && n < batchSamples && samples[n].Time <= now {
			n++
		}
		if err := s.send(ctx, samples[:n]); err != nil {
			return err
		}
		p.add(n)
		samples = samples[n:]
	}
	return nil
}
