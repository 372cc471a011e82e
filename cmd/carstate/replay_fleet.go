package main

import (
	"context"
	"fmt"
	"iter"
	"time"

	"carstate/internal/access"
	"carstate/internal/lab/fcd"
	"carstate/internal/vehicle"
)

// fleetReplayFlags say which fleet is replayed, and as what. Fleet and Prefix have no
// environment twin: CARSTATE_FLEET is there for demo and CARSTATE_PREFIX for simulate.
type fleetReplayFlags struct {
	Fleet  string        `env:"-" placeholder:"FCD" help:"Send a whole fleet, every car under its own name: a table (csv or csv.gz) with the columns vehicle, time (s), latitude, longitude and speed (km/h), ordered by time."`
	Prefix string        `env:"-" placeholder:"LETTERS" help:"Begin the names of the fleet's cars with this."`
	Ago    time.Duration `placeholder:"DURATION" help:"The fleet's last reading was so long ago, such as 24h, and not now."`
}

// mostAgo keeps the times of a fleet within those that the service takes.
const mostAgo = 365 * 24 * time.Hour

// validate refuses flags that do not go together.
func (c *replayCommand) validate() error {
	switch f := &c.fleetReplayFlags; {
	case f.Fleet == "" && (f.Prefix != "" || f.Ago != 0):
		return usageError("--prefix and --ago are of a fleet: name it with --fleet FCD")
	case f.Fleet == "" && len(c.Files) == 0:
		return usageError("expected recorded drives with --vid VID, or a fleet: --fleet FCD")
	case f.Fleet == "" && c.VID == "":
		return usageError("say which vehicle the drives are of: --vid VID")
	case f.Fleet == "":
		return nil
	case len(c.Files) > 0:
		return usageError("--fleet sends one fleet and no drives: leave out either")
	case c.VID != "":
		return usageError("--fleet sends every car under its own name: leave out --vid, or change the names with --prefix")
	case c.Live:
		return usageError("--fleet sends as fast as the service takes it: leave out --live")
	case f.Prefix != "" && vehicle.CheckID(f.Prefix) != nil || len(f.Prefix) > mostPrefix:
		return usageError("--prefix must be 1 to %d ASCII letters and digits", mostPrefix)
	case f.Ago < 0 || f.Ago > mostAgo:
		return usageError("--ago must be between 0s and %s, such as 24h", mostAgo)
	}
	return nil
}

// replayFleet replays a fleet.
func (c *replayCommand) replayFleet(ctx context.Context, w streams) error {
	fleet, err := fcd.Open(ctx, c.Fleet)
	if err != nil {
		return fmt.Errorf("the fleet cannot be replayed: %w", err)
	}
	ids := make([]vehicle.ID, len(fleet.Vehicles))
	for i, id := range fleet.Vehicles {
		if ids[i] = vehicle.ID(c.Prefix) + id; len(ids[i]) > vehicle.MaxReportingID {
			return usageError("--prefix makes a vid longer than %d characters: choose a shorter one", vehicle.MaxReportingID)
		}
	}
	return c.withLogin(ctx, access.VehicleSet(ids...), func(as sourceLogin) error { return c.sendFleet(ctx, w, fleet, as) })
}

// sendFleet replays a fleet as a source.
func (c *replayCommand) sendFleet(ctx context.Context, w streams, fleet *fcd.Fleet, as sourceLogin) error {
	s, err := c.connect(ctx, as)
	if err != nil {
		return err
	}
	defer s.close()
	progress := newProgress(w.err, fleet.Readings)
	base := vehicle.At(time.Now().Add(-c.Ago)).Add(-fleet.Last)
	err = sendStream(ctx, s, c.named(fleet.Samples(ctx, base)), progress)
	progress.end(err == nil)
	if err != nil {
		return partly{err, fmt.Sprintf("; %d of %d samples were acknowledged", progress.done, fleet.Readings)}
	}
	_, err = fmt.Fprintf(w.out, "%d samples of %d vehicles acknowledged by %s; what they mean can be asked within a second\n", fleet.Readings, len(fleet.Vehicles), s.door())
	return err
}

// named puts the prefix before the names of the cars.
func (c *replayCommand) named(samples iter.Seq2[vehicle.Sample, error]) iter.Seq2[vehicle.Sample, error] {
	return func(yield func(vehicle.Sample, error) bool) {
		for x, err := range samples {
			x.Vehicle = vehicle.ID(c.Prefix) + x.Vehicle
			if !yield(x, err) {
				return
			}
		}
	}
}

// sendStream sends samples in their order, without holding more than a batch of them.
func sendStream(ctx context.Context, s sender, samples iter.Seq2[vehicle.Sample, error], p *progress) error {
	batch := make([]vehicle.Sample, 0, batchSamples)
	for x, err := range samples {
		if err != nil {
			return err
		}
		if batch = append(batch, x); len(batch) == batchSamples {
			if err := sendAll(ctx, s, batch, p); err != nil {
				return err
			}
			batch = batch[:0]
		}
	}
	return sendAll(ctx, s, batch, p)
}
