// Package demo shows `carstate demo` on a running service: a recorded drive that ends in a traffic
// jam, and then a simulated fleet.
package demo

import (
	"bytes"
	"context"
	"crypto/tls"
	_ "embed"
	"fmt"
	"os"
	"time"

	"example.org/carstate/client"
	"example.org/carstate/internal/access"
	adminclient "example.org/carstate/internal/admin/client"
	"example.org/carstate/internal/lab/drivelog"
	"example.org/carstate/internal/lab/sender"
	"example.org/carstate/internal/lab/simulate"
	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

// NOTICE names the author of drive.
//
//go:embed drive.csv.gz
var drive []byte

const Vehicle vehicle.ID = "NHeN4UqVsohGS55I7LBdh"

type Service struct {
	Query, Ingest string              // base URLs
	Admin         *adminclient.Client // with an HTTP client that trusts the service
	Trust         *tls.Config         // trusts the service
	Ready         func() error        // nil once the service is ready
}

func (s Service) developer(token string) *client.Client {
	return client.New(s.Query, token, client.WithHTTPClient(s.Admin.HTTP), client.WithPatience(0))
}

// Prepare sends the recorded drive, issues a token, and waits a minute at most for the verdicts.
func (s Service) Prepare(ctx context.Context) (token string, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	recorded, err := drivelog.Read(bytes.NewReader(drive), "the bundled drive", nil)
	if err != nil {
		return "", err
	}
	if err := poll(ctx, s.Ready); err != nil {
		return "", err
	}
	samples := sender.Samples([]*drivelog.Drive{recorded}, Vehicle)
	sender.Shift(samples, signal.At(time.Now()))
	err = sender.WithSource(ctx, s.Admin, "demo", access.VehicleSet(Vehicle), sender.TemporaryLife,
		func(as sender.Login) error {
			door := sender.HTTP(s.Ingest, as, s.Trust)
			defer door.Close()
			return sender.All(ctx, door, samples, func(int) {})
		})
	if err != nil {
		return "", err
	}
	issued, err := s.Admin.IssueToken(ctx, access.Credential{
		Developer: "demo", Operations: access.AllOperations, Vehicles: access.AllVehicles(),
		Expires: time.Now().Add(access.DefaultTokenLife),
	})
	if err != nil {
		return "", err
	}
	// The last verdict is as new as the last speed, in whole seconds.
	end := lastSpeed(samples).Truncate(time.Second)
	developer := s.developer(issued.AccessToken)
	return issued.AccessToken, poll(ctx, func() error {
		a, err := developer.CarDrivingState(ctx, string(Vehicle))
		switch {
		case err != nil:
			return fmt.Errorf("the query listener does not answer: %w", err)
		case a.AsOf.Before(end):
			return fmt.Errorf("the query listener has no new answer yet: %s", a)
		}
		return nil
	})
}

func lastSpeed(samples []vehicle.Sample) time.Time {
	for i := len(samples) - 1; i >= 0; i-- {
		if _, ok := samples[i].Speed(); ok {
			return samples[i].Time.Time()
		}
	}
	return time.Time{}
}

// poll returns the last error of ask if ctx ends first.
func poll(ctx context.Context, ask func() error) (err error) {
	for range periodic.NowAndEvery(ctx, 20*time.Millisecond) {
		if err = ask(); err == nil {
			break
		}
	}
	return err
}

// Fleet always has some cars with a throttle fault.
func Fleet(cars int, withoutPositions bool) simulate.Config {
	return simulate.Config{
		Vehicles: cars, PerSecond: 1, Seed: 1, Faults: max(0.5, 40/float64(max(1, cars))), FreeFlow: true,
		WithoutPositions: withoutPositions, Prefix: "DEMO",
	}
}

// Drive simulates a fleet until ctx ends, which is no error. It begins in the past and catches up
// with the clock: soon, cars are in every state.
func (s Service) Drive(ctx context.Context, fleet simulate.Config) error {
	fleet.Backdate = simulate.Mixed(fleet)
	cars := access.NamedOrAll(fleet.IDs()...)
	return sender.WithSource(ctx, s.Admin, "demo", cars, sender.EndlessLife, func(as sender.Login) error {
		return sender.WithToken(ctx, s.Admin, "demo-fleet", cars, sender.EndlessLife, func(token string) error {
			fleet.Developer = s.developer(token)
			var doors []sender.Sender
			for range simulate.Doors {
				door := sender.HTTP(s.Ingest, as, s.Trust)
				defer door.Close()
				doors = append(doors, door)
			}
			if err := simulate.Teach(ctx, doors[0], &fleet); err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return err
			}
			return simulate.New(fleet).Run(ctx, doors...)
		})
	})
}

// RemoveSoon retries for 2 s, because the storage engine may still create a file.
func RemoveSoon(dir string) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	// If it fails, the system cleans up its temporary directory.
	_ = poll(ctx, func() error { return os.RemoveAll(dir) })
}
