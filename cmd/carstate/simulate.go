package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"example.org/carstate/client"
	"example.org/carstate/internal/access"
	adminclient "example.org/carstate/internal/admin/client"
	"example.org/carstate/internal/lab/sender"
	"example.org/carstate/internal/lab/simulate"
	"example.org/carstate/internal/netaddr"
	"example.org/carstate/internal/vehicle"
)

type simulateCommand struct {
	adminFlags
	ingestFlags
	trafficFlags
	Duration  time.Duration `placeholder:"DURATION" help:"End after this time; by default, on Ctrl-C."`
	QueryAddr string        `default:"127.0.0.1:8080" placeholder:"ADDR" help:"The query listener to ask for the verdicts (${default})."`
	QueryURL  string        `name:"query-url" placeholder:"URL" help:"The query listener as a URL, such as https://cars.example."`
	Token     string        `placeholder:"TOKEN" help:"Ask with this access token; prefer CARSTATE_TOKEN. ${more_token}"`
	JSON      bool          `name:"json" help:"Print one JSON value and nothing else."`
}

type trafficFlags struct {
	Vehicles         int           `default:"500" help:"Number of cars (${default}); jams need 30 or more."`
	Rate             float64       `default:"1" placeholder:"HZ" help:"How often each car reports, in samples per second (${default})."`
	Seed             uint64        `default:"1" help:"The same seed gives the same traffic (${default})."`
	Faults           float64       `default:"0.2" placeholder:"N" help:"Throttle faults per hour and car (${default})."`
	FreeFlow         bool          `help:"Cars report the free-flow speed of their road too."`
	WithoutPositions bool          `help:"Cars report no positions."`
	Backdate         time.Duration `placeholder:"DURATION" help:"Begin this long ago, and catch up as fast as the service accepts it."`
	Prefix           string        `default:"SIM" placeholder:"LETTERS" help:"Prefix of the vids of the cars (${default})."`
}

const (
	mostCars     = 100_000
	mostPrefix   = 200
	mostBackdate = 24 * time.Hour
)

func (f *trafficFlags) validate() error {
	switch {
	case f.Vehicles < 1 || f.Vehicles > mostCars:
		return usageError("--vehicles must be between 1 and %d", mostCars)
	case !(f.Rate >= 0.01 && f.Rate <= 10):
		return usageError("--rate must be between 0.01 and 10 samples per second")
	case !(f.Faults >= 0 && f.Faults <= 100):
		return usageError("--faults must be between 0 and 100 per hour and car")
	case f.Backdate < 0 || f.Backdate > mostBackdate:
		return usageError("--backdate must be between 0s and %s", mostBackdate)
	case vehicle.CheckID(f.Prefix) != nil || len(f.Prefix) > mostPrefix:
		return usageError("--prefix must be 1 to %d ASCII letters and digits", mostPrefix)
	}
	return nil
}

func (c *simulateCommand) Run(ctx context.Context, w streams) error {
	if err := cmp.Or(c.validate(), c.checkTarget()); err != nil {
		return err
	}
	switch {
	case c.Duration < 0:
		return usageError("--duration must be a duration such as 10m")
	case !emptyOrURL(c.QueryURL, "http", "https"):
		return usageError("--query-url must be a URL such as http://127.0.0.1:8080")
	case strings.HasPrefix(c.Token, string(access.SandboxKind)):
		return usageError("--token or CARSTATE_TOKEN is a sandbox token, which sees no simulated vehicle: " +
			"unset it, or give an access token")
	}
	config := simulate.Config{
		Vehicles: c.Vehicles, PerSecond: c.Rate, Seed: c.Seed, Faults: c.Faults, FreeFlow: c.FreeFlow,
		WithoutPositions: c.WithoutPositions, Backdate: c.Backdate, Duration: c.Duration, Prefix: c.Prefix,
		Progress: w.err,
	}
	if asked := c.Source == "" || c.Token != ""; asked && c.Duration > 0 && c.Duration+c.Backdate <= simulate.AskAfter {
		fmt.Fprintf(w.err, "carstate: verdicts are compared with the truth once the cars have driven for %s: this "+
			"run is too short for that (--duration, --backdate)\n", simulate.AskAfter)
	}
	if c.Source != "" {
		return c.simulate(ctx, w, config, sender.Login{Name: c.Source, Key: c.Key}, c.Token)
	}
	operator, err := c.client()
	if err != nil {
		return err
	}
	cars, life := access.NamedOrAll(config.IDs()...), sender.EndlessLife
	if c.Duration > 0 {
		life = c.Duration + sender.TemporaryLife
	}
	return sender.WithSource(ctx, operator, "simulate", cars, life, func(as sender.Login) error {
		if c.Token != "" {
			return c.simulate(ctx, w, config, as, c.Token)
		}
		return sender.WithToken(ctx, operator, "simulate", cars, life, func(token string) error {
			return c.simulate(ctx, w, config, as, token)
		})
	})
}

// simulate prints the report even if the run failed.
func (c *simulateCommand) simulate(
	ctx context.Context, w streams, config simulate.Config, as sender.Login, token string,
) error {
	if token != "" {
		trust, err := adminclient.Trusting(c.CA)
		if err != nil {
			return err
		}
		base := cmp.Or(c.QueryURL, netaddr.BaseURL(c.QueryAddr))
		config.Developer = client.New(base, token, client.WithHTTPClient(adminclient.HTTPClient(trust)), client.WithPatience(0))
	}
	var doors []sender.Sender
	for range simulate.Doors {
		door, err := c.connect(ctx, as)
		if err != nil {
			return err
		}
		defer door.Close()
		doors = append(doors, door)
	}
	s := simulate.New(config)
	err := s.Run(ctx, doors...)
	report := s.Report()
	if c.JSON {
		return errors.Join(err, w.show(report))
	}
	return errors.Join(err, report.Print(w.out))
}
