package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/lab/drivelog"
	"example.org/carstate/internal/lab/fcd"
	"example.org/carstate/internal/lab/sender"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/term"
	"example.org/carstate/internal/vehicle"
)

type replayCommand struct {
	adminFlags
	ingestFlags
	fleetReplayFlags
	formatFlags
	Files []string `arg:"" optional:"" name:"file" help:"Recorded drives, plain or gzip: CSV, NDJSON or GPX. The format of known loggers is recognized."`
	VID   string   `name:"vid" placeholder:"VID" help:"The vehicle that the drives are sent for."`
	Live  bool     `help:"Send each reading at its time in the recording, beginning now."`
}

// Fleet and Prefix have env:"-": CARSTATE_FLEET is of demo, and CARSTATE_PREFIX of simulate.
type fleetReplayFlags struct {
	Fleet  string        `env:"-" placeholder:"FCD" help:"Send a whole fleet, each car with its own vid: a table (csv or csv.gz) ${more_fleet}"`
	Prefix string        `env:"-" placeholder:"LETTERS" help:"Prefix of the vids of the fleet's cars."`
	Ago    time.Duration `placeholder:"DURATION" help:"Age of the fleet's last reading, such as 24h; by default it is now."`
}

func (c *replayCommand) Run(ctx context.Context, w streams) error {
	if err := cmp.Or(c.validate(), c.checkTarget()); err != nil {
		return err
	}
	if c.Fleet != "" {
		return c.replayFleet(ctx, w)
	}
	id, err := vehicle.ParseReportingID(c.VID)
	if err != nil {
		return usageError("--vid: %v", err)
	}
	as, err := c.logFormat()
	if err != nil {
		return err
	}
	var drives []*drivelog.Drive
	for _, name := range c.Files {
		d, err := drivelog.Open(ctx, name, as)
		if err != nil {
			return err
		}
		fmt.Fprintf(w.err, "%s: a %s log of %s, %d of %d rows\n", name, d.Format, d.Duration().Round(time.Second),
			len(d.Rows), d.Lines)
		for _, n := range d.Notes() {
			fmt.Fprintf(w.err, "  %s\n", n)
		}
		drives = append(drives, d)
	}
	samples := sender.Samples(drives, id)
	return c.send(ctx, w, access.VehicleSet(id), string(id), len(samples), func(s sender.Sender, done func(int)) error {
		if c.Live {
			return sender.Live(ctx, s, samples, done)
		}
		sender.Shift(samples, signal.At(time.Now()))
		return sender.All(ctx, s, samples, done)
	})
}

// mostAgo keeps all times within the range that the service accepts.
const mostAgo = 365 * 24 * time.Hour

func (c *replayCommand) validate() error {
	switch f := &c.fleetReplayFlags; {
	case f.Fleet == "" && (f.Prefix != "" || f.Ago != 0):
		return usageError("--prefix and --ago need a fleet: give --fleet FCD")
	case f.Fleet == "" && len(c.Files) == 0:
		return usageError("expected recorded drives with --vid VID, or a fleet: --fleet FCD")
	case f.Fleet == "" && c.VID == "":
		return usageError("say which vehicle the drives are sent for: --vid VID")
	case f.Fleet == "":
		return nil
	case c.formatFlags.given():
		return usageError("--format is for recorded drives: leave out --fleet")
	case len(c.Files) > 0:
		return usageError("--fleet and recorded drives are mutually exclusive: leave out either")
	case c.VID != "":
		return usageError("--fleet sends each car with its own vid: leave out --vid, or change the vids with --prefix")
	case c.Live:
		return usageError("--fleet sends as fast as the service accepts it: leave out --live")
	case f.Prefix != "" && vehicle.CheckID(f.Prefix) != nil || len(f.Prefix) > mostPrefix:
		return usageError("--prefix must be 1 to %d ASCII letters and digits", mostPrefix)
	case f.Ago < 0 || f.Ago > mostAgo:
		return usageError("--ago must be between 0s and %s, such as 24h", mostAgo)
	}
	return nil
}

func (c *replayCommand) replayFleet(ctx context.Context, w streams) error {
	fleet, err := fcd.Open(ctx, c.Fleet)
	if err != nil {
		return fmt.Errorf("the fleet cannot be replayed: %w", err)
	}
	fleet.AddPrefix(c.Prefix)
	for _, id := range fleet.Vehicles {
		if len(id) > vehicle.MaxReportingID {
			return usageError("--prefix makes a vid longer than %d characters: choose a shorter one", vehicle.MaxReportingID)
		}
	}
	of := fmt.Sprintf("%d vehicles", len(fleet.Vehicles))
	return c.send(ctx, w, access.NamedOrAll(fleet.Vehicles...), of, fleet.Readings,
		func(s sender.Sender, done func(int)) error {
			base := signal.At(time.Now().Add(-c.Ago)).Add(-fleet.Last)
			return sender.Stream(ctx, s, fleet.Samples(ctx, base), done)
		})
}

// send calls its argument send with a connection, as the source in the flags or a temporary one for
// the vehicles, and with a function that counts acknowledged samples. of names what is sent.
func (c *replayCommand) send(
	ctx context.Context, w streams, vehicles access.Vehicles, of string, total int,
	send func(sender.Sender, func(int)) error,
) error {
	replay := func(as sender.Login) error {
		s, err := c.connect(ctx, as)
		if err != nil {
			return err
		}
		defer s.Close()
		progress := term.NewProgress(w.err, total, "samples")
		err = send(s, progress.Add)
		progress.End(err == nil)
		if err != nil {
			return partialError{err, fmt.Sprintf("; %d of %d samples of %s were acknowledged", progress.Done(), total, of)}
		}
		_, err = fmt.Fprintf(w.out, "%d samples of %s acknowledged by %s; their verdicts can be queried within a second\n",
			total, of, s.Door())
		return err
	}
	if c.Source != "" {
		return replay(sender.Login{Name: c.Source, Key: c.Key})
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	return sender.WithSource(ctx, client, "replay", vehicles, sender.TemporaryLife, replay)
}
